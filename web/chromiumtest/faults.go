package chromiumtest

import (
	"context"
	"strings"
	"sync"
	"testing"

	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Faults records what must not happen on any page of a tab: a script that failed or was refused, and a dialog.
type Faults struct {
	mu  sync.Mutex
	all []string
}

// RecordFaults begins to record the faults of a tab.
func RecordFaults(t testing.TB, ctx context.Context) *Faults {
	t.Helper()
	f := &Faults{}
	if err := chromedp.Listen(ctx, f.handleEvent); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *Faults) handleEvent(event any) {
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
	f.mu.Lock()
	defer f.mu.Unlock()
	if fault != "" {
		f.all = append(f.all, fault)
	}
}

// Check fails the test if there was a fault, if the page is wider than the window, or if an animation never ends,
// because it keeps a phone's processor busy.
func (f *Faults) Check(t testing.TB, ctx context.Context) {
	t.Helper()
	Await(t, ctx, "the page", `document.readyState === "complete"`)
	const tooWide = `(document.documentElement.scrollWidth > innerWidth ? document.documentElement.scrollWidth : "")`
	if width := Evaluate(t, ctx, tooWide); width != "" {
		t.Errorf("the page is %s wide, which is more than its window", width)
	}
	const endless = "document.getAnimations().some((a) => a.effect.getComputedTiming().endTime === Infinity)"
	if Evaluate(t, ctx, endless) == "true" {
		t.Error("an animation never ends")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) > 0 {
		t.Errorf("faults: %q", f.all)
	}
}
