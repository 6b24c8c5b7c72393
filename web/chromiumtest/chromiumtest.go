// Package chromiumtest opens tabs in Chromium for tests, loads pages in them, clicks and types, and reads what they
// hold.
//
// Promises: a tab has the focus, as if its window were in front.
//
// It must not know what a test does in a tab.
package chromiumtest

import (
	"context"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"

	"pocketcoder/ops/expect"
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

// LogIn stores the cookie of a login in a tab.
func LogIn(t testing.TB, ctx context.Context, url, token string) {
	t.Helper()
	err := chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, network.SetCookie,
			network.SetCookieParams{Name: "pocketcoder", Value: token, URL: url})
		return err
	}))
	if err != nil {
		t.Fatal(err)
	}
}
