package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/matryer/is"

	"pocketcoder/expect"
)

// readOnly is the HTML of the conversation without what changes something. The script shows times in the zone of the
// browser.
const readOnly = `(() => {
	const entries = document.querySelector("#entries").cloneNode(true);
	entries.querySelectorAll("form, .menu, .more, .new-line").forEach((e) => e.remove());
	entries.querySelectorAll("time").forEach((e) => e.replaceChildren(e.dateTime));
	return entries.outerHTML.replace(/\s+/g, " ").replace(/> </g, "><");
})()`

func TestChatIsReplayedInABrowser(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "Replayed"})
	admin.say(t, chat, "Write the note, and show it.\n@@reason n=4\n@@say I will write it.\n"+
		call("bash", map[string]any{"command": "echo one; sleep 0.2; echo two > note.txt; cat note.txt",
			"description": "write the note"})+
		"\n@@next\n"+call("bash", map[string]any{"command": "rm -r build", "description": "clean up"})+
		"\n@@next\n@@say The note says **two**.")
	admin.authorize(t, admin.awaitRequest(t, chat))
	admin.must(t, "PATCH", recordPath("permissions", admin.awaitRequest(t, chat)["id"].(string)),
		record{"status": "denied", "reason": "keep it"}, nil)
	p.turnEnds(t, chat)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			is := is.New(t)
			b := p.openBrowser(t, size)
			b.visit("/chats/" + chat)
			b.awaitText("The note says two.")
			live := evaluate[string](b, readOnly)
			b.click("#menu summary")
			b.click(`#menu a[href$="/replay"]`)
			b.awaitCondition("the replay", `document.querySelector("#play")?.hidden === false`)
			is.Equal(evaluate[string](b, readOnly), live) // the last moment is the chat
			b.screenshot("replay-end")
			count := evaluate[int](b, `Number(scrubber.max)`)

			b.click("#earlier")
			b.awaitCondition("the event before", fmt.Sprintf(`current === %d`, count-1))
			b.do(chromedp.KeyEvent(kb.Home))
			b.awaitCondition("the first event", `current === 1 && document.querySelectorAll("#entries > *").length === 0`)
			atDecision := `document.querySelector("#event").matches(".decision")`
			for !evaluate[bool](b, atDecision) { // from mark to mark
				before := evaluate[int](b, "current")
				b.do(chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(chromedp.ModifierShift)))
				b.awaitCondition("a later mark", fmt.Sprintf("current > %d", before))
			}
			b.awaitCondition("who decided", fmt.Sprintf(`[...document.querySelectorAll("#event dd")].some((e) => e.textContent.trim() === %q)`, adminEmail))
			b.screenshot("replay-decision")
			b.checkNoFaults()
			b.awaitCondition("its address", `location.search === "?seq=" + document.querySelector("#event small").textContent.slice(1)`)
			decided := evaluate[string](b, `document.querySelector("#entries").outerHTML`)
			b.load(chromedp.Reload())
			// the page that was moved is the page that a load gives
			is.Equal(evaluate[string](b, `document.querySelector("#entries").outerHTML`), decided)

			// a browser may refuse to change the address often
			is.Equal(evaluate[int](b, `(() => {
				let changes = 0;
				const moment = { html: "", number: current, sequence: document.querySelector("#event small").textContent.slice(1) };
				history.replaceState = () => { changes++; };
				for (let i = 0; i < 200; i++) showMoment(moment);
				delete history.replaceState;
				return changes;
			})()`), 0)
			evaluate[bool](b, `(document.querySelector("#speed").value = "64", true)`)
			b.click("#play")
			b.awaitCondition("the end", fmt.Sprintf(`current === %d && !playing`, count))
			is.Equal(evaluate[string](b, readOnly), live) // playing leads to the same
			b.checkNoFaults()
			b.export(chat)
		})
	}
	checkExports(t, p, chat)
}

// export opens the HTML export from a file, as a person who got it does.
func (b *tab) export(chat string) {
	b.t.Helper()
	is := is.New(b.t)
	page := evaluate[string](b, fmt.Sprintf(`(() => { const r = new XMLHttpRequest(); r.open("GET", "/chats/%s/export/html", false); r.send(); return r.responseText; })()`, chat))
	path := filepath.Join(b.t.TempDir(), "chat.html")
	expect.WriteFile(b.t, path, page)
	shown := evaluate[string](b, readOnly)
	b.load(chromedp.Navigate("file://" + path))
	is.Equal(evaluate[string](b, readOnly), shown)
	is.Equal(evaluate[int](b, `performance.getEntriesByType("resource").length`), 0) // it loads nothing
	b.screenshot("replay-export")
	b.checkNoFaults()
}

// checkExports compares what the program, the API and the log say.
func checkExports(t *testing.T, p *process, chat string) {
	t.Helper()
	is := is.New(t)
	page, _, code := p.cli(t, "", "replay", chat, "--html")
	is.Equal(code, 0)
	expect.Contains(t, page, "denied by "+adminEmail)
	recording, _, code := p.cli(t, "", "replay", chat, "--cast")
	is.Equal(code, 0)
	lines := strings.Split(strings.TrimSpace(recording), "\n")
	var times []float64
	var output strings.Builder
	for _, line := range lines[1:] {
		var at float64
		var kind, text string
		is.NoErr(json.Unmarshal([]byte(line), &[]any{&at, &kind, &text}))
		is.Equal(kind, "o")
		times = append(times, at)
		output.WriteString(text)
	}
	expect.Contains(t, output.String(), "one\r\ntwo\r\n")
	is.True(times[len(times)-1] >= times[1]) // in order
	_, stderr, code := p.cli(t, "", "replay", "nochat", "--html")
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no chat nochat in the log")
	_, _, code = p.cli(t, "", "replay", chat, "--html", "--cast")
	is.Equal(code, 2)
}
