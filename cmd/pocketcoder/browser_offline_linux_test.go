package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/chromiumtest"
)

// line is the network between a browser and a system.
type line struct {
	URL string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

// newNetwork starts a line to a system. It ends with the test.
func (p *process) newNetwork(t testing.TB) *line {
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

// openOver starts a browser that reaches the system over a line, waits for the service worker, and logs the
// administrator in. The service worker stores only pages that are loaded after it has become active.
func (p *process) openOver(t testing.TB, l *line, size screen) *tab {
	t.Helper()
	b := p.newBrowser(t, size)
	b.over(l, "/")
	b.awaitCondition("the service worker", `navigator.serviceWorker.controller !== null`)
	b.fill("#email", adminEmail)
	b.fill("#password", adminPassword)
	b.click("main button")
	b.awaitCondition("the list of chats", `document.querySelector("#chats") !== null`)
	b.awaitStored("/")
	return b
}

func (b *tab) over(l *line, path string) { b.t.Helper(); b.load(chromedp.Navigate(l.URL + path)) }

// awaitStored waits until the service worker has stored a page, and none of another account.
func (b *tab) awaitStored(path string) {
	b.t.Helper()
	expect.Eventually(b.t, "the browser stores "+path, func() bool {
		return awaited[bool](b, fmt.Sprintf(`caches.keys().then(async (names) => {
			const pages = names.filter((name) => name.startsWith("pages-"));
			return pages.length === 1 && (await (await caches.open(pages[0])).match(%q)) !== undefined;
		})`, path))
	})
}

func TestOfflineDecisionIsSentLater(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin, l := p.admin(t), p.newNetwork(t)
	chat := admin.create(t, "chats", record{"title": "In a tunnel"})
	admin.say(t, chat, "Write where the train is.\n"+bash("touch tunnel.txt"))
	request := admin.awaitRequest(t, chat)
	b := p.openOver(t, l, phoneScreen)
	b.over(l, "/chats/"+chat)
	b.awaitCondition("a request", `document.querySelector(".card.draft .decide") !== null`)
	b.awaitStored("/chats/" + chat)
	b.checkNoFaults()

	l.set(true)
	b.load(chromedp.Reload())
	b.awaitCondition("the stored chat", `document.querySelector(".card.draft .decide") !== null`)
	b.awaitCondition("when it is from", `!document.querySelector("#offline").hidden && document.querySelector("#stored-at time").textContent !== ""`)
	b.screenshot("offline-chat")
	b.over(l, "/account") // which no browser stores
	b.awaitCondition("the stored pages", fmt.Sprintf(`document.querySelector('#stored-pages a[href="/chats/%s"] .title')?.textContent === "In a tunnel"`, chat))
	b.screenshot("offline-page")
	b.click(fmt.Sprintf(`#stored-pages a[href="/chats/%s"]`, chat))
	b.awaitCondition("the request", `document.querySelector(".card.draft .decide") !== null && document.readyState === "complete"`)
	// chromedp can still have the elements of the page before
	is.True(evaluate[bool](b, `(document.querySelector(".card.draft .decide [value=authorized]").click(), true)`))
	b.awaitCondition("that the decision waits", `document.querySelector(".card > .unsent-decision.waiting b")?.textContent === "Approve"`)
	b.awaitCondition("that it cannot be decided again",
		`document.querySelector(".card.draft .decide").checkVisibility() === false`)
	b.screenshot("offline-approved")
	b.over(l, "/") // a page without the card
	b.awaitCondition("that the decision waits", `document.querySelector("main > .unsent-decision.waiting a") !== null`)
	b.screenshot("offline-list")
	b.over(l, "/chats/"+chat)
	is.Equal(admin.list(t, "permissions", `id = "`+request["id"].(string)+`"`)[0]["status"], "draft")

	l.set(false)
	b.awaitCondition("the decision", `document.querySelector(".card.authorized") !== null`)
	b.awaitCondition("that nothing waits", `document.querySelector(".unsent-decision") === null && document.querySelector("#offline").hidden`)
	b.screenshot("offline-sent")
	decided := admin.list(t, "permissions", `id = "`+request["id"].(string)+`"`)[0]
	is.Equal([]any{decided["status"], decided["approved_by"]}, []any{"authorized", admin.id})
}

func TestLateOfflineDecisionIsShownAsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin, l := p.admin(t), p.newNetwork(t)
	chat := admin.create(t, "chats", record{"title": "Too late"})
	admin.say(t, chat, bash("touch late.txt"))
	request := admin.awaitRequest(t, chat)
	b := p.openOver(t, l, desktopScreen)
	b.over(l, "/chats/"+chat)
	b.awaitCondition("a request", `document.querySelector(".card.draft .decide") !== null`)
	b.awaitStored("/chats/" + chat)
	l.set(true)
	b.click(".card.draft .decide [value=authorized]")
	b.awaitCondition("that the decision waits", `document.querySelector(".card > .unsent-decision.waiting") !== null`)
	b.click(".unsent-decision button")
	b.awaitCondition("that it is taken back", `document.querySelector(".unsent-decision") === null && document.querySelector(".card.draft .decide").checkVisibility()`)
	b.click(".card.draft .decide [value=authorized]")
	b.awaitCondition("that the decision waits", `document.querySelector(".card > .unsent-decision.waiting") !== null`)

	admin.must(t, "PATCH", recordPath("permissions", request["id"].(string)), record{"status": "denied"}, nil)
	l.set(false)
	b.awaitCondition("who decided", `document.querySelector(".card.denied .outcome") !== null`)
	b.awaitCondition("the refusal", `document.querySelector(".card.denied > .unsent-decision.refused")?.textContent.includes("The permission is denied already.") ?? false`)
	b.screenshot("offline-refused")
	// of another account, which logged in here before
	is.True(awaited[bool](b, `caches.open("pages-other").then(() => true)`))
	b.over(l, "/requests")
	b.awaitCondition("the refusal where there is no card",
		`document.querySelector("main > .unsent-decision.refused a") !== null`)
	b.screenshot("offline-refused-elsewhere")
	b.click(".unsent-decision button")
	b.awaitCondition("that it is dismissed", `document.querySelector(".unsent-decision") === null`)
	b.checkNoFaults()

	b.awaitStored("/requests")
	b.click(".bar .account button") // log out
	b.awaitCondition("the login", `document.querySelector("#password") !== null`)
	is.Equal(awaited[[]string](b, `caches.keys().then((names) => names.filter((name) => name.startsWith("pages-")))`),
		[]string{})
	l.set(true)
	b.over(l, "/chats/"+chat)
	b.awaitCondition("that nothing is stored", `document.querySelector("#nothing-stored")?.checkVisibility() && document.querySelector("#stored-pages").childElementCount === 0`)
	b.screenshot("offline-nothing")
}

// delaying is a proxy between a browser and a system. It delivers decisions also if the browser has gone.
type delaying struct {
	*line
	// held decisions wait before the delivery, or for their answer, until it is closed
	before, after atomic.Pointer[chan struct{}]
	statuses      chan int // of held decisions, as the system answered them
}

// newDelaying starts a proxy. It ends with the test.
func (p *process) newDelaying(t testing.TB) *delaying {
	t.Helper()
	system, err := url.Parse(p.HTTP)
	if err != nil {
		t.Fatal(err)
	}
	d := &delaying{statuses: make(chan int, 100)}
	proxy := &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(system)
		r.Out.Host = r.In.Host
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before, after := d.before.Load(), d.after.Load()
		if r.Method != "POST" || !strings.Contains(r.URL.Path, "/requests/") || before == nil && after == nil {
			proxy.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the browser had gone before it was sent
		}
		r = r.WithContext(t.Context())
		r.Body = io.NopCloser(bytes.NewReader(body))
		if before != nil {
			<-*before
			until, _ := strconv.ParseInt(r.Header.Get("Pocketcoder-Deadline"), 10, 64)
			<-time.After(time.Until(time.UnixMilli(until + 1)))
		}
		answer := httptest.NewRecorder()
		proxy.ServeHTTP(answer, r)
		d.statuses <- answer.Code
		if after != nil {
			<-*after
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	d.line = &line{URL: server.URL}
	return d
}

// hold holds the next decisions before the delivery, or after it, until release is called.
func hold(at *atomic.Pointer[chan struct{}]) (release func()) {
	held := make(chan struct{})
	at.Store(&held)
	return sync.OnceFunc(func() { at.Store(nil); close(held) })
}

// The decision left the browser and is on its way when a person takes it back.
func TestADecisionThatIsTakenBackIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin, d := p.admin(t), p.newDelaying(t)
	chat := admin.create(t, "chats", record{"title": "Taken back"})
	admin.say(t, chat, bash("touch takenback.txt"))
	request := admin.awaitRequest(t, chat)
	b := p.openOver(t, d.line, phoneScreen)
	b.over(d.line, "/chats/"+chat)
	b.awaitCondition("a request", `document.querySelector(".card.draft .decide") !== null`)
	b.awaitStored("/chats/" + chat)
	release := hold(&d.before)
	defer release()
	b.click(".card.draft .decide [value=authorized]")
	b.awaitCondition("that the decision waits", `document.querySelector(".card > .unsent-decision.waiting") !== null`)
	b.click(".unsent-decision button")
	b.awaitCondition("that it was perhaps sent", `document.querySelector(".card > .unsent-decision.taken-back b")?.textContent === "Approve"`)
	b.awaitCondition("that it can be decided", `document.querySelector(".card.draft .decide").checkVisibility()`)
	b.screenshot("offline-taken-back")

	release()
	is.Equal(<-d.statuses, http.StatusPreconditionFailed)
	b.awaitCondition("that it was not carried out", `document.querySelector(".unsent-decision") === null`)
	is.Equal(admin.list(t, "permissions", `id = "`+request["id"].(string)+`"`)[0]["status"], "draft")
	b.click(".card.draft .decide [value=denied]")
	b.awaitCondition("the decision", `document.querySelector(".card.denied") !== null`)
}

func TestADecisionThatIsTakenBackTooLateIsShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	admin, d := p.admin(t), p.newDelaying(t)
	chat := admin.create(t, "chats", record{"title": "Taken back too late"})
	admin.say(t, chat, bash("touch toolate.txt"))
	admin.awaitRequest(t, chat)
	b := p.openOver(t, d.line, phoneScreen)
	b.over(d.line, "/chats/"+chat)
	b.awaitCondition("a request", `document.querySelector(".card.draft .decide") !== null`)
	b.awaitStored("/chats/" + chat)
	release := hold(&d.after)
	defer release()
	b.click(".card.draft .decide [value=authorized]")
	b.awaitCondition("that the decision waits", `document.querySelector(".card > .unsent-decision.waiting") !== null`)
	b.click(".unsent-decision button")
	b.awaitCondition("that it was perhaps sent", `document.querySelector(".card > .unsent-decision.taken-back") !== null`)
	is.Equal(<-d.statuses, http.StatusNoContent)
	b.awaitCondition("that it was carried out",
		`document.querySelector(".card.authorized") !== null && document.querySelector(".unsent-decision") === null`)
}

func notifiedInABrowser(t *testing.T, p *process) {
	is := is.New(t)
	admin, phone := p.admin(t), newPhone(t)
	admin.create(t, "devices", record{"name": "My phone", "push_service": "unifiedpush",
		"push_token": phone.URL + "/topic", "is_active": true})
	chat := admin.create(t, "chats", record{"title": "Notified"})
	b := p.useTab(t, chromiumtest.OpenOwn(t), phoneScreen)
	b.logIn()
	b.visit("/")
	b.awaitCondition("the service worker", `navigator.serviceWorker.controller !== null`)
	registration, worker := b.registration(), b.inWorker()
	b.do(b.allowNotifications())

	admin.say(t, chat, bash("touch notified.txt"))
	request := admin.awaitRequest(t, chat)
	one := phone.next(t)
	sent := 0
	// notified delivers a message with the buttons that the phone got, as a push service would, and waits until the
	// browser shows it. DevTools loses a message now and then, so it is delivered again, under another id.
	notified := func() (id string) {
		t.Helper()
		for polls := 0; id == ""; polls++ {
			if polls%100 == 0 {
				sent++
				b.push(registration, record{
					"id": fmt.Sprint("n", sent), "title": one.Title, "message": one.Text, "type": "permission", "chat": chat,
					"click": one.header.Get("Click"), "actions": []record{
						{"action": "approve", "title": "Approve", "url": one.address(t, "Approve")}, {"action": "deny", "title": "Deny", "url": one.address(t, "Deny")},
					},
				})
			}
			id = awaited[string](b, fmt.Sprintf(`navigator.serviceWorker.ready.then((r) => r.getNotifications({ tag: "n%d" })).then(([n]) => n?.tag ?? "")`, sent))
			if sent > 10 {
				t.Fatal("the browser does not show the message")
			}
		}
		return id
	}
	shown := func(id, what string) string {
		return awaited[string](b, fmt.Sprintf(`navigator.serviceWorker.ready.then((r) => r.getNotifications({ tag: %q })).then((all) => all.map((n) => %s).join("\n"))`, id, what))
	}
	press := func(id string) {
		t.Helper()
		is.True(awaited[bool](worker, fmt.Sprintf(`self.registration.getNotifications({ tag: %q }).then(([notification]) => self.dispatchEvent(new NotificationEvent("notificationclick", { notification, action: "approve" })))`, id)))
	}
	first := notified()
	is.Equal(shown(first, "n.title"), "Run touch notified.txt")
	is.Equal(shown(first, "n.actions.map((a) => a.title)"), "Approve,Deny")
	expect.Contains(t, shown(first, "n.body"), "touch notified.txt\n")
	is.Equal(shown(first, "n.data.click"), strings.TrimPrefix(one.header.Get("Click"), p.HTTP))
	press(first)
	expect.Eventually(t, "the button's answer is shown", func() bool { return shown(first, "n.body") == "Approved." })
	decided := admin.list(t, "permissions", `id = "`+request["id"].(string)+`"`)[0]
	is.Equal([]any{decided["status"], decided["approved_by"]}, []any{"authorized", admin.id})

	second := notified() // its buttons were used
	press(second)
	expect.Eventually(t, "the refusal is shown", func() bool {
		return shown(second, "n.body") == "Refused. Open the request to see why."
	})
	expect.Eventually(t, "it is decided", func() bool {
		b.push(registration, record{"id": second, "title": one.Title, "message": "It is decided.", "type": "permission",
			"chat": chat, "click": p.HTTP + "/", "done": true})
		return shown(second, "n.body") == "It is decided." && shown(second, "n.actions.length") == "0"
	})

	// A browser subscribes at its push service, which is out of reach here: its answer stands in.
	b.visit("/account")
	b.awaitCondition("the button", `document.querySelector("#subscribe").checkVisibility()`)
	b.screenshot("account-notifications-before")
	subscription := fmt.Sprintf(`{ toJSON: () => ({ endpoint: %q, expirationTime: null, keys: { p256dh: "BP", auth: "AA" } }) }`, phone.URL+"/push/1")
	is.True(evaluate[bool](b, `(PushManager.prototype.subscribe = async ({ applicationServerKey }) => applicationServerKey.length > 80 && (`+subscription+`), true)`))
	b.click("#subscribe button")
	b.awaitCondition("the browser among the devices",
		`document.querySelector(".devices li strong")?.textContent.startsWith("Chrome on ") === true && typeof showSubscription === "function"`)
	is.True(evaluate[bool](b, `(PushManager.prototype.getSubscription = async () => (`+subscription+`), true)`))
	b.awaitCondition("that it is this browser", `(showSubscription(), true) && document.querySelector(".devices .this").checkVisibility() && !document.querySelector("#subscribe").checkVisibility()`)
	b.screenshot("account-notifications")
	b.checkNoFaults()
	stored := admin.list(t, "devices", `push_service = "webpush"`)
	is.Equal(len(stored), 1)
	is.Equal(stored[0]["is_active"], true)
	is.Equal(stored[0]["push_token"], `{"endpoint":"`+phone.URL+
		`/push/1","expirationTime":null,"keys":{"p256dh":"BP","auth":"AA"}}`)
	b.click(`.devices form[action$="/remove"] button`)
	b.awaitCondition("that it is removed", `document.querySelector(".devices li") === null`)
}

// push delivers a message to the service worker.
func (b *tab) push(registration serviceworker.RegistrationID, message record) {
	b.t.Helper()
	text, err := json.Marshal(message)
	if err != nil {
		b.t.Fatal(err)
	}
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, serviceworker.DeliverPushMessage,
			serviceworker.DeliverPushMessageParams{Origin: b.HTTP, RegistrationID: registration, Data: string(text)})
		return err
	}))
}

// registration returns the id of the service worker's registration.
func (b *tab) registration() (id serviceworker.RegistrationID) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		updates, cancel := t.Subscribe("ServiceWorker.workerRegistrationUpdated")
		defer cancel()
		if _, err := cdp.Call(ctx, t, serviceworker.Enable, cdp.Empty{}); err != nil {
			return err
		}
		for id == "" {
			select {
			case update := <-updates:
				var e serviceworker.EventWorkerRegistrationUpdated
				if err := json.Unmarshal(update, &e); err != nil {
					return err
				}
				for _, r := range e.Registrations {
					id = r.RegistrationID
				}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}))
	return id
}

// allowNotifications lets pages show notifications, as a person does.
func (b *tab) allowNotifications() chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, browser.SetPermission, browser.SetPermissionParams{
			Permission: &browser.PermissionDescriptor{Name: "notifications"}, Setting: browser.PermissionSettingGranted, Origin: b.HTTP,
		})
		return err
	})
}

// inWorker returns the service worker, in which expressions can be evaluated. It does not stop as long as the browser
// runs.
func (b *tab) inWorker() *tab {
	b.t.Helper()
	var id target.ID
	expect.Eventually(b.t, "the service worker runs", func() bool {
		evaluate[bool](b, `(navigator.serviceWorker.controller.postMessage({}), true)`) // starts it if it has stopped
		all, err := chromedp.Targets(b.ctx)
		for _, info := range all {
			if info.Type == "service_worker" {
				id = info.TargetID
			}
		}
		return err == nil && id != ""
	})
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithTargetID(id))
	b.t.Cleanup(cancel)
	w := &tab{process: b.process, t: b.t, ctx: ctx, size: b.size}
	w.awaitCondition("its scope", `self.registration.active !== null`)
	return w
}
