package pages_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

// openOver opens a tab that reaches a system at an address, and in which ada is logged in. The service worker stores
// only pages that are loaded after it has become active.
func openOver(t *testing.T, s *webtest.System, url string) *device {
	t.Helper()
	d := newDevice(t, url)
	chromiumtest.LogIn(t, d.ctx, d.url, s.Login(t, "ada"))
	d.visit("/")
	d.sees("the service worker", `navigator.serviceWorker.controller !== null`)
	return d
}

// awaitStored waits until the service worker has stored a page, and none of another account.
func (d *device) awaitStored(path string) {
	d.t.Helper()
	d.sees("that it has stored "+path, fmt.Sprintf(`caches.keys().then(async (names) => {
		const pages = names.filter((name) => name.startsWith("pages-"));
		return pages.length === 1 && (await (await caches.open(pages[0])).match(%q)) !== undefined;
	})`, path))
}

// openStored opens the page of a chat, and waits until it is stored.
func (d *device) openStored(chat string) {
	d.t.Helper()
	d.visit("/chats/" + chat)
	d.awaitStored("/chats/" + chat)
}

func TestDecisionsAreMadeOffline(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	n := newNetwork(t, newBrowser(t, s).url)
	chat, late := s.Chat(t, token, "In a tunnel"), s.Chat(t, token, "Too late")
	request, lateRequest := needed(t, s, chat, "per_1", "touch tunnel.txt"), needed(t, s, late, "per_2", "touch late.txt")
	stored := func(request string) map[string]any {
		_, record := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+"/"+request, nil)
		return record
	}
	const decidable = `document.querySelector(".card.draft .decide").checkVisibility()`
	d := openOver(t, s, n.URL)
	d.openStored(late)
	d.openStored(chat)
	d.checkNoFaults()

	n.set(true)
	d.load(chromedp.Reload())
	is.Equal(d.evaluate(decidable), "true") // the stored chat
	d.sees("when it is from", `!document.querySelector("#offline").hidden && document.querySelector("#stored-at time").textContent !== ""`)
	d.screenshot("offline-chat")
	d.visit("/account") // which no browser stores
	link := fmt.Sprintf(`#stored-pages a[href="/chats/%s"]`, chat)
	d.sees("the stored pages", fmt.Sprintf(`document.querySelector('%s .title')?.textContent === "In a tunnel"`, link))
	d.screenshot("offline-page")
	d.click(link)
	d.sees("the request", `location.pathname.startsWith("/chats/") && `+decidable)
	d.click(".card.draft .decide [value=authorized]")
	d.sees("that the decision waits", `document.querySelector(".card > .unsent-decision.waiting b")?.textContent === "Approve"`)
	is.Equal(d.evaluate(decidable), "false") // not again
	d.screenshot("offline-approved")

	// a decision is taken back, and made again
	d.visit("/chats/" + late)
	d.click(".card.draft .decide [value=authorized]")
	d.sees("that the decision waits", `document.querySelector(".card > .unsent-decision.waiting") !== null`)
	d.click(".card > .unsent-decision button")
	d.sees("that it is taken back", `document.querySelector(".card > .unsent-decision") === null && `+decidable)
	d.click(".card.draft .decide [value=authorized]")
	d.sees("that the decision waits", `document.querySelector(".card > .unsent-decision.waiting") !== null`)
	d.visit("/") // a page without the cards
	d.sees("that both wait", `document.querySelectorAll("main > .unsent-decision.waiting a").length === 2`)
	d.screenshot("offline-list")
	d.visit("/chats/" + chat)
	is.Equal(stored(request)["status"], "draft")

	// meanwhile, another device denies one
	status, _ := s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+lateRequest,
		webtest.Object{"status": "denied"})
	is.Equal(status, http.StatusOK)
	n.set(false)
	d.sees("the decision", `document.querySelector(".card.authorized") !== null`)
	d.sees("that only the refused one is left", `document.querySelector(".unsent-decision:not(.refused)") === null && document.querySelector("#offline").hidden`)
	d.screenshot("offline-sent")
	is.Equal([]any{stored(request)["status"], stored(request)["approved_by"]}, []any{"authorized", ada})
	is.Equal(stored(lateRequest)["status"], "denied")
	d.visit("/chats/" + late)
	d.sees("the refusal", `document.querySelector(".card.denied > .unsent-decision.refused")?.textContent.includes("The permission is denied already.")`)
	d.screenshot("offline-refused")
	// of another account, which logged in here before
	d.sees("pages of another account", `caches.open("pages-other").then(() => true)`)
	d.visit("/requests")
	d.sees("the refusal where there is no card", `document.querySelector("main > .unsent-decision.refused a") !== null`)
	d.screenshot("offline-refused-elsewhere")
	d.click(".unsent-decision button")
	d.sees("that it is dismissed", `document.querySelector(".unsent-decision") === null`)
	d.checkNoFaults()

	d.awaitStored("/requests")
	d.click(".bar .account button") // log out
	d.sees("the login", `document.querySelector("#password") !== null`)
	d.sees("that no page is stored", `caches.keys().then((names) => names.every((name) => !name.startsWith("pages-")))`)
	n.set(true)
	d.visit("/chats/" + chat)
	d.sees("that nothing is stored", `document.querySelector("#nothing-stored")?.checkVisibility() && document.querySelector("#stored-pages").childElementCount === 0`)
	d.screenshot("offline-nothing")
}

// The decision left the browser and is on its way when a person takes it back.
func TestADecisionThatIsTakenBackIsNotCarriedOutOrShown(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	system := newDelaying(t, s.Web.Handler())
	chat, late := s.Chat(t, token, "Taken back"), s.Chat(t, token, "Taken back too late")
	request := needed(t, s, chat, "per_1", "touch takenback.txt")
	needed(t, s, late, "per_2", "touch toolate.txt")
	d := openOver(t, s, system.URL)
	takeBack := func() {
		t.Helper()
		d.click(".card.draft .decide [value=authorized]")
		d.sees("that the decision waits", `document.querySelector(".card > .unsent-decision.waiting") !== null`)
		d.click(".unsent-decision button")
		d.sees("that it was perhaps sent", `document.querySelector(".card > .unsent-decision.taken-back b")?.textContent === "Approve"`)
	}
	d.openStored(chat)
	release := hold(&system.before)
	defer release()
	takeBack()
	d.sees("that it can be decided", `document.querySelector(".card.draft .decide").checkVisibility()`)
	d.screenshot("offline-taken-back")
	release()
	is.Equal(<-system.statuses, http.StatusPreconditionFailed)
	d.sees("that it was not carried out", `document.querySelector(".unsent-decision") === null`)
	_, record := s.Call(t, token, "GET", webtest.RecordsPath("permissions")+"/"+request, nil)
	is.Equal(record["status"], "draft")
	d.click(".card.draft .decide [value=denied]")
	d.sees("the decision", `document.querySelector(".card.denied") !== null`)

	// too late
	d.openStored(late)
	release = hold(&system.after)
	defer release()
	takeBack()
	is.Equal(<-system.statuses, http.StatusNoContent)
	d.sees("that it was carried out",
		`document.querySelector(".card.authorized") !== null && document.querySelector(".unsent-decision") === null`)
	d.checkNoFaults()
}
