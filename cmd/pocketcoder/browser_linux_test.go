package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/chromiumtest"
)

// screenshots is an ignored folder for screenshots: of all pages with -screenshots, otherwise of those at which a test
// failed.
const screenshots = "screenshots"

var saveScreenshots = flag.Bool("screenshots", false, "save what the pages look like in the folder "+screenshots)

// screen is the size of a browser's window.
type screen struct {
	name          string
	width, height int64
}

var (
	phoneScreen   = screen{"phone", 360, 800}
	desktopScreen = screen{"desktop", 1280, 800}
)

// tab is a page in a Chromium.
type tab struct {
	*process
	t    testing.TB
	ctx  context.Context
	size screen

	mu     sync.Mutex
	faults []string // scripts that failed, were refused or opened a dialog
}

// openBrowser opens a tab in which the administrator is logged in. It shows no page yet.
func (p *process) openBrowser(t testing.TB, size screen) *tab {
	t.Helper()
	b := p.newBrowser(t, size)
	b.logIn()
	return b
}

// logIn logs the administrator in.
func (b *tab) logIn() {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, network.SetCookie, network.SetCookieParams{Name: "pocketcoder",
			Value: b.admin(b.t).token, URL: b.HTTP})
		return err
	}))
}

// newBrowser opens a tab in the shared Chromium.
func (p *process) newBrowser(t testing.TB, size screen) *tab {
	t.Helper()
	return p.useTab(t, chromium.OpenTab(t), size)
}

// useTab sets the size of an open tab and records its errors.
func (p *process) useTab(t testing.TB, ctx context.Context, size screen) *tab {
	t.Helper()
	b := &tab{process: p, t: t, ctx: ctx, size: size}
	b.do(chromedp.EmulateViewport(size.width, size.height))
	if err := chromedp.Listen(ctx, b.handleEvent); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			b.screenshot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
	})
	return b
}

// handleEvent notes what must not happen on any page.
func (b *tab) handleEvent(event any) {
	fault := ""
	switch e := event.(type) {
	case *page.EventJavascriptDialogOpening:
		fault = "dialog: " + e.Message
	case *runtime.EventExceptionThrown:
		fault = "exception: " + e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			fault += " " + e.ExceptionDetails.Exception.Description
		}
	case *cdplog.EventEntryAdded:
		if e.Entry.Source == cdplog.EntrySourceSecurity || strings.Contains(e.Entry.Text, "Content Security Policy") {
			fault = "refused: " + e.Entry.Text
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if fault != "" {
		b.faults = append(b.faults, fault)
	}
}

// checkNoFaults fails the test if a script failed, was refused, or opened a dialog, if the page is wider than the
// window, or if an animation never ends, because it keeps a phone's processor busy.
func (b *tab) checkNoFaults() {
	b.t.Helper()
	b.awaitCondition("the page", `document.readyState === "complete"`)
	if width := evaluate[int64](b, "document.documentElement.scrollWidth"); width > b.size.width {
		b.t.Errorf("the page is %d wide in a window of %d", width, b.size.width)
	}
	if evaluate[bool](b, "document.getAnimations().some((a) => a.effect.getComputedTiming().endTime === Infinity)") {
		b.t.Error("an animation never ends")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		b.t.Errorf("faults: %q", b.faults)
	}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) visit(path string) { b.t.Helper(); b.load(chromedp.Navigate(b.HTTP + path)) }

// load takes a step that loads a document, and waits until it is loaded.
func (b *tab) load(step chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	chromiumtest.Load(b.t, b.ctx, step)
}

// click clicks on an element as a person does, once the element no longer moves and nothing covers its middle. The page
// clicks, because an event of the stream can move the element between two commands of a test.
func (b *tab) click(selector string) {
	b.t.Helper()
	gesture := true
	asPerson := func(p *runtime.EvaluateParams) { p.UserGesture = &gesture }
	clicked := fmt.Sprintf(`(() => {
		const element = document.querySelector(%q);
		if (!element || document.readyState !== "complete") return false;
		element.scrollIntoViewIfNeeded();
		const box = element.getClientRects()[0];
		if (!box) return false;
		const place = [box.x + box.width / 2, box.y + box.height / 2];
		const rests = String(place) === element.place;
		element.place = String(place);
		if (!rests || !element.contains(document.elementFromPoint(...place))) return false;
		setTimeout(() => {
			const press = (type) => element.dispatchEvent(new PointerEvent(type, { bubbles: true, cancelable: true }));
			if (press("pointerdown") && press("mousedown")) element.focus({ preventScroll: true });
			element.click();
		});
		return true;
	})()`, selector)
	expect.Eventually(b.t, "a place to click on "+selector, func() bool {
		done, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](clicked, asPerson))
		return err == nil && done
	})
	// The click has happened before this timer fires; it may have left the page.
	_, _ = chromedp.Run(b.ctx, chromedp.Evaluate[bool](`new Promise((done) => setTimeout(done, 0, true))`,
		chromedp.EvalAwaitPromise))
}

// fill enters a text into a field, and presses Enter at each "\r". The text arrives as if it was pasted, because every
// key takes Chromium 4 ms of processor time.
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	lines := strings.Split(text, "\r")
	for i, line := range lines {
		b.retry(chromedp.Focus(chromedp.CSS(selector)))
		b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, input.InsertText, input.InsertTextParams{Text: line})
			return err
		}))
		if i < len(lines)-1 {
			b.do(chromedp.KeyEvent("\r"))
		}
	}
}

// retry takes a step on an element, once more if the page replaced the element meanwhile.
func (b *tab) retry(step chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	var err error
	for range 20 {
		if err = chromedp.Do(b.ctx, step); err == nil || !strings.Contains(err.Error(), "-32000") {
			break
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// evaluate returns the value of a JavaScript expression.
func evaluate[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// awaitCondition waits until a JavaScript condition holds.
func (b *tab) awaitCondition(what, condition string) {
	b.t.Helper()
	chromiumtest.Await(b.t, b.ctx, what, condition)
}

// awaitText waits until the log of a chat has a text.
func (b *tab) awaitText(text string) {
	b.t.Helper()
	b.awaitCondition("the chat has "+text, fmt.Sprintf(`document.querySelector("#log")?.textContent.includes(%q) ?? false`, text))
}

// screenshot saves what the page looks like, if that was asked for or the test has failed.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	if !*saveScreenshots && !b.t.Failed() {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	expect.WriteFile(b.t, filepath.Join(screenshots, name+"-"+b.size.name+".png"), string(png))
}

// shownParts is the HTML of the parts that the stream of a chat keeps up to date. The number of requests is about
// other chats too, and the line before what is new is of the moment of the load.
const shownParts = `((page) => ["#head", "#menu", "#foot", "#entries"].map((s) => {
	const part = page.querySelector(s).cloneNode(true);
	part.querySelectorAll("#new-line").forEach((e) => e.remove());
	part.querySelectorAll("time").forEach((e) => e.replaceChildren(e.dateTime));
	return part.outerHTML.replace(/\s+/g, " ").replace(/> </g, "><");
}).join("\n"))`

// checkEqualsFreshLoad waits until the page is the page that a fresh load gives, and loads it.
func (b *tab) checkEqualsFreshLoad() {
	b.t.Helper()
	b.awaitCondition("the page as a fresh load gives it", `(() => {
		const request = new XMLHttpRequest();
		request.open("GET", location.href, false);
		request.send();
		const fresh = new DOMParser().parseFromString(parser.createHTML(request.responseText), "text/html");
		return `+shownParts+`(document) === `+shownParts+`(fresh);
	})()`)
	b.load(chromedp.Reload())
}

func TestCommandIsApprovedInABrowser(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	for _, size := range []screen{phoneScreen, desktopScreen} {
		t.Run(size.name, func(t *testing.T) {
			is := is.New(t)
			b := p.openBrowser(t, size)
			b.visit("/")
			b.fill("#text", "Say hello from the sandbox, then tell me what you did.\n@@reason n=6\n@@say I will run one command.\n"+call("bash", map[string]any{"command": "echo hello from " + size.name, "description": "greet"})+
				"\n@@next\n@@say It printed **hello**. See the [manual](https://example.org/echo).")
			b.screenshot("list")
			b.click(".new button")
			b.awaitCondition("a request", `document.querySelector(".card.draft .decide") !== null`)
			b.awaitText("echo hello from " + size.name)
			b.screenshot("request")
			b.click(".card.draft .decide button[value=authorized]")
			b.awaitCondition("the answer", `[...document.querySelectorAll(".markdown strong")].some((e) => e.textContent === "hello")`)
			b.awaitText("approved by " + adminEmail)
			b.awaitCondition("that the turn is over", `document.querySelector("#head form") === null`)
			b.screenshot("answer")
			b.checkEqualsFreshLoad() // the page that was followed is the page that a load gives

			// Enter sends, and a second message does not wait for the first
			b.fill("#text", "@@say It is done.\r@@say So is this.\r")
			b.awaitText("Assistant" + "It is done.")
			b.awaitText("Assistant" + "So is this.")
			// Chromium's protocol types a line end although the page handled the key
			is.Equal(evaluate[string](b, `document.querySelector("#text").value.trim()`), "")
			b.visit("/requests")
			b.screenshot("requests")
			b.visit("/")
			b.screenshot("chats")
			b.checkNoFaults()
		})
	}
}

func TestFirstStepsFromTheSetupLinkToAnApprovedCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := prepare(t, t.TempDir())
	p.askRules = nil // only the built-in rules
	p.env = []string{"POCKETCODER_ADMIN_EMAIL=", "POCKETCODER_ADMIN_PASSWORD="}
	p.runForTest()
	var link string
	expect.Eventually(t, "the link is shown", func() bool {
		link = setupToken.FindString(p.output.String())
		return link != ""
	})
	b := p.newBrowser(t, phoneScreen)
	b.visit(strings.TrimPrefix(link, p.HTTP))
	b.awaitCondition("that the page has the code", `document.querySelector("#code").value !== "" && location.hash === ""`)
	b.screenshot("setup")
	b.checkNoFaults()
	b.fill("#email", "first@example.org")
	b.fill("#password", somePassword)
	b.fill("#password_again", somePassword)
	b.click("main button")
	b.awaitCondition("the list of chats", `document.querySelector(".welcome button") !== null`)
	b.screenshot("welcome")
	b.checkNoFaults()
	b.click(".welcome button")
	b.awaitCondition("a request", `document.querySelector(".card.draft .decide") !== null`)
	b.awaitText("echo Hello from PocketCoder > hello-from-pocketcoder.txt")
	b.screenshot("first-request")
	b.click(".card.draft .decide button[value=authorized]")
	b.awaitText("approved by first@example.org")
	expect.Eventually(t, "the command ran", func() bool {
		written, err := os.ReadFile(filepath.Join(p.workspace, "hello-from-pocketcoder.txt"))
		return err == nil && string(written) == "Hello from PocketCoder\n"
	})
	b.awaitCondition("the next request", `document.querySelector(".card.draft .decide") !== null`)
	// as from a notification
	b.visit("/requests/" + evaluate[string](b, `document.querySelector(".card.draft").id.slice("r-".length)`))
	b.screenshot("request-page")
	b.click(".card.draft .decide button[value=authorized]")
	b.awaitCondition("who decided", `document.querySelector(".card .outcome").textContent === "approved by first@example.org"`)
	b.screenshot("request-page-decided")
	b.checkNoFaults()
	b.visit("/")
	b.awaitCondition("that the explanation is gone",
		`document.querySelector("#chats a") !== null && document.querySelector(".welcome") === null`)
	b.click(".bar .account a")
	b.awaitCondition("the login of this browser", `document.querySelector(".logins .turn") !== null`)
	b.screenshot("account")
	is.Equal(evaluate[string](b, "document.cookie"), "") // out of reach of scripts
	b.checkNoFaults()
}

func TestRequestDecidedElsewhereUpdatesThePage(t *testing.T) {
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "two browsers"})
	admin.say(t, chat, bash("echo decided twice"))
	admin.awaitRequest(t, chat)
	one, two := p.openBrowser(t, phoneScreen), p.openBrowser(t, desktopScreen)
	for _, b := range []*tab{one, two} {
		b.visit("/chats/" + chat)
		b.awaitCondition("a request", `document.querySelector(".card.draft .decide") !== null`)
	}
	two.click(".card .more summary")
	two.fill(".card input[name=reason]", "because")
	one.click(".card.draft .decide button[value=authorized]")
	two.awaitCondition("the decision", fmt.Sprintf(`document.querySelector(".card.authorized .outcome")?.textContent === %q`,
		"approved by "+adminEmail))
	two.awaitCondition("that no form is left", `document.querySelector(".card form") === null`)
	two.screenshot("decided-elsewhere")
	for _, b := range []*tab{one, two} {
		b.checkNoFaults()
	}
}

func TestChatsInARepository(t *testing.T) {
	t.Parallel()
	runStages(t, inRepository(t), stage{"a chat is steered in a browser", chatIsSteeredInABrowser},
		stage{"an undo in the terminal asks about a changed file", undoInTheTerminalAsks},
		stage{"a chat is forked and reverted", chatIsForkedAndReverted})
}

func chatIsSteeredInABrowser(t *testing.T, p *process) {
	is := is.New(t)
	admin := p.admin(t)
	chat := admin.create(t, "chats", record{"title": "rivers"})
	write := func(name, content string) string {
		return call("write", map[string]any{"filePath": name, "content": content}) + "\n@@next\n"
	}
	todos := []any{map[string]any{"content": "Name the rivers", "status": "in_progress", "priority": "high"},
		map[string]any{"content": "Take notes", "status": "pending", "priority": "low"}}
	admin.say(t, chat, "Write down two rivers.\n"+write("river.txt", "Rhine\n")+write("notes.txt", "A river\u202e\n")+
		call("todowrite", map[string]any{"todos": todos})+"\n@@next\n@@say I wrote two files.")
	b := p.openBrowser(t, phoneScreen)
	b.visit("/chats/" + chat)
	expect.Eventually(t, "the turn is over", func() bool {
		for _, request := range admin.list(t, "permissions", `chat = "`+chat+`" && status = "draft" && referred = true`) {
			admin.authorize(t, request) // each write needs an approval
		}
		return evaluate[bool](b, `document.querySelector("#log").textContent.includes("AssistantI wrote two files.") && document.querySelector("#head form") === null`)
	})
	b.awaitCondition("the todo list", `document.querySelector("#todo summary")?.textContent === "0 of 2 tasks done: Name the rivers"`)
	b.awaitCondition("the link to the changes", `document.querySelector("#head a") !== null`)
	b.click("#todo summary")
	b.screenshot("todo")
	b.click("#todo summary")

	b.click("#menu summary") // rename, without leaving the page
	b.screenshot("menu")
	evaluate[string](b, `document.querySelector("#title").value = ""`)
	b.fill("#title", "Two rivers")
	b.click("#menu form:first-of-type button")
	b.awaitCondition("the new title", `document.querySelector("h1").textContent === "Two rivers"`)
	b.click("#menu summary")

	admin.say(t, chat, bash("echo busy"))
	request := admin.awaitRequest(t, chat)
	b.awaitCondition("that a message would wait", `document.querySelector("#send button").textContent === "Queue"`)
	b.fill("#text", "@@say second\r@@say third\r")
	b.awaitCondition("both messages in the queue", `document.querySelectorAll("#queue li").length === 2`)
	b.screenshot("queue")
	admin.authorize(t, request)
	b.awaitText("Assistantthird")
	b.awaitCondition("that nothing waits", `document.querySelector("#queue") === null && document.querySelector("#head form") === null`)
	b.checkEqualsFreshLoad()

	b.click("#head a")
	b.awaitCondition("the changes", `document.querySelector("main.changes h1")?.textContent === "2 files +2 −0"`)
	b.awaitCondition("every character", `document.querySelector("main.changes").textContent.includes("+A river<U+202E>") && !(`+
		invisible+`)`)
	b.click(`[data-file="river.txt"] [data-line="1"]`)
	b.fill("#text", "Name its length, too.")
	b.visit("/chats/" + chat) // the comments are kept meanwhile
	b.visit("/chats/" + chat + "/changes")
	is.Equal(evaluate[string](b, `document.querySelector("#text").value`),
		"river.txt:1\n> +Rhine\n\nName its length, too.")
	b.screenshot("changes")
	b.checkNoFaults()
	b.click(".composer button")
	b.awaitText("> +Rhine")
	b.visit("/chats/" + chat + "/changes")
	is.Equal(evaluate[string](b, `document.querySelector("#text").value`), "")
	b.isAccessible("changes")
}

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
	t.Parallel()
	p := sharedSystem(t)
	admin := p.admin(t)
	b := p.openBrowser(t, phoneScreen)
	output := ""
	for _, c := range hostileTexts {
		output += c.text + "\n"
	}
	expect.WriteFile(t, filepath.Join(p.workspace, "hostile.txt"), output)
	t.Cleanup(func() { os.Remove(filepath.Join(p.workspace, "hostile.txt")) })
	groups := slices.Collect(slices.Chunk(hostileTexts, 6))
	chats := make([]string, len(groups))
	for i, group := range groups {
		title := ""
		for _, c := range group {
			title += c.text + " "
		}
		chats[i] = admin.create(t, "chats", record{"title": title})
		for _, c := range group {
			admin.say(t, chats[i], "@@say "+c.text)
		}
	}
	tool := admin.create(t, "chats", record{"title": "output"})
	admin.say(t, tool, "@@text n=30 delay=20\n"+call("read",
		map[string]any{"filePath": filepath.Join(p.workspace, "hostile.txt")})+"\n@@next\n@@say end of output")

	b.visit("/chats/" + tool) // while it is written
	b.awaitText("end of output")
	for _, c := range hostileTexts {
		b.awaitText(shownAs(c.text, c.shown))
	}
	b.awaitCondition("that nothing ran or hides", "!("+invisible+")")
	for i, group := range groups {
		b.visit("/chats/" + chats[i])
		b.awaitCondition("all answers", fmt.Sprintf(`document.querySelectorAll(".message.assistant .markdown").length === %d && `+
			`document.querySelector("#head form") === null`, len(group)))
		for j, c := range group {
			text := evaluate[string](b, fmt.Sprintf(`document.querySelectorAll(".message.assistant")[%d].textContent`, j))
			if !strings.Contains(strings.Join(strings.Fields(text), " "), shownAs(c.text, c.shown)) {
				t.Errorf("%q is not shown in %q", c.text, text)
			}
		}
		if evaluate[bool](b, invisible) {
			t.Errorf("a text ran or hides something in %q", evaluate[string](b, `document.documentElement.textContent`))
		}
	}
	b.visit("/")
	b.awaitCondition("that the list hides nothing", "!("+invisible+")")
	b.checkNoFaults()
}

// shownAs is how a page shows a text.
func shownAs(text, shown string) string {
	if shown == "" {
		return text
	}
	return shown
}
