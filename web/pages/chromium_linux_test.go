package pages_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"pocketcoder/ops/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

// chromium is the Chromium of all tests.
var chromium chromiumtest.Browser

func TestMain(m *testing.M) {
	code := expect.Run(m)
	chromium.Close()
	os.Exit(code)
}

// device is a tab in Chromium. Its window has the size of a phone's.
type device struct {
	t      testing.TB
	ctx    context.Context
	url    string // of the system
	faults *chromiumtest.Faults
}

// newDevice opens a tab for the pages of a system. It shows no page yet.
func newDevice(t testing.TB, url string) *device {
	t.Helper()
	d := &device{t: t, ctx: chromium.OpenTab(t), url: url}
	d.resize(360, 640)
	d.faults = chromiumtest.RecordFaults(t, d.ctx)
	t.Cleanup(func() {
		if t.Failed() {
			d.screenshot("failed-" + strings.ReplaceAll(t.Name(), "/", "-"))
		}
	})
	return d
}

// openPage opens a page in a tab in which ada is logged in.
func openPage(t testing.TB, s *webtest.System, path string) *device {
	t.Helper()
	d := newDevice(t, newBrowser(t, s).url)
	chromiumtest.LogIn(t, d.ctx, d.url, s.Login(t, "ada"))
	d.visit(path)
	return d
}

func (d *device) do(steps ...chromedp.Action[chromedp.Void]) {
	d.t.Helper()
	webtest.Check(d.t, chromedp.Do(d.ctx, steps...))
}

func (d *device) resize(width, height int64) {
	d.t.Helper()
	d.do(chromedp.EmulateViewport(width, height))
}

func (d *device) visit(path string) { d.t.Helper(); d.load(chromedp.Navigate(d.url + path)) }

func (d *device) load(step chromedp.Action[chromedp.Void]) {
	d.t.Helper()
	chromiumtest.Load(d.t, d.ctx, step)
}

func (d *device) click(selector string) { d.t.Helper(); chromiumtest.Click(d.t, d.ctx, selector) }

func (d *device) fill(selector, text string) {
	d.t.Helper()
	chromiumtest.Fill(d.t, d.ctx, selector, text)
}

// set gives a field a value, in one step: an update of the page cannot replace the field meanwhile.
func (d *device) set(selector, value string) {
	d.t.Helper()
	d.evaluate(fmt.Sprintf("document.querySelector(%q).value = %q", selector, value))
}

func (d *device) sees(what, condition string) {
	d.t.Helper()
	chromiumtest.Await(d.t, d.ctx, what, condition)
}

// reads waits until the log of a chat has a text.
func (d *device) reads(text string) {
	d.t.Helper()
	d.sees("the chat has "+text, fmt.Sprintf(`document.querySelector("#log").textContent.includes(%q)`, text))
}

// evaluate returns the value of a JavaScript expression as a text.
func (d *device) evaluate(expression string) string {
	d.t.Helper()
	return chromiumtest.Evaluate(d.t, d.ctx, expression)
}

// hide hides the page, as a phone in a pocket does, or shows it again.
func (d *device) hide(hidden bool) {
	d.t.Helper()
	d.sees("that it is hidden or shown", fmt.Sprintf(`(Object.defineProperty(document, "hidden", {value: %t, `+
		`configurable: true}), document.dispatchEvent(new Event("visibilitychange")))`, hidden))
}

func (d *device) checkNoFaults() { d.t.Helper(); d.faults.Check(d.t, d.ctx) }

func (d *device) screenshot(name string) { d.t.Helper(); chromiumtest.Screenshot(d.t, d.ctx, name) }
