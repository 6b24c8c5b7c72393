package pages_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

func TestAChatOpensAtTheRequestThatWaits(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	b := loggedIn(t, s, "ada")
	b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {newestOf(t, b.visit(t, "/chats/"+chat).body)}})
	long := strings.Repeat("A line of the answer.\n\n", 60)
	submitMessage(t, s, chat, "msg_2", written(long))
	submitMessage(t, s, chat, "msg_3", written(long))
	ctx := openPage(t, s, "/chats/"+chat)
	evaluate := func(expression string) string {
		t.Helper()
		return chromiumtest.Evaluate(t, ctx, expression)
	}
	is.NoErr(chromedp.Do(ctx, chromedp.EmulateViewport(360, 640)))
	open := func() {
		t.Helper()
		chromiumtest.Load(t, ctx, chromedp.Navigate(evaluate("location.origin")+"/chats/"+chat))
		chromiumtest.Await(t, ctx, "that the scripts of the page have run", `document.readyState === "complete"`)
	}
	seen := func(selector string) string {
		return evaluate(fmt.Sprintf(`((e, view) => [e.top >= view.top - 1 && e.top < view.bottom - 60, e.bottom <= view.bottom + 1])(
			document.querySelector(%q).getBoundingClientRect(), log.getBoundingClientRect())`, selector))
	}
	below := func() string { return evaluate(`byID("new").hidden ? "" : byID("new").textContent`) }

	open()
	is.Equal(seen("#new-line"), "true,true") // nothing waits
	is.Equal(below(), "2 new ↓")

	card := "#r-" + needed(t, s, chat, "per_1", "make install")
	open()
	is.Equal(seen(card), "true,true")
	is.Equal(below(), "")

	submitMessage(t, s, chat, "msg_4", written(long)) // of a subagent, say
	submitMessage(t, s, chat, "msg_5", written(long))
	open()
	is.Equal(seen(card), "true,true")
	is.Equal(below(), "2 new ↓")
}
