package main

import (
	"context"
	_ "embed"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"pocketcoder/expect"
)

// accessibility is a JavaScript expression: the faults of a page.
//
//go:embed testdata/accessibility.js
var accessibility string

// inColors shows the page to a person who prefers light or dark colours, and no motion.
func (b *tab) inColors(scheme string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
			},
		})
		return err
	}))
}

// showEverything shows all that a page can show: what is folded or hidden, a refusal, and Markdown that a script of
// the demo model cannot write.
const showEverything = `(() => {
	const main = document.querySelector("main");
	document.querySelectorAll("template").forEach((e) => main.append(e.content.cloneNode(true)));
	document.querySelectorAll("details").forEach((e) => (e.open = true));
	document.querySelectorAll("[hidden]").forEach((e) => (e.hidden = false));
	if (window.log) {
		main.append(...elementsOf('<div class="markdown"><h2>Rivers</h2>' +
			'<table><tr><th>name</th></tr><tr><td>Rhine</td></tr></table>' +
			'<pre><code><span class="k">for</span> <span class="s">"Rhine"</span> <span class="n">1233</span> ' +
			'<span class="c">// km</span></code></pre></div>'));
	}
	if (window.showProblem && document.forms.length > 0) {
		showProblem(document.forms[0], "The title is too long.");
	}
	return true;
})()`

// isAccessible checks a page in light and in dark colours. It leaves screenshots of the dark page.
func (b *tab) isAccessible(name string) {
	b.t.Helper()
	defer b.inColors("light")
	b.awaitCondition("the page", `document.readyState === "complete"`)
	b.inColors("dark")
	for _, size := range []screen{desktopScreen, phoneScreen} {
		b.size = size
		b.do(chromedp.EmulateViewport(size.width, size.height))
		b.screenshot("dark-" + name)
	}
	b.do(chromedp.KeyEvent(kb.Tab)) // from now on, the browser shows the focus
	evaluate[bool](b, showEverything)
	for _, scheme := range []string{"dark", "light"} {
		b.inColors(scheme)
		for _, fault := range evaluate[[]string](b, accessibility) {
			b.t.Errorf("%s, %s: %s", name, scheme, fault)
		}
	}
}

// everyEntry makes a chat with all kinds of entries. A request, a question and a queue wait in it.
func (l login) everyEntry(t testing.TB) (chat string) {
	t.Helper()
	chat = l.create(t, "chats", record{"title": "Every kind of entry", "tags": "rivers, lakes"})
	decide := func(request record) {
		t.Helper()
		decision := record{"status": "authorized"}
		if strings.Contains(fmt.Sprint(request), "rm -r") {
			decision = record{"status": "denied", "reason": "keep it"}
		}
		l.must(t, "PATCH", recordPath("permissions", request["id"].(string)), decision, nil)
	}
	runs := func(command string) string {
		return call("bash", map[string]any{"command": command, "description": "test"}) + "\n@@next\n"
	}
	todos := []any{map[string]any{"content": "Name the rivers", "status": "in_progress", "priority": "high"},
		map[string]any{"content": "Take notes", "status": "completed", "priority": "low"}}
	l.say(t, chat, "Look around\u202e, and keep notes.\n@@reason n=9\n@@say I look at `notes.txt`, **all of it**. "+
		"See the [manual](https://example.org/notes) ![map](https://example.org/map.png)\n"+
		call("todowrite", map[string]any{"todos": todos})+"\n@@next\n"+
		runs(`printf '\033[1;32mPASS\033[0m \033[31mred \033[33myellow \033[34mblue \033[35mmagenta \033[36mcyan \033[2mdim\033[0m '; `+
			`printf '\033[7mmarked\033[0m \033[41mon red\033[0m\n'; printf '\033[32mwarning\033[0m\n' >&2; exit 3`)+
		runs("rm -r build")+call("read", map[string]any{"filePath": "missing.txt"})+"\n@@next\n"+
		call("task", map[string]any{"description": "look below", "subagent_type": "general", "prompt": "@@say below"})+
		"\n@@next\n@@say > It is all there.")
	expect.Eventually(t, "the turn is over", func() bool {
		for _, request := range l.list(t, "permissions", `chat = "`+chat+`" && status = "draft" && referred = true`) {
			decide(request)
		}
		return strings.Contains(l.messageTexts(t, chat), "|> It is all there.")
	})
	l.say(t, chat, "@@status 400 no such model")
	expect.Eventually(t, "a turn failed", func() bool {
		return len(l.list(t, "messages", `chat = "`+chat+`" && engine_message_status = "failed"`)) > 0
	})
	l.say(t, chat, strings.TrimSuffix(twoQuestions, "\n@@next\n@@say thanks")+"\n"+bash("touch a-request-waits"))
	l.awaitRequest(t, chat)
	l.say(t, chat, "@@say it waits")
	return chat
}

func TestEveryPageIsAccessible(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.everyEntry(t)
	request := admin.awaitRequest(t, chat)["id"].(string)
	subagent := admin.list(t, "subagents", `chat = "`+chat+`"`)[0]["id"].(string)
	admin.create(t, "ai_prompts", record{"name": "Short", "body": "Be brief."})
	b := p.newBrowser(t, phoneScreen)
	b.visit("/setup")
	b.isAccessible("setup")
	b.visit("/login")
	b.isAccessible("login")
	b.visit("/offline")
	b.isAccessible("offline")
	b.visit("/")
	b.fill("#email", adminEmail)
	b.fill("#password", adminPassword)
	b.click("main button")
	b.awaitCondition("the list of chats", `document.querySelector("#chats") !== null`)
	for _, page := range []struct{ name, path, has string }{
		{"list", "/", "#chats .states"},
		{"archived", "/?archived=true", "h1"},
		{"chat", "/chats/" + chat, "#queue"},
		{"subagent", "/chats/" + chat + "/subagents/" + subagent, ".message"},
		{"requests", "/requests", ".card .decide"},
		{"request", "/requests/" + request, ".card .decide"},
		{"always", "/requests/" + request + "/always?pattern=" + url.QueryEscape("touch *"), ".tried"},
		{"terminal", "/chats/" + chat + "/terminal", ".output"},
		{"shell", "/chats/" + chat + "/shell", ".xterm-rows"},
		{"replay", "/chats/" + chat + "/replay", "#play:not([hidden])"},
		{"search", "/search?q=notes", ".hits mark"},
		{"account", "/account", ".logins"},
		{"messengers", "/messengers", "h1"},
		{"schedules", "/schedules", "form"},
		{"settings", "/settings", "main li"},
		{"rules", "/settings/tool_permissions", ".record .fields"},
		{"prompts", "/settings/ai_prompts", ".record .fields"},
		{"new agent", "/settings/ai_agents", "form"},
		{"operations", "/operations", ".operations td"},
		{"api", "/docs", "h2"},
		{"problem", "/chats/missing", ".problem"},
	} {
		b.visit(page.path)
		b.awaitCondition(page.name, fmt.Sprintf("document.querySelector(%q) !== null", page.has))
		b.isAccessible(page.name)
		b.checkNoFaults()
	}
}
