package pages_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// hostileTexts are texts that would run or hide something in a careless page, and how a page shows them, if
// differently.
var hostileTexts = []struct{ text, shown string }{
	{text: `<script>pwned=1</script>`}, {text: `<img src=x onerror=pwned=1>`}, {text: `<svg onload=pwned=1>`}, {text: `<svg><script>pwned=1</script></svg>`},
	{text: `"><script>pwned=1</script>`}, {text: `'><img src=x onerror=pwned=1>`}, {text: `</title><script>pwned=1</script>`}, {text: `</textarea><script>pwned=1</script>`},
	{text: `</pre><script>pwned=1</script>`}, {text: `</style><script>pwned=1</script>`}, {text: `<iframe src="javascript:pwned=1"></iframe>`}, {text: `<iframe srcdoc="<script>parent.pwned=1</script>">`},
	{text: `<base href="https://evil.example/">`}, {text: `<meta http-equiv=refresh content="0;url=https://evil.example/">`}, {text: `<link rel=stylesheet href=https://evil.example/x.css>`},
	{text: `<object data="javascript:pwned=1">`}, {text: `<embed src="javascript:pwned=1">`}, {text: `<details open ontoggle=pwned=1>`}, {text: `<body onload=pwned=1>`}, {text: `<input autofocus onfocus=pwned=1>`},
	{text: `<video><source onerror=pwned=1>`}, {text: `<audio src onloadstart=pwned=1>`}, {text: `<marquee onstart=pwned=1>`}, {text: `<math><mi xlink:href="data:x,pwned=1">`},
	{text: `<form action="javascript:pwned=1"><button>x</button></form>`}, {text: `<a href="javascript:pwned=1">x</a>`}, {text: `<template><script>pwned=1</script></template>`},
	{text: `<noscript><p title="</noscript><img src=x onerror=pwned=1>">`}, {text: `<math><mtext><table><mglyph><style><img src=x onerror=pwned=1>`}, {text: `<!--><script>pwned=1</script>-->`},
	{text: `<![CDATA[<script>pwned=1</script>]]>`}, {text: `<?xml version="1.0"?><script>pwned=1</script>`}, {text: `<x onclick=pwned=1 style=position:fixed;inset:0>x</x>`}, {text: `<img src="data:image/svg+xml,<svg onload=pwned=1>">`},
	{text: `[x](javascript:pwned=1)`, shown: "javascript:pwned=1"}, {text: `[x](JaVaScRiPt:pwned=1)`, shown: "JaVaScRiPt:pwned=1"}, {text: `[x](data:text/html,pwned=1)`, shown: "data:text/html,pwned=1"},
	{text: `[x](vbscript:pwned=1)`, shown: "vbscript:pwned=1"}, {text: `![x](https://evil.example/p.png)`, shown: "evil.example"}, {text: `![x](javascript:pwned=1)`, shown: "javascript:pwned=1"},
	{text: `[x](https://evil.example "onclick=pwned=1")`, shown: "evil.example"}, {text: `<https://evil.example/"onclick="pwned=1>`, shown: "evil.example"}, {text: `[x]: javascript:pwned=1`},
	{text: "`<script>pwned=1</script>`", shown: "<script>pwned=1</script>"}, {text: `\<script>pwned=1\</script>`, shown: "script>pwned=1"}, {text: `&lt;script&gt;pwned=1&lt;/script&gt;`, shown: "script"},
	{text: `&#60;img src=x onerror=pwned=1&#62;`, shown: "img src=x"}, {text: `{{constructor.constructor('pwned=1')()}}`, shown: "constructor"}, {text: `${pwned=1}`},
	{text: `javascript:pwned=1`}, {text: `x" onmouseover="pwned=1" x="`}, {text: `x' autofocus onfocus='pwned=1`}, {text: "`-pwned=1-`", shown: "-pwned=1-"},
	{text: "invoice\u202efdp.exe", shown: "invoice<U+202E>fdp.exe"}, {text: "a\u2066b\u2069c", shown: "a<U+2066>b<U+2069>c"}, {text: "zero\u200bwidth", shown: "zero<U+200B>width"},
	{text: "soft\u00adhyphen", shown: "soft<U+00AD>hyphen"}, {text: "bom\ufeffhere", shown: "bom<U+FEFF>here"}, {text: "tag\U000e0041x", shown: "tag<U+E0041>x"}, {text: "filler\u3164x", shown: "filler<U+3164>x"},
	{text: "line\u2028separator", shown: "line<U+2028>separator"}, {text: "red \x1b[31mtext", shown: "red ␛[31mtext"}, {text: "title \x1b]0;pwned\x07", shown: "title ␛]0;pwned␇"}, {text: "csi \u009b2J", shown: "csi <U+009B>2J"},
	{text: "back\x08space", shown: "back␈space"}, {text: "del\x7fete", shown: "del␡ete"},
}

// invisible is a JavaScript expression that is true if a page has a character that a person cannot see, or a script of
// ours has been tricked.
const invisible = `/(?![\n\t\u200c\u200d])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\u3164\u2800]/u.test(document.documentElement.textContent) || "pwned" in window`

func TestHostileTextsNeitherRunNorHide(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	output := ""
	for _, c := range hostileTexts {
		output += c.text + "\n"
	}
	for group := range slices.Chunk(hostileTexts, 6) {
		title := ""
		for _, c := range group {
			title += c.text + " "
		}
		s.Chat(t, token, title)
	}
	d := openPage(t, s, "/")
	d.screenshot("hostile-list")
	d.checkHostile()
	// checkShown checks that an element shows all texts, one after the other.
	checkShown := func(selector string) {
		t.Helper()
		text := d.evaluate(fmt.Sprintf(`document.querySelector(%q).textContent`, selector))
		shown := strings.Join(strings.Fields(text), " ")
		for _, c := range hostileTexts {
			if !strings.Contains(shown, shownAs(c.text, c.shown)) {
				t.Errorf("%s does not show %q: %s", selector, c.text, shown)
			}
		}
		d.checkHostile()
	}

	// while it is written
	d.visit("/chats/" + chat)
	s.Assistant(t, chat, "msg_1", "")
	s.TextPart(t, chat, "msg_1", "prt_1", "", "")
	for _, text := range []string{output, "the end"} {
		delta, err := json.Marshal(webtest.Object{"sessionID": "ses_own", "messageID": "msg_1", "partID": "prt_1",
			"field": "text", "delta": text})
		webtest.Check(t, err)
		s.Delta(t, chat, "message.part.delta", string(delta))
	}
	d.sees("the end of the text", `document.querySelector(".writing").textContent.endsWith("the end")`)
	checkShown(".writing")

	// the answers, a message of a person, the output of a tool, and a request
	var all []events.Event
	for i, c := range hostileTexts {
		all = append(all, messageEvents(t, chat, fmt.Sprintf("msg_2%02d", i), written(c.text))...)
	}
	all = append(all, messageEvents(t, chat, "msg_300", map[string]any{"type": "tool", "tool": "read", "callID": "call_1",
		"state": map[string]any{"status": "completed", "input": map[string]any{"filePath": output}, "output": output}})...)
	appendAll(t, s, all)
	s.Append(t, chat, events.MessageSubmitted{Message: "m1", Parts: []events.Part{{Type: "text", Text: output}}})
	s.Append(t, chat, events.MessageFailed{Message: "m1", Domain: "infrastructure", Error: output})
	card := "#r-" + needed(t, s, chat, "per_1", output)
	d.sees("the request", fmt.Sprintf(`document.querySelector(%q) !== null`, card))
	const answers = `[...document.querySelectorAll(".message.assistant:has(.markdown)")]`
	for i, c := range hostileTexts {
		// the first is the one that was written
		text := d.evaluate(fmt.Sprintf(answers+`.filter((e) => !e.querySelector(".writing"))[%d].textContent`, i))
		if !strings.Contains(strings.Join(strings.Fields(text), " "), shownAs(c.text, c.shown)) {
			t.Errorf("%q is not shown in %q", c.text, text)
		}
	}
	for _, selector := range []string{".message.user", ".tool", card} {
		checkShown(selector)
	}
	d.screenshot("hostile-chat")
	d.visit("/chats/" + chat)
	checkShown(".message.user")

	s.AppendExecution(t, chat, "x1", &events.ExecFinished{ExitCode: 3,
		Stdout: events.Output{Bytes: int64(len(output)), Text: output},
		Stderr: events.Output{Bytes: int64(len(output)), Text: output}})
	d.visit("/chats/" + chat + "/terminal")
	d.checkHostile()
	appendChange(t, s, chat, output)
	d.visit("/chats/" + chat + "/changes")
	d.sees("the changes", fmt.Sprintf(`document.querySelectorAll("[data-line]").length === %d`, len(hostileTexts)))
	d.checkHostile()
	d.checkNoFaults()
}

// checkHostile checks that no text ran or hides something on the page.
func (d *device) checkHostile() {
	d.t.Helper()
	if d.evaluate(invisible) != "false" {
		d.t.Errorf("a text ran or hides something in %q", d.evaluate(`document.documentElement.textContent`))
	}
}

// shownAs is how a page shows a text.
func shownAs(text, shown string) string {
	if shown == "" {
		return text
	}
	return shown
}
