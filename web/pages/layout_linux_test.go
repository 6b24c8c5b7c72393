package pages_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
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
	expect.Long(t, "looks at many pages in two sizes")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	title := "Repair the parser"
	s.Call(t, token, "PATCH", webtest.RecordsPath("chats")+"/"+chat, map[string]any{"title": title})
	appendChange(t, s, chat, strings.Repeat("a long line ", 40)+"\n")
	d := openPage(t, s, "/chats/"+chat)
	for name, width := range sizes {
		d.resize(width, 800)
		d.visit("/")
		// the title has all that its state leaves, whatever the time below takes
		is.Equal(d.evaluate(`((row) => {
			const states = document.createRange();
			states.selectNodeContents(row.querySelector(".states"));
			const left = row.querySelector("a").clientWidth - row.querySelector(".title").offsetWidth - states.getBoundingClientRect().width;
			return left < 24; // the gap and the padding
		})(document.querySelector("#chat-`+chat+`"))`), "true") // name

		d.visit("/operations")
		d.evaluate(`document.querySelectorAll(".wide table").forEach((t) => {
			const row = t.tBodies[0].insertRow(), cells = ["of_the_dispatcher_of_permissions", "EVENTS", "0", "0"];
			cells.forEach((text) => (row.insertCell().textContent = text));
		})`)
		is.Equal(d.evaluate(`[...document.querySelectorAll(".wide")].every((e) => e.scrollWidth <= e.clientWidth)`), "true") // name
		// no word of a heading is broken into letters
		is.Equal(d.evaluate(`[...document.querySelectorAll(".operations th")].filter((th) => {
			const word = document.createRange();
			word.selectNodeContents(th);
			return !th.textContent.includes(" ") && word.getClientRects().length > 1;
		}).map((th) => th.textContent).join()`), "") // name

		// keys are explained where a card is, and two buttons with opposite effects do not touch
		d.visit("/requests")
		is.Equal(d.evaluate(`document.querySelector(".keys").checkVisibility()`), "false") // name
		d.visit("/chats/" + chat + "/undo?message=msg_2")
		is.Equal(d.evaluate(`((keep, overwrite) => overwrite.left - keep.right >= 8 || overwrite.top - keep.bottom >= 8)(
			...[...document.querySelectorAll(".choices button")].map((b) => b.getBoundingClientRect()))`), "true") // name

		d.visit("/chats/" + chat + "/changes")
		is.Equal(d.evaluate(`document.querySelectorAll("main button").length`), "1") // name
		is.Equal(d.evaluate(framed+`("main")`), "true")                              // name
		d.evaluate(`document.querySelectorAll("details.file").forEach((d) => (d.open = true))`)
		// a wrapped line begins where its first line begins, beside the number
		is.Equal(d.evaluate(`((line) => {
			const range = document.createRange();
			range.selectNodeContents(line);
			const lefts = [...range.getClientRects()].filter((r) => r.width > 0).map((r) => Math.round(r.left));
			return [lefts.length > 1, Math.min(...lefts) >= Math.round(lefts[0])];
		})(document.querySelector("[data-line]"))`), "true,true") // name
		t.Log(name)
	}
}

// appendChange appends the turn of the message msg_2, which added lines to a file.
func appendChange(t *testing.T, s *webtest.System, chat, lines string) {
	t.Helper()
	appendUserMessage(t, s, chat, "msg_2", "change it")
	s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"msg_2a","role":"assistant","parentID":"msg_2","time":{"completed":2}}}`)
	s.AppendOpenCode(t, chat, "message.part.updated",
		`{"sessionID":"ses_own","part":{"id":"prt_2","messageID":"msg_2a","sessionID":"ses_own","type":"patch","hash":"x","files":["/w/a.go"]}}`)
	s.ChangedFiles = []string{"/w/a.go"}
	s.Web.Chats.Engine.Diff = func(context.Context, string, string) (json.RawMessage, error) {
		added := strings.SplitAfter(strings.TrimSuffix(lines, "\n"), "\n")
		return json.Marshal([]webtest.Object{{"file": "a.go",
			"patch": fmt.Sprintf("@@ -0,0 +1,%d @@\n+", len(added)) + strings.Join(added, "+") + "\n"}})
	}
}
