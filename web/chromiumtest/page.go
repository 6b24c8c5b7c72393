package chromiumtest

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"pocketcoder/ops/expect"
)

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

// Click clicks on an element as a person does, once the element no longer moves and nothing covers its middle. The page
// clicks, because an event of the stream can move the element between two commands of a test.
func Click(t testing.TB, ctx context.Context, selector string) {
	t.Helper()
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
	expect.Eventually(t, "a place to click on "+selector, func() bool {
		done, err := chromedp.Run(ctx, chromedp.Evaluate[bool](clicked, asPerson))
		return err == nil && done
	})
	// The click has happened before this timer fires; it may have left the page.
	_, _ = chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise((done) => setTimeout(done, 0, true))`,
		chromedp.EvalAwaitPromise))
}

// Fill enters a text into a field, and presses Enter at each "\r". The text arrives as if it was pasted, because every
// key takes Chromium 4 ms of processor time.
func Fill(t testing.TB, ctx context.Context, selector, text string) {
	t.Helper()
	lines := strings.Split(text, "\r")
	for i, line := range lines {
		retry(t, ctx, chromedp.Focus(chromedp.CSS(selector)))
		err := chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, input.InsertText, input.InsertTextParams{Text: line})
			return err
		}))
		if err == nil && i < len(lines)-1 {
			err = chromedp.Do(ctx, chromedp.KeyEvent("\r"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// retry takes a step on an element, once more if the page replaced the element meanwhile.
func retry(t testing.TB, ctx context.Context, step chromedp.Action[chromedp.Void]) {
	t.Helper()
	var err error
	for range 20 {
		if err = chromedp.Do(ctx, step); err == nil || !strings.Contains(err.Error(), "-32000") {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// liveParts is the HTML of the parts that the stream of a chat keeps up to date. The number of requests is about
// other chats too, the line before what is new is of the moment of the load, and the page itself counts for how long
// nothing was new.
const liveParts = `((page) => ["#head", "#menu", "#foot", "#entries"].map((s) => {
	const part = page.querySelector(s).cloneNode(true);
	part.querySelectorAll("#new-line").forEach((e) => e.remove());
	part.querySelectorAll("[data-silence]").forEach((e) => e.removeAttribute("data-silence"));
	part.querySelectorAll("time").forEach((e) => e.replaceChildren(e.dateTime));
	return part.outerHTML.replace(/\s+/g, " ").replace(/> </g, "><");
}).join("\n"))`

// AwaitFreshPage waits until the page of a chat is the page that a load gives. If it does not become that, the test's
// log says where they differ.
func AwaitFreshPage(t testing.TB, ctx context.Context) {
	t.Helper()
	var differ string
	t.Cleanup(func() {
		if differ != "" {
			t.Log(differ)
		}
	})
	expect.Eventually(t, "the page as a fresh load gives it", func() bool {
		found, err := chromedp.Run(ctx, chromedp.Evaluate[string](`(() => {
			const request = new XMLHttpRequest();
			request.open("GET", location.href, false);
			request.send();
			const page = new DOMParser().parseFromString(parser.createHTML(request.responseText), "text/html");
			const [live, fresh] = [document, page].map(`+liveParts+`);
			const at = [...live].findIndex((letter, i) => letter !== fresh[i]);
			return live === fresh ? "" : "live:  " + live.substring(at - 200, at + 200) +
				"\nfresh: " + fresh.substring(at - 200, at + 200);
		})()`))
		if err == nil {
			differ = found
		}
		return err == nil && found == ""
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

// folder is the ignored folder, in that of a test's package, in which Screenshot saves.
const folder = "screenshots"

var saveScreenshots = flag.Bool("screenshots", false, "save what pages look like in the folder "+folder)

// Screenshot saves what a page looks like, with the flag -screenshots or if the test has failed.
func Screenshot(t testing.TB, ctx context.Context, name string) {
	t.Helper()
	if !*saveScreenshots && !t.Failed() {
		return
	}
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	expect.WriteFile(t, filepath.Join(folder, name+".png"), string(png))
}
