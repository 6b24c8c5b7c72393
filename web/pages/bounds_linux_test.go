package pages_test

import (
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/webtest"
)

func TestARefusedPageSaysSoAndTriesLessAndLessOften(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Shown."))
	s.Web.Site.LivePages = 1
	other := openLive(t, loggedIn(t, s, "ada"))
	is.Equal(other.StatusCode, http.StatusOK)
	ctx := openPage(t, s, "/chats/"+chat)
	sees := func(what, condition string) {
		t.Helper()
		expect.Eventually(t, what, func() bool {
			ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool](condition))
			return err == nil && ok
		})
	}
	sees("the banner", `!document.querySelector("#offline").hidden`)
	sees("that it waits longer", `pause >= 4000`)
	other.Body.Close()
	sees("that it is live", `document.querySelector("#offline").hidden && pause === 1000`)
}
