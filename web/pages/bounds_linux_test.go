package pages_test

import (
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/web/chromiumtest"
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
		chromiumtest.Await(t, ctx, what, condition)
	}
	sees("the banner", `!document.querySelector("#offline").hidden`)
	sees("that it waits longer", `pause >= 4000`)
	other.Body.Close()
	sees("that it is live", `document.querySelector("#offline").hidden && pause === 1000`)
}

func TestATurnThatShowsNothingNewSaysForHowLong(t *testing.T) {
	expect.Long(t, "starts Chromium")
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	chat := s.ChatWithAnswer(t, token)
	submitMessage(t, s, chat, "msg_0", written("Shown."))
	s.AppendOpenCode(t, chat, "session.status", `{"sessionID":"ses_own","status":{"type":"busy"}}`)
	ctx := openPage(t, s, "/chats/"+chat)
	const silence = `document.querySelector("#head .turn.running")?.dataset.silence`
	chromiumtest.Await(t, ctx, "that the turn runs", silence+` === ""`)
	chromiumtest.Evaluate(t, ctx, `lastNew -= 60000`)
	chromiumtest.Await(t, ctx, "that nothing is new", silence+`.startsWith(", nothing new for ")`)
	submitMessage(t, s, chat, "msg_1", written("Shown."))
	chromiumtest.Await(t, ctx, "that something is new", silence+` === ""`)
}
