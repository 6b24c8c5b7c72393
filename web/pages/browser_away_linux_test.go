package pages_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

func TestAPersonWhoComesBackSeesWhatHappened(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	chat := s.Chat(t, token, "Tidy up")
	submitMessages(t, s, chat, 12, "Something that was read before, %d.")
	e, err := events.NewUser(ada, events.UserActor(ada), events.ChatSeen{Chat: chat, Seq: s.Model.Seq()})
	is.NoErr(err)
	e.Time = time.Now().Add(-11 * time.Minute)
	seq, err := s.Log.Append(t.Context(), e)
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	d := openPage(t, s, "/")
	d.sees("that nothing happened", `!document.querySelector("#away").checkVisibility()`)

	d.hide(true)
	for i, command := range []string{"ls", "rm x"} {
		id := needed(t, s, chat, fmt.Sprint("per_", i), command)
		status, _ := s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+id,
			map[string]any{"status": []string{"authorized", "denied"}[i]})
		is.Equal(status, http.StatusOK)
	}
	submitTurn(t, s, chat, "msg_b", written("The cellar is tidy."))
	d.hide(false)
	const summary = "1 turn ended · 1 request approved by ada@example.org · 1 request denied by ada@example.org · 1 new message"
	d.sees("what happened", fmt.Sprintf(`document.querySelector("#away").checkVisibility() && document.querySelector("#away p").textContent === %q`, summary))
	d.sees("all of it in the window", `document.documentElement.scrollWidth === innerWidth`)
	d.screenshot("away")

	d.visit("/chats/" + chat)
	d.sees("the line above what is new", `(({top}) => top >= log.getBoundingClientRect().top && top < innerHeight)(document.querySelector("#new-line").getBoundingClientRect())`)
	d.sees("what is new below the line", `document.querySelector("#new-line ~ article:last-child").textContent.includes("The cellar is tidy.")`)
	d.sees("what was read above the line", `document.querySelectorAll("#new-line ~ article").length < document.querySelectorAll("#entries article").length`)
	d.sees("what happened", fmt.Sprintf(`document.querySelector("#new-line small").textContent === %q`, summary))
	d.screenshot("away-chat")
	d.sees("the end", `(toEnd(), atEnd())`)
	expect.Eventually(t, "the server knows what was seen", func() bool {
		status, news := s.Call(t, token, "GET", "/api/pocketcoder/chats/"+chat+"/news", nil)
		return status == http.StatusOK && news["answers"] == 0.0
	})
	d.visit("/")
	d.sees("that nothing is new", `!document.querySelector("#away").checkVisibility()`)
}

func TestANewServiceWorkerTakesOver(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	var upgraded atomic.Bool
	current := s.Web.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/sw.js" || !upgraded.Load() {
			current.ServeHTTP(w, r)
			return
		}
		next := httptest.NewRecorder()
		current.ServeHTTP(next, r)
		w.Header().Set("Content-Type", next.Header().Get("Content-Type"))
		_, _ = w.Write(bytes.Replace(next.Body.Bytes(), []byte(`"version":"`), []byte(`"version":"next-`), 1))
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	d := newDevice(t, server.URL)
	chromiumtest.LogIn(t, d.ctx, d.url, token)
	d.visit("/")
	files := func(test string) string {
		return `caches.keys().then((all) => all.filter((name) => name.startsWith("files-"))).then((files) => ` + test + `)`
	}
	const controlled = `navigator.serviceWorker.controller?.state === "activated"`
	d.sees("the service worker", controlled)
	withoutCache := true
	d.load(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.Reload, page.ReloadParams{IgnoreCache: &withoutCache})
		return err
	}))
	d.sees("the service worker, which such a page has not at first", controlled)
	d.sees("its files", files(`files.length === 1 && !files[0].startsWith("files-next-")`))
	d.visit("/") // with a service worker from the start
	d.sees("the stored page", `caches.match("/").then((page) => page !== undefined)`)
	d.sees("a page with a mark and a text that is being written", `((window.mark = true), (document.querySelector("#text").value = "half a sentence"), true)`)

	upgraded.Store(true)
	d.sees("that there is a new one", `navigator.serviceWorker.getRegistration().then((r) => r.update()).then(() => true)`)
	d.sees("only the files of the new one", files(`files.length === 1 && files[0].startsWith("files-next-")`))
	d.sees("the stored page", `caches.match("/").then((page) => page !== undefined)`)
	d.sees("that the new one has the page", `outdated`)
	d.hide(true)
	d.sees("the text", `window.mark && document.querySelector("#text").value === "half a sentence"`)
	d.hide(false)
	d.sees("no text", `((document.querySelector("#text").value = ""), true)`)
	_, err := chromedp.Run(d.ctx, chromedp.Evaluate[bool](`(Object.defineProperty(document, "hidden", {value: true}), document.dispatchEvent(new Event("visibilitychange")))`))
	webtest.Check(t, err)
	d.sees("the page loaded again", `window.mark === undefined && document.querySelector("#chats") !== null && !outdated`)
	d.sees("that it stays", `((window.mark = true), true)`)
	d.sees("the new files", files(`files.length === 1 && window.mark && !outdated`))
}
