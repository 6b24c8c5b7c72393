package pages_test

import (
	"net/http"
	"net/url"
	"regexp"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/channel"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

var shownCode = regexp.MustCompile(`/pair ([A-Z2-7]{12})`)

func TestMessengerIsPairedAndRevoked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, root := s.User(t, "root", "admin")
	s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b, other := loggedIn(t, s, "ada"), loggedIn(t, s, "bob")
	expect.Contains(t, b.visit(t, "/account").body, `href="/messengers"`)
	expect.Contains(t, b.visit(t, "/messengers").body, "No messenger is set up.")
	_, made := s.Call(t, root, "POST", webtest.RecordsPath("channels"), webtest.Object{"name": "phone <b>",
		"kind": "telegram", "token": "123456789:AAq7zk2xv9jh4wbdqtfmv", "enabled": true})
	id := made["id"].(string)
	expect.Contains(t, b.visit(t, "/messengers").body, "Pair with phone &lt;b&gt;")

	page := b.submit(t, "/messengers/code", url.Values{"channel": {id}}).body
	code := shownCode.FindStringSubmatch(page)
	is.Equal(len(code), 2)
	expect.Contains(t, page, `It expires at <time datetime="`)
	expect.Lacks(t, b.visit(t, "/messengers").body, code[1]) // it is shown once
	is.Equal(b.submit(t, "/messengers/code", url.Values{"channel": {"nosuch"}}).status, http.StatusNotFound)

	is.NoErr(s.Web.Channels.Channels.Receive(t.Context(), channel.Incoming{Channel: channel.Channel{ID: id}, Update: "1",
		Address: "4711", Place: "4711", Sender: "Pat <i>", Text: code[0]}))
	page = b.visit(t, "/messengers").body
	expect.Contains(t, page, "Pat &lt;i&gt;")
	_, list := s.Call(t, root, "GET", webtest.RecordsPath("pairings"), nil)
	revoke := "/settings/pairings/" + list["items"].([]any)[0].(webtest.Object)["id"].(string) + "/delete"
	expect.Contains(t, page, `action="`+revoke+`"`)
	expect.Contains(t, loggedIn(t, s, "root").visit(t, "/messengers").body, "<dt>Account</dt><dd>ada</dd>") // whose it is
	expect.Lacks(t, other.visit(t, "/messengers").body, "Pat")
	is.Equal(other.submit(t, revoke, nil).status, http.StatusNotFound)
	expect.Contains(t, b.submit(t, revoke, nil).body, "Nothing is stored here yet.")
}
