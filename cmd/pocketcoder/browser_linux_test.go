package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/chromiumtest"
)

// screen is the size of a browser's window.
type screen struct {
	name          string
	width, height int64
}

var phoneScreen = screen{"phone", 360, 800}

// tab is a page in a Chromium. What pages do without OpenCode and the sandbox, the tests of web/pages show.
type tab struct {
	*process
	t      testing.TB
	ctx    context.Context
	size   screen
	faults *chromiumtest.Faults
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
	chromiumtest.LogIn(b.t, b.ctx, b.HTTP, b.admin(b.t).token)
}

// newBrowser opens a tab in the shared Chromium.
func (p *process) newBrowser(t testing.TB, size screen) *tab {
	t.Helper()
	return p.useTab(t, chromium.OpenTab(t), size)
}

// useTab sets the size of an open tab and records its errors.
func (p *process) useTab(t testing.TB, ctx context.Context, size screen) *tab {
	t.Helper()
	b := &tab{process: p, t: t, ctx: ctx, size: size, faults: chromiumtest.RecordFaults(t, ctx)}
	b.do(chromedp.EmulateViewport(size.width, size.height))
	t.Cleanup(func() {
		if t.Failed() {
			b.screenshot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
	})
	return b
}

func (b *tab) checkNoFaults() { b.t.Helper(); b.faults.Check(b.t, b.ctx) }

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

func (b *tab) click(selector string) { b.t.Helper(); chromiumtest.Click(b.t, b.ctx, selector) }

// fill enters a text into a field, and presses Enter at each "\r".
func (b *tab) fill(selector, text string) {
	b.t.Helper()
	chromiumtest.Fill(b.t, b.ctx, selector, text)
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

// screenshot saves what the page looks like, with -screenshots or if the test has failed.
func (b *tab) screenshot(name string) {
	b.t.Helper()
	chromiumtest.Screenshot(b.t, b.ctx, name+"-"+b.size.name)
}

// setupLink is the link that a system without an administrator prints.
var setupLink = regexp.MustCompile(`http://\S+/setup#\S+`)

// firstSteps leads from the setup link to an approved command.
func firstSteps(t *testing.T, p *process) {
	is := is.New(t)
	is.Equal(setupLink.FindString(sharedSystem(t).output.String()), "") // it has an administrator
	var link string
	expect.Eventually(t, "the link is shown", func() bool {
		link = setupLink.FindString(p.output.String())
		return link != ""
	})
	b := p.newBrowser(t, phoneScreen)
	b.visit(strings.TrimPrefix(link, p.HTTP))
	b.awaitCondition("that the page has the code", `document.querySelector("#code").value !== "" && location.hash === ""`)
	b.screenshot("setup")
	b.checkNoFaults()
	b.fill("#email", adminEmail)
	b.fill("#password", adminPassword)
	b.fill("#password_again", adminPassword)
	b.click("main button")
	b.awaitCondition("the list of chats", `document.querySelector(".welcome button") !== null`)
	b.screenshot("welcome")
	b.checkNoFaults()
	b.click(".welcome button")
	b.awaitCondition("a request", `document.querySelector(".card.draft .decide") !== null`)
	b.awaitText("echo Hello from PocketCoder > hello-from-pocketcoder.txt")
	b.screenshot("first-request")
	b.click(".card.draft .decide button[value=authorized]")
	b.awaitText("approved by " + adminEmail)
	expect.Eventually(t, "the command ran", func() bool {
		written, err := os.ReadFile(filepath.Join(p.workspace, "hello-from-pocketcoder.txt"))
		return err == nil && string(written) == "Hello from PocketCoder\n"
	})
	b.awaitCondition("the next request", `document.querySelector(".card.draft .decide") !== null`)
	// as from a notification
	b.visit("/requests/" + evaluate[string](b, `document.querySelector(".card.draft").id.slice("r-".length)`))
	b.screenshot("request-page")
	b.click(".card.draft .decide button[value=authorized]")
	b.awaitCondition("who decided", fmt.Sprintf(`document.querySelector(".card .outcome").textContent === %q`, "approved by "+adminEmail))
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

func TestChatsInARepository(t *testing.T) {
	t.Parallel()
	p := prepareInside(t, t.TempDir())
	expect.MakeRepository(t, p.workspace)
	p.env = []string{"POCKETCODER_ADMIN_EMAIL=", "POCKETCODER_ADMIN_PASSWORD="}
	p.runForTest()
	runStages(t, p, stage{"first steps from the setup link to an approved command", firstSteps},
		stage{"a chat is forked and reverted", long("starts OpenCode again", chatIsForkedAndReverted)})
}
