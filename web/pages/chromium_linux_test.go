package pages_test

import (
	"context"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"pocketcoder/expect"
	"pocketcoder/web/webtest"
)

// chromium is the Chromium of all tests. The first of them starts it.
var chromium = struct {
	once sync.Once
	ctx  context.Context
	end  func()
	err  error
}{end: func() {}}

func TestMain(m *testing.M) {
	code := m.Run()
	chromium.end()
	os.Exit(code)
}

// openTab opens a tab in the Chromium of all tests, with cookies and service workers of its own.
func openTab(t testing.TB) context.Context {
	t.Helper()
	path := expect.Program(t, "chromium") // may end the test, and must not do so within the once
	chromium.once.Do(func() {
		ctx, end := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
			chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))...)
		ctx, closeTab := chromedp.NewContext(ctx)
		chromium.ctx, chromium.end, chromium.err = ctx, func() { closeTab(); end() }, chromedp.Do(ctx)
	})
	webtest.Check(t, chromium.err)
	ctx, cancel := context.WithTimeout(chromium.ctx, 5*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	// each page has the focus, as if its window were in front
	webtest.Check(t, chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetFocusEmulationEnabled,
			emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	})))
	return ctx
}
