package main

import (
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
)

func TestComposerAttachesFilesAndRunsCommands(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	notes := filepath.Join(t.TempDir(), "notes.txt")
	expect.WriteFile(t, notes, "the Rhine is long\n")
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			is := is.New(t)
			chat := p.admin(t).create(t, "chats", record{"title": "composer " + size.name})
			b := p.openBrowser(t, size)
			b.visit("/chats/" + chat)
			b.do(chromedp.SetUploadFiles(chromedp.CSS("input[type=file]"), []string{notes}))
			b.awaitCondition("that one file is attached", `document.querySelector(".files").textContent.includes("notes.txt")`)
			b.fill("#text", "@@say I read it.")
			b.screenshot("attached")
			evaluate[bool](b, `(window.sendAway = fetch, window.fetch = () => Promise.reject(), true)`)
			b.click("#send button")
			b.awaitCondition("that the message was not sent", `document.querySelector(".composer .problem") !== null`)
			is.Equal(evaluate[string](b, `[text.value, document.querySelector("input[type=file]").files.length].join()`), "@@say I read it.,1")
			evaluate[bool](b, `(window.fetch = sendAway, true)`)
			b.click("#send button")
			b.awaitText("notes.txt")
			b.awaitText("AssistantI read it.")
			b.awaitCondition("that the turn is over", `document.querySelector("#head form") === null`)

			b.fill("#text", "/")
			b.awaitCondition("the commands", `!document.querySelector("#commands").hidden && document.querySelectorAll("#commands li:not([hidden])").length > 5`)
			b.screenshot("commands")
			b.fill("#text", "ren")
			b.awaitCondition("one command", `document.querySelectorAll("#commands li:not([hidden])").length === 1`)
			b.click("#commands li:not([hidden])")
			b.fill("#text", " Rivers of "+size.name+"\r")
			b.awaitCondition("the new title", `document.querySelector("h1").textContent === "Rivers of `+size.name+`"`)
			b.awaitCondition("that the commands are gone", `document.querySelector("#commands").hidden`)
			b.checkNoFaults()

			// the Enter of an input method sends nothing, as Safari reports it
			is.True(evaluate[bool](b, `text.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", keyCode: 229, bubbles: true, cancelable: true }))`))
			// a field grows with its text also in a browser without field-sizing
			is.True(evaluate[bool](b, `(() => {
				text.style.fieldSizing = "fixed";
				const [high, low] = ["one\ntwo\nthree", "one"].map((value) => {
					text.value = value;
					fitHeight(text);
					return { shown: text.clientHeight, needed: text.scrollHeight };
				});
				text.value = text.style = "";
				return high.needed <= high.shown && low.shown < high.shown;
			})()`))
			b.fill("#text", "/fork\r")
			b.awaitCondition("the new chat", `!location.pathname.includes("`+chat+
				`") && location.pathname.startsWith("/chats/")`)
			b.awaitText("AssistantI read it.")
			b.checkNoFaults()
		})
	}
}
