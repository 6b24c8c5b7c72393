package pages_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// readOnly is the HTML of the conversation without what changes something. The script shows times in the zone of the
// browser.
const readOnly = `(() => {
	const entries = document.querySelector("#entries").cloneNode(true);
	entries.querySelectorAll("form, .menu, .more, .decide, .answer, .choices, .new-line").forEach((e) => e.remove());
	entries.querySelectorAll("time").forEach((e) => e.replaceChildren(e.dateTime));
	return entries.outerHTML.replace(/\s+/g, " ").replace(/> </g, "><");
})()`

func TestAChatIsReplayedInABrowser(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	r := newReplayed(t)
	d := openPage(t, r.System, "/chats/"+r.chat)
	live := d.evaluate(readOnly)
	d.click("#menu summary")
	d.click(`#menu a[href$="/replay"]`)
	d.sees("the replay", `document.querySelector("#play")?.hidden === false && document.readyState === "complete"`)
	is.Equal(d.evaluate(readOnly), live) // the last moment is the chat
	d.screenshot("replay-end")

	d.click("#earlier")
	d.sees("the event before", `current === Number(scrubber.max) - 1`)
	d.do(chromedp.KeyEvent(kb.Home))
	d.sees("the first event", `current === 1 && document.querySelectorAll("#entries > *").length === 0`)
	const atDecision = `document.querySelector("#event").matches(".decision")`
	for d.evaluate(atDecision) != "true" { // from mark to mark
		before := d.evaluate("current")
		d.do(chromedp.KeyEvent(kb.ArrowRight, chromedp.KeyModifiers(chromedp.ModifierShift)))
		d.sees("a later mark", "current > "+before)
	}
	d.sees("who decided", `[...document.querySelectorAll("#event dd")].some((e) => e.textContent.trim() === "ada@example.org")`)
	d.screenshot("replay-decision")
	d.checkNoFaults()
	d.sees("its address", `location.search === "?seq=" + document.querySelector("#event small").textContent.slice(1)`)
	decided := d.evaluate(`document.querySelector("#entries").outerHTML`)
	d.load(chromedp.Reload())
	// the page that was moved is the page that a load gives
	is.Equal(d.evaluate(`document.querySelector("#entries").outerHTML`), decided)

	// a browser may refuse to change the address often
	is.Equal(d.evaluate(`(() => {
		let changes = 0;
		const moment = { html: "", number: current, sequence: document.querySelector("#event small").textContent.slice(1) };
		history.replaceState = () => { changes++; };
		for (let i = 0; i < 200; i++) showMoment(moment);
		delete history.replaceState;
		return changes;
	})()`), "0")
	d.evaluate(`document.querySelector("#speed").value = "64"`)
	d.click("#play")
	d.sees("the end", `current === Number(scrubber.max) && !playing`)
	is.Equal(d.evaluate(readOnly), live) // playing leads to the same
	d.checkNoFaults()

	// the HTML export is opened from a file, as a person who got it does
	path := filepath.Join(t.TempDir(), "chat.html")
	expect.WriteFile(t, path, r.browser.visit(t, fmt.Sprintf("/chats/%s/export/html", r.chat)).body)
	d.load(chromedp.Navigate("file://" + path))
	is.Equal(d.evaluate(readOnly), live)
	is.Equal(d.evaluate(`performance.getEntriesByType("resource").length`), "0") // it loads nothing
	d.screenshot("replay-export")
	d.checkNoFaults()
}
