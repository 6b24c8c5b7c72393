// Package chromiumtest opens tabs in Chromium for tests, loads pages in them and reads what they hold.
//
// Promises: a tab has the focus, as if its window were in front.
//
// It must not know what a test does in a tab.
package chromiumtest

import (
	"context"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"pocketcoder/expect"
)

// Browser is a Chromium that several tests share. The first of them starts it. Its zero value is ready. It is the
// headless shell if that is installed: the same engine without the browser around it takes a third of the processor
// time.
type Browser struct {
	once sync.Once
	ctx  context.Context
	end  func()
	err  error
}

// tabTime is how long a tab stays open: longer than any test on a busy machine. The context of a test ends before its
// last screenshot.
const tabTime = 15 * time.Minute

// OpenTab opens a tab with cookies, storage and service workers of its own. It is closed when the test ends.
func (b *Browser) OpenTab(t testing.TB) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium-headless-shell")
	if err != nil {
		path = expect.Program(t, "chromium") // outside the Once, because it may end the test
	}
	b.once.Do(func() {
		b.ctx, b.end = start(context.Background(), path)
		b.err = chromedp.Do(b.ctx)
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, tabTime)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	focus(t, ctx)
	return ctx
}

// Close ends the Chromium, if a test has started it.
func (b *Browser) Close() {
	if b.end != nil {
		b.end()
	}
}

// OpenOwn starts a separate Chromium, never the headless shell, and opens a tab. Push messages and notifications do not
// work in a browser context of OpenTab.
func OpenOwn(t testing.TB) context.Context {
	t.Helper()
	path := expect.Program(t, "chromium")
	ctx, cancel := context.WithTimeout(context.Background(), tabTime)
	t.Cleanup(cancel)
	ctx, cancel = start(ctx, path)
	t.Cleanup(cancel)
	focus(t, ctx)
	return ctx
}

// unused are the features of Chromium that cost processor time for each tab and that no test sees.
const unused = "Translate,WebUIOmniboxPopup,WebUIOmniboxAimPopup,PreloadTopChromeWebUI"

// start returns the context of a Chromium, which starts with the first action.
func start(ctx context.Context, path string) (context.Context, context.CancelFunc) {
	ctx, end := chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("disable-features", unused))...)
	ctx, closeTab := chromedp.NewContext(ctx)
	return ctx, func() { closeTab(); end() }
}

// Load runs step, which loads a document in a tab, and waits until the document is complete. It repeats step if the
// current page navigates at the same time, for example after a form was sent. It does not rely on chromedp's own wait,
// which ends too early if the old page calls history.replaceState.
func Load(t testing.TB, ctx context.Context, step chromedp.Action[chromedp.Void]) {
	t.Helper()
	Await(t, ctx, "a page to leave", `(window.isOld = true)`)
	err := chromedp.Do(ctx, step)
	for range 20 {
		if err == nil || !strings.Contains(err.Error(), "net::ERR_ABORTED") {
			break
		}
		err = chromedp.Do(ctx, step)
	}
	if err != nil {
		t.Fatal(err)
	}
	Await(t, ctx, "a new document", `window.isOld === undefined && document.readyState === "complete"`)
}

// Await waits until a JavaScript condition, or the promise of one, holds. A condition that fails does not hold yet: its
// elements may be missing, and the page may be replaced while it is evaluated.
func Await(t testing.TB, ctx context.Context, what, condition string) {
	t.Helper()
	expect.Eventually(t, what, func() bool {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](condition, chromedp.EvalAwaitPromise))
		return err == nil && ok
	})
}

// Evaluate returns the value of a JavaScript expression as a text. It fails if the page is replaced meanwhile: after a
// step that leaves the page, call Await first.
func Evaluate(t testing.TB, ctx context.Context, expression string) string {
	t.Helper()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[string]("String("+expression+")"))
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return value
}

func focus(t testing.TB, ctx context.Context) {
	t.Helper()
	err := chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetFocusEmulationEnabled,
			emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
}
