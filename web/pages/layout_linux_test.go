package pages_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

// sizes are the widths of a phone and of a desktop.
var sizes = map[string]int64{"phone": 360, "desktop": 1280}

// framed is a script function that reports whether each visible button of a part of the page has a frame or a line
// under its words.
const framed = `((part) => [...document.querySelectorAll(part + " button:not([aria-label])")].filter((b) => b.checkVisibility()).every((b) => {
	const style = getComputedStyle(b);
	return style.borderTopColor !== "rgba(0, 0, 0, 0)" || style.textDecorationLine === "underline";
}))`

func TestNothingIsCutBesideEmptySpace(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	s.ChangedFiles = []string{"/w/a.go"}
	title := "Repair the parser"
	s.Call(t, token, "PATCH", webtest.RecordsPath("chats")+"/"+chat, map[string]any{"title": title})
	appendUserMessage(t, s, chat, "msg_2", "change it")
	s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"msg_2a","role":"assistant","parentID":"msg_2","time":{"completed":2}}}`)
	s.AppendOpenCode(t, chat, "message.part.updated",
		`{"sessionID":"ses_own","part":{"id":"prt_2","messageID":"msg_2a","sessionID":"ses_own","type":"patch","hash":"x","files":["/w/a.go"]}}`)
	s.Web.Chats.Engine.Diff = longDiff
	ctx := openPage(t, s, "/chats/"+chat)
	evaluate := func(expression string) string {
		t.Helper()
		return chromiumtest.Evaluate(t, ctx, expression)
	}
	visit := func(path, selector string) {
		t.Helper()
		chromiumtest.Load(t, ctx, chromedp.Navigate(evaluate("location.origin")+path))
		is.NoErr(chromedp.Do(ctx, chromedp.WaitReady(chromedp.CSS(selector))))
	}
	for name, width := range sizes {
		is.NoErr(chromedp.Do(ctx, chromedp.EmulateViewport(width, 800)))
		visit("/", "#chat-"+chat)
		// the title has all that its state leaves, whatever the time below takes
		is.Equal(evaluate(`((row) => {
			const states = document.createRange();
			states.selectNodeContents(row.querySelector(".states"));
			const left = row.querySelector("a").clientWidth - row.querySelector(".title").offsetWidth - states.getBoundingClientRect().width;
			return left < 24; // the gap and the padding
		})(document.querySelector("#chat-`+chat+`"))`), "true") // name

		visit("/operations", ".operations table")
		evaluate(`document.querySelectorAll(".wide table").forEach((t) => {
			const row = t.tBodies[0].insertRow(), cells = ["of_the_dispatcher_of_permissions", "EVENTS", "0", "0"];
			cells.forEach((text) => (row.insertCell().textContent = text));
		})`)
		is.Equal(evaluate(`[...document.querySelectorAll(".wide")].every((e) => e.scrollWidth <= e.clientWidth)`), "true") // name
		// no word of a heading is broken into letters
		is.Equal(evaluate(`[...document.querySelectorAll(".operations th")].filter((th) => {
			const word = document.createRange();
			word.selectNodeContents(th);
			return !th.textContent.includes(" ") && word.getClientRects().length > 1;
		}).map((th) => th.textContent).join()`), "") // name

		// keys are explained where a card is, and two buttons with opposite effects do not touch
		visit("/requests", ".keys")
		is.Equal(evaluate(`document.querySelector(".keys").checkVisibility()`), "false") // name
		visit("/chats/"+chat+"/undo?message=msg_2", ".choices")
		is.Equal(evaluate(`((keep, overwrite) => overwrite.left - keep.right >= 8 || overwrite.top - keep.bottom >= 8)(
			...[...document.querySelectorAll(".choices button")].map((b) => b.getBoundingClientRect()))`), "true") // name

		visit("/chats/"+chat+"/changes", "[data-line]")
		is.Equal(evaluate(`document.querySelectorAll("main button").length`), "1") // name
		is.Equal(evaluate(framed+`("main")`), "true")                              // name
		evaluate(`document.querySelectorAll("details.file").forEach((d) => (d.open = true))`)
		// a wrapped line begins where its first line begins, beside the number
		is.Equal(evaluate(`((line) => {
			const range = document.createRange();
			range.selectNodeContents(line);
			const lefts = [...range.getClientRects()].filter((r) => r.width > 0).map((r) => Math.round(r.left));
			return [lefts.length > 1, Math.min(...lefts) >= Math.round(lefts[0])];
		})(document.querySelector("[data-line]"))`), "true,true") // name
		t.Log(name)
	}
}

func longDiff(context.Context, string, string) (json.RawMessage, error) {
	return json.RawMessage(`[{"file":"a.go","patch":"@@ -0,0 +1 @@\n+` + strings.Repeat("a long line ", 40) + `\n"}]`), nil
}

func TestAQueuedMessageIsShownOnce(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	ctx := openPage(t, s, "/chats/"+chat)
	is.NoErr(chromedp.Do(ctx, chromedp.EmulateViewport(360, 640), chromedp.SetValue(chromedp.CSS("#text"), "then test"),
		chromedp.Click(chromedp.CSS("#send button"))))
	shown := `[...document.querySelectorAll(".message.user, .waiting")].filter((e) => e.checkVisibility() && e.textContent.includes("then test")).map((e) => e.className).join()`
	chromiumtest.Await(t, ctx, "the message waits", `document.querySelector("#queue .waiting") !== null && document.querySelector(".message.user.pending") !== null`)
	is.Equal(chromiumtest.Evaluate(t, ctx, shown), "waiting")
	is.Equal(chromiumtest.Evaluate(t, ctx, framed+`("#queue")`), "true")
}
