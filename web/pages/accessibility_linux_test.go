package pages_test

import (
	"context"
	_ "embed"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pocketcoder/events"
	"pocketcoder/handlers/project"
	"pocketcoder/ops/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

// accessibility is a JavaScript expression: the faults of a page.
//
//go:embed testdata/accessibility.js
var accessibility string

// inColors shows the page to a person who prefers light or dark colours, and no motion.
func (d *device) inColors(scheme string) {
	d.t.Helper()
	d.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
			},
		})
		return err
	}))
}

// showEverything shows all that a page can show: what is folded or hidden, a refusal, and Markdown.
const showEverything = `(() => {
	const main = document.querySelector("main");
	document.querySelectorAll("template").forEach((e) => main.append(e.content.cloneNode(true)));
	document.querySelectorAll("details").forEach((e) => (e.open = true));
	document.querySelectorAll("[hidden]").forEach((e) => (e.hidden = false));
	document.querySelectorAll("[data-text]").forEach((e) => (e.textContent ||= "1 " + e.dataset.text));
	if (window.log) {
		main.append(...elementsOf('<div class="markdown"><h2>Rivers</h2>' +
			'<table><tr><th>name</th></tr><tr><td>Rhine</td></tr></table>' +
			'<pre><code><span class="k">for</span> <span class="s">"Rhine"</span> <span class="n">1233</span> ' +
			'<span class="c">// km</span></code></pre></div>'));
	}
	if (window.showProblem && document.forms.length > 0) {
		showProblem(document.forms[0], "The title is too long.");
	}
})()`

// isAccessible checks the page in dark and in light colours.
func (d *device) isAccessible(name string) {
	d.t.Helper()
	d.inColors("dark")
	d.screenshot("dark-" + name)
	d.do(chromedp.KeyEvent(kb.Tab)) // from now on, the browser shows the focus
	d.evaluate(showEverything)
	for _, scheme := range []string{"dark", "light"} {
		d.inColors(scheme)
		if faults := d.evaluate(accessibility + `.join("\n")`); faults != "" {
			d.t.Errorf("%s, %s:\n%s", name, scheme, faults)
		}
	}
}

// appendEveryEntry makes a chat with all kinds of entries. A request, a question and a queue wait in it.
func appendEveryEntry(t *testing.T, s *webtest.System, token string) (chat, request string) {
	t.Helper()
	chat = s.ChatWithAnswer(t, token)
	s.Call(t, token, "PATCH", webtest.RecordsPath("chats")+"/"+chat,
		webtest.Object{"title": "Every kind of entry", "tags": "rivers, lakes"})
	s.Append(t, chat, events.MessageSubmitted{Message: "failed",
		Parts: []events.Part{{Type: "text", Text: "Look around\u202e, and keep notes."}}})
	s.Append(t, chat, events.MessageFailed{Message: "failed", Domain: "infrastructure", Error: "no such model"})
	call := func(id, tool, status string, input webtest.Object) map[string]any {
		return map[string]any{"type": "tool", "tool": tool, "callID": id,
			"state": webtest.Object{"status": status, "input": input, "output": "notes", "error": "There is no such file."}}
	}
	submitMessage(t, s, chat, "msg_1",
		map[string]any{"type": "reasoning", "text": "I *think*", "time": webtest.Object{"end": 2}},
		written("I look at `notes.txt`, **all of it**. See the [manual](https://example.org/notes) ![map](https://example.org/map.png)"),
		call("call_1", "bash", "completed", webtest.Object{"command": "make"}),
		call("call_per_1", "bash", "error", webtest.Object{"command": "rm -r build"}),
		call("call_3", "read", "error", webtest.Object{"filePath": "missing.txt"}),
		call("call_4", "task", "completed", webtest.Object{"description": "look below", "prompt": "Look."}),
		written("> It is all there."))
	s.AppendExecution(t, chat, "call_1", &events.ExecFinished{ExitCode: 3, DurationMS: 1500,
		Stdout: events.Output{Bytes: 200, Text: "\x1b[1;32mPASS\x1b[0m \x1b[31mred \x1b[33myellow \x1b[34mblue \x1b[35mmagenta \x1b[36mcyan " +
			"\x1b[2mdim\x1b[0m \x1b[7mmarked\x1b[0m \x1b[41mon red\x1b[0m\n"},
		Stderr: events.Output{Bytes: 20, Text: "\x1b[32mwarning\x1b[0m\n"}})
	denied := needed(t, s, chat, "per_1", "rm -r build")
	s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+denied,
		webtest.Object{"status": "denied", "reason": "keep it"})
	s.AppendOpenCode(t, chat, "session.created",
		`{"sessionID":"ses_below","info":{"id":"ses_below","parentID":"ses_own","agent":"general","title":"look below (@general subagent)","directory":"/w"}}`)
	s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_below","info":{"id":"msg_below","sessionID":"ses_below","role":"assistant","time":{"created":1,"completed":2},"finish":"stop"}}`)
	s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_below","part":{"id":"prt_below","messageID":"msg_below","sessionID":"ses_below","type":"text","text":"below","time":{"start":1,"end":2}}}`)
	s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"msg_3","sessionID":"ses_own","role":"assistant","parentID":"msg_0",`+
		`"time":{"created":1,"completed":2},"error":{"name":"APIError","data":{"message":"no such model","statusCode":400}}}}`)
	s.Assistant(t, chat, "msg_4", webtest.Ended)
	s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_4","messageID":"msg_4","sessionID":"ses_own","type":"tool","tool":"todowrite","callID":"call_2",`+
		`"state":{"status":"completed","input":{"todos":[{"content":"Name the rivers","status":"in_progress","priority":"high"},{"content":"Take notes","status":"completed","priority":"low"}]}}}}`)
	s.AppendOpenCode(t, chat, "question.asked", `{"id":"que_1","sessionID":"ses_own","questions":[`+
		`{"question":"Which colour?","header":"Colour","options":[{"label":"Red","description":"warm"},{"label":"Blue"}]},`+
		`{"question":"Letters?","header":"Letters","multiple":true,"options":[{"label":"A"},{"label":"C"}]}]}`)
	request = referred(t, s, chat, "per_2", "touch a-request-waits")
	s.AppendOpenCode(t, chat, "session.status", `{"sessionID":"ses_own","status":{"type":"busy"}}`)
	s.Append(t, chat, events.MessageSubmitted{Message: "waits", Parts: []events.Part{{Type: "text", Text: "it waits"}}})
	return chat, request
}

func TestEveryPageIsAccessible(t *testing.T) {
	expect.Long(t, "looks at 27 pages")
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	create := func(collection string, fields webtest.Object) string {
		t.Helper()
		_, made := s.Call(t, token, "POST", webtest.RecordsPath(collection), fields)
		return made["id"].(string)
	}
	chat, request := appendEveryEntry(t, s, token)
	appendChange(t, s, chat, "a line\n")
	s.Provider(t, "demo", "demo")
	addProject(t, s, "app", project.Member)
	create("ai_prompts", webtest.Object{"name": "Short", "body": "Be brief."})
	create("channels", webtest.Object{"name": "phone", "kind": "telegram", "token": "123456789:AAq7zk2xv9jh4wbdqtfmv",
		"enabled": true})
	b := loggedIn(t, s, "ada")
	b.submit(t, "/settings/schedules", url.Values{"name": {"Nightly"}, "prompt": {"run the tests"},
		"model": {"demo/demo"}, "cron_expression": {"30 2 * * *"}, "session_mode": {"new"}, "enabled": {"true"}})
	_, after, _ := strings.Cut(b.visit(t, "/schedules").body, `href="/schedules/`)
	schedule, _, _ := strings.Cut(after, `"`)
	_, after, _ = strings.Cut(b.visit(t, "/chats/"+chat).body, `/subagents/`)
	subagent, _, _ := strings.Cut(after, `"`)

	d := newDevice(t, b.url)
	for _, page := range []struct{ name, path, has string }{
		{"setup", "/setup", "form"},
		{"login", "/login", "form"},
		{"offline", "/offline", "main"},
		{"list", "/", "#chats .states"},
		{"archived", "/?archived=true", "h1"},
		{"chat", "/chats/" + chat, ":root:has(#queue):has(#todo):has(#subagents):has(.answer)"},
		{"subagent", "/chats/" + chat + "/subagents/" + subagent, ".message"},
		{"changes", "/chats/" + chat + "/changes", "[data-line]"},
		{"requests", "/requests", ".card .decide"},
		{"request", "/requests/" + request, ".card .decide"},
		{"always", "/requests/" + request + "/always?pattern=" + url.QueryEscape("touch *"), ".tried"},
		{"terminal", "/chats/" + chat + "/terminal", ".output"},
		{"shell", "/chats/" + chat + "/shell", ".xterm-rows"},
		{"replay", "/chats/" + chat + "/replay", "#play:not([hidden])"},
		{"search", "/search?q=notes", ".hits mark"},
		{"account", "/account", ".logins"},
		{"messengers", "/messengers", "button[name=channel]"},
		{"schedules", "/schedules", "form"},
		{"schedule", "/schedules/" + schedule, "main ol > li"},
		{"projects", "/projects", ".project .fields"},
		{"settings", "/settings", "main li"},
		{"rules", "/settings/tool_permissions", ".record .fields"},
		{"prompts", "/settings/ai_prompts", ".record .fields"},
		{"new agent", "/settings/ai_agents", "form"},
		{"operations", "/operations", ".operations td"},
		{"api", "/docs", "h2"},
		{"problem", "/chats/missing", ".problem"},
	} {
		if page.name == "list" {
			chromiumtest.LogIn(t, d.ctx, d.url, token)
		}
		d.visit(page.path)
		d.sees(page.name, "document.querySelector(\""+page.has+"\") !== null")
		d.isAccessible(page.name)
		d.checkNoFaults()
	}
}
