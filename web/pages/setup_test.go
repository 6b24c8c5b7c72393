package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestTheSetupLinkLeadsToTheListAsItsAdministrator(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	b := newBrowser(t, s)
	setup, needed, err := s.Accounts.Setup(t.Context())
	is.NoErr(err)
	is.True(needed)
	page := b.visit(t, "/setup")
	is.Equal(page.status, http.StatusOK)
	expect.Contains(t, page.body, `<label for="code">`) // for a browser without script
	form := url.Values{
		"code": {"guessed"}, "email": {"ada@example.org"}, "name": {"Ada"}, "password": {webtest.Password}, "password_again": {webtest.Password},
	}
	refused := b.submit(t, "/setup", form)
	is.Equal(refused.status, http.StatusNotFound)
	expect.Contains(t, refused.body, "The code is wrong")
	form.Set("code", " "+b.url+"/setup#"+setup.Token+"\n") // the whole link, as a person pastes it
	form.Set("password_again", "another good password")
	differ := b.submit(t, "/setup", form)
	is.Equal(differ.status, http.StatusUnprocessableEntity)
	expect.Contains(t, differ.body, "The two passwords differ.")
	for _, value := range []string{`value="` + setup.Token + `"`, `value="ada@example.org"`, `value="Ada"`,
		`<div hidden>`} {
		expect.Contains(t, differ.body, value)
	}
	expect.Lacks(t, differ.body, webtest.Password)
	form.Set("password", "short")
	form.Set("password_again", "short")
	short := b.submit(t, "/setup", form)
	is.Equal(short.status, http.StatusBadRequest)
	expect.Contains(t, short.body, "want 8 to")
	is.Equal(b.visit(t, "/").path, "/login?next=%2F") // no refusal logged in

	form.Set("password", webtest.Password)
	form.Set("password_again", webtest.Password)
	in := b.submit(t, "/setup", form)
	is.Equal([]any{in.status, in.path}, []any{http.StatusOK, "/"})
	expect.Contains(t, in.body, "ada@example.org")
	at, err := url.Parse(b.url)
	is.NoErr(err)
	identity, err := s.Accounts.Check(b.Jar.Cookies(at)[0].Value)
	is.NoErr(err)
	is.Equal(identity.Role, "admin")
	is.Equal(newBrowser(t, s).submit(t, "/setup", form).status, http.StatusNotFound) // once
}

func TestAnAccountWithoutChatsStartsWithTheDemo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	first := b.visit(t, "/").body
	expect.Contains(t, first, "It asks you before it does anything")
	expect.Contains(t, first, `<button name="demo" value="true" form="new-chat" formnovalidate>`)
	expect.Contains(t, first, `<form id="new-chat" `)
	chat := b.submit(t, "/chats", url.Values{"id": {"chat1"}, "message": {"message1"}, "text": {""}, "demo": {"true"}})
	is.Equal(chat.path, "/chats/chat1")
	_, message := s.Call(t, token, "GET", "/api/collections/messages/records/message1", nil)
	is.Equal(message["parts"], []any{map[string]any{"type": "text",
		"text": "Run `echo Hello from PocketCoder > hello-from-pocketcoder.txt`"}})
	is.True(!strings.Contains(b.visit(t, "/").body, "It asks you before"))
}
