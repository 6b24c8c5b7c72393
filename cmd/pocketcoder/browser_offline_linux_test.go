package main

import (
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
)

// line is the network between a browser and a system.
type line struct {
	URL string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// newLine starts a line to a system. It ends with the test.
func (p *process) newLine(t testing.TB) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	system, err := url.Parse(p.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	l := &line{URL: "http://" + listener.Addr().String(), conns: map[net.Conn]bool{}}
	t.Cleanup(func() { listener.Close(); l.set(true) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go l.carry(conn, system.Host)
		}
	}()
	return l
}

// carry connects a browser with the system, unless the line is cut.
func (l *line) carry(browser net.Conn, address string) {
	defer browser.Close()
	system, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer system.Close()
	l.mu.Lock()
	l.conns[browser] = true
	cut := l.cut
	l.mu.Unlock()
	if cut {
		return
	}
	go func() {
		defer browser.Close()
		_, _ = io.Copy(browser, system) // either side may end it
	}()
	_, _ = io.Copy(system, browser)
}

// set cuts the line, or mends it.
func (l *line) set(cut bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = cut
	for conn := range l.conns {
		conn.Close()
	}
	clear(l.conns)
}

// awaited returns the value that a JavaScript promise becomes.
func awaited[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// openOver starts a browser that reaches the system over a line, logs the administrator in, and waits for the service worker.
func (p *process) openOver(t testing.TB, l *line, size screen) *tab {
	t.Helper()
	b := p.newBrowser(t, size)
	b.over(l, "/")
	b.fill("#email", adminEmail)
	b.fill("#password", adminPassword)
	b.click("main button")
	b.sees("the list of chats", `document.querySelector("#chats") !== null`)
	b.sees("the service worker", `navigator.serviceWorker.controller !== null`)
	b.stores("/")
	return b
}

func (b *tab) over(l *line, path string) { b.t.Helper(); b.do(chromedp.Navigate(l.URL + path)) }

// stores waits until the service worker has stored a page, and none of another account.
func (b *tab) stores(path string) {
	b.t.Helper()
	expect.Eventually(b.t, "the browser stores "+path, func() bool {
		return awaited[bool](b, fmt.Sprintf(`caches.keys().then(async (names) => {
			const pages = names.filter((name) => name.startsWith("pages-"));
			return pages.length === 1 && (await (await caches.open(pages[0])).match(%q)) !== undefined;
		})`, path))
	})
}

func TestWhatWasDecidedWithoutAConnectionIsSentLater(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin, l := p.admin(t), p.newLine(t)
	chat := admin.create(t, "chats", record{"title": "In a tunnel"})
	admin.say(t, chat, "Write where the train is.\n"+bash("touch tunnel.txt"))
	ask := admin.asked(t, chat)
	b := p.openOver(t, l, phoneScreen)
	b.over(l, "/chats/"+chat)
	b.sees("a request", `document.querySelector(".card.draft .decide") !== null`)
	b.stores("/chats/" + chat)
	b.fine()

	l.set(true)
	b.do(chromedp.Reload())
	b.sees("the stored chat", `document.querySelector(".card.draft .decide") !== null`)
	b.sees("when it is from", `!document.querySelector("#offline").hidden && document.querySelector("#stored-at time").textContent !== ""`)
	b.shot("offline-chat")
	b.over(l, "/account") // which no browser stores
	b.sees("the stored pages", fmt.Sprintf(`document.querySelector('#stored a[href="/chats/%s"] .title')?.textContent === "In a tunnel"`, chat))
	b.shot("offline-page")
	b.click(fmt.Sprintf(`#stored a[href="/chats/%s"]`, chat))
	b.sees("the request", `document.querySelector(".card.draft .decide") !== null`)
	b.click(".card.draft .decide [value=authorized]")
	b.sees("that the decision waits", `document.querySelector(".card > .decision.waiting b")?.textContent === "Approve"`)
	b.sees("that it cannot be decided again", `document.querySelector(".card.draft .decide").checkVisibility() === false`)
	b.shot("offline-approved")
	b.over(l, "/") // a page without the card
	b.sees("that the decision waits", `document.querySelector("main > .decision.waiting a") !== null`)
	b.shot("offline-list")
	b.over(l, "/chats/"+chat)
	is.Equal(admin.list(t, "permissions", `id = "`+ask["id"].(string)+`"`)[0]["status"], "draft")

	l.set(false)
	b.sees("the decision", `document.querySelector(".card.authorized") !== null`)
	b.sees("that nothing waits", `document.querySelector(".decision") === null && document.querySelector("#offline").hidden`)
	b.shot("offline-sent")
	decided := admin.list(t, "permissions", `id = "`+ask["id"].(string)+`"`)[0]
	is.Equal([]any{decided["status"], decided["approved_by"]}, []any{"authorized", admin.id})
}

func TestADecisionThatComesTooLateIsRefusedVisibly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin, l := p.admin(t), p.newLine(t)
	chat := admin.create(t, "chats", record{"title": "Too late"})
	admin.say(t, chat, bash("touch late.txt"))
	ask := admin.asked(t, chat)
	b := p.openOver(t, l, desktopScreen)
	b.over(l, "/chats/"+chat)
	b.sees("a request", `document.querySelector(".card.draft .decide") !== null`)
	b.stores("/chats/" + chat)
	l.set(true)
	b.click(".card.draft .decide [value=authorized]")
	b.sees("that the decision waits", `document.querySelector(".card > .decision.waiting") !== null`)
	b.click(".decision button")
	b.sees("that it is taken back", `document.querySelector(".decision") === null && document.querySelector(".card.draft .decide").checkVisibility()`)
	b.click(".card.draft .decide [value=authorized]")
	b.sees("that the decision waits", `document.querySelector(".card > .decision.waiting") !== null`)

	admin.must(t, "PATCH", recordPath("permissions", ask["id"].(string)), record{"status": "denied"}, nil)
	l.set(false)
	b.sees("who decided", `document.querySelector(".card.denied .outcome") !== null`)
	b.sees("the refusal", `document.querySelector(".card.denied > .decision.refused")?.textContent.includes("The permission is denied already.") ?? false`)
	b.shot("offline-refused")
	is.True(awaited[bool](b, `caches.open("pages-other").then(() => true)`)) // of another account, which logged in here before
	b.over(l, "/requests")
	b.sees("the refusal where there is no card", `document.querySelector("main > .decision.refused a") !== null`)
	b.shot("offline-refused-elsewhere")
	b.click(".decision button")
	b.sees("that it is dismissed", `document.querySelector(".decision") === null`)
	b.fine()

	b.stores("/requests")
	b.click(".bar .account button") // log out
	b.sees("the login", `document.querySelector("#password") !== null`)
	is.Equal(awaited[[]string](b, `caches.keys().then((names) => names.filter((name) => name.startsWith("pages-")))`), []string{})
	l.set(true)
	b.over(l, "/chats/"+chat)
	b.sees("that nothing is stored", `document.querySelector("#nothing-stored")?.checkVisibility() && document.querySelector("#stored").childElementCount === 0`)
	b.shot("offline-nothing")
}
