package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/chromiumtest"
)

// awaited returns the value that a JavaScript promise becomes.
func awaited[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
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
