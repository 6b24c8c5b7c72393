package pages_test

import (
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestARefusedPageSaysSoAndTriesLessAndLessOften(t *testing.T) {
	expect.Slow(t, "starts Chromium")
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_1", written("Shown."))
	s.Web.Site.LivePages = 1
	other := openLive(t, loggedIn(t, s, "ada"))
	is.Equal(other.StatusCode, http.StatusOK)
	d := openPage(t, s, "/chats/"+chat)
	d.sees("the banner", `!document.querySelector("#offline").hidden`)
	d.sees("that it waits longer", `pause >= 4000`)
	other.Body.Close()
	d.sees("that it is live", `document.querySelector("#offline").hidden && pause === 1000`)
}
