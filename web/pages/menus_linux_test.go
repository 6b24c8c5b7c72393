package pages_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/store"
	"pocketcoder/web/webtest"
)

func TestAChatFitsAPhone(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"msg_2","sessionID":"ses_own","role":"assistant","parentID":"msg_1","time":{"created":1}}}`)
	s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_2","messageID":"msg_2","sessionID":"ses_own","type":"patch","hash":"x","files":["/w/a"]}}`)
	const title = "Repair the parser of the configuration and all of its tests"
	s.Call(t, token, "PATCH", webtest.RecordsPath("chats")+"/"+chat, map[string]any{"title": title})
	diff := "@@ -0,0 +1,300 @@\n" + strings.Repeat("+a line\n", 300)
	request, err := json.Marshal(map[string]any{"id": "per_1", "sessionID": "ses_own", "permission": "edit",
		"patterns": []string{"a.go"}, "metadata": map[string]any{"filepath": "/workspace/a.go", "diff": diff}})
	is.NoErr(err)
	s.AppendOpenCode(t, chat, "permission.asked", string(request))
	s.Append(t, chat, events.PermissionReferred{Permission: "per_1", Reason: "edits ask"})

	d := openPage(t, s, "/chats/"+chat)
	// a long request is read from its beginning
	is.Equal(d.evaluate(`document.querySelector("#r-`+store.RecordID("per_1")+`").getBoundingClientRect().top >= log.getBoundingClientRect().top - 1`), "true")
	is.Equal(d.evaluate(`document.querySelector("#head h1").textContent`), title)
	is.Equal(d.evaluate(`[...document.querySelectorAll("#head > :not(h1)")].map((e) => e.textContent.trim()).join()`), "1 needs you,Changes,Stop")
	is.Equal(d.evaluate(`document.querySelector("#head h1").offsetWidth > 250`), "true")
	is.Equal(d.evaluate(`document.documentElement.scrollWidth <= innerWidth`), "true")
	is.Equal(d.evaluate(`document.querySelector(".account button").offsetHeight < 40`), "true") // one line

	// the words of a button beside a long text stay whole
	is.Equal(d.evaluate(`(() => {
		document.querySelector("#foot").textContent = "";
		const undone = document.createElement("div"), p = document.createElement("p"), button = document.createElement("button");
		undone.className = "undone";
		p.textContent = "The last messages are undone. ".repeat(9);
		button.textContent = "Redo";
		undone.append(p, button);
		document.querySelector("#foot").append(undone);
		return button.offsetHeight < 48 && button.scrollWidth <= button.offsetWidth;
	})()`), "true")

	d.evaluate(`document.querySelector("#menu summary").click()`)
	is.Equal(d.evaluate(`document.querySelector("#menu").open`), "true")
	d.do(chromedp.Focus(chromedp.CSS("#title")), chromedp.KeyEvent("\u001b"))
	is.Equal(d.evaluate(`document.querySelector("#menu").open`), "false")
	is.Equal(d.evaluate(`document.activeElement === document.querySelector("#menu summary")`), "true")

	// a person keeps a name that a command created
	created(t, s, chat, "k1", envrc())
	d.sees("the buttons", `[...document.querySelectorAll("#r-k1 button")].map((b) => b.textContent).join() === "Keep it,Delete it"`)
	d.checkNoFaults()
	d.click("#r-k1 button[value=authorized]")
	d.sees("the decision", `document.querySelector("#r-k1.authorized") !== null`)
	s.Append(t, chat, events.PermissionApplied{Permission: "k1"})
	d.sees("that it is kept", `document.querySelector("#r-k1 .outcome").textContent.startsWith("kept by")`)
}
