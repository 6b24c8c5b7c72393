package pages_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/web/chromiumtest"
	"pocketcoder/web/webtest"
)

func TestAPersonKeepsACreatedNameOnAPhone(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "admin")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Hello."))
	created(t, s, chat, "k1", envrc())
	ctx := openPage(t, s, "/chats/"+chat)
	is.NoErr(chromedp.Do(ctx, chromedp.EmulateViewport(360, 740)))
	is.Equal(chromiumtest.Evaluate(t, ctx, `[...document.querySelectorAll("#r-k1 button")].map((b) => b.textContent).join()`),
		"Keep it,Delete it")
	is.Equal(chromiumtest.Evaluate(t, ctx, `document.documentElement.scrollWidth <= innerWidth`), "true")
	is.NoErr(chromedp.Do(ctx, chromedp.Click(chromedp.CSS("#r-k1 button[value=authorized]"))))
	chromiumtest.Await(t, ctx, "the decision", `document.querySelector("#r-k1.authorized") !== null`)
	s.Append(t, chat, events.PermissionApplied{Permission: "k1"})
	chromiumtest.Await(t, ctx, "that it is kept", `document.querySelector("#r-k1 .outcome").textContent.startsWith("kept by")`)
}
