package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/handlers/account"
)

// open opens an event stream and reads it up to an event.
func (l login) open(t *testing.T, path, event string) (rest *bufio.Reader, f frame) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	t.Cleanup(cancel)
	stream, err := l.follow(ctx, path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	for rest = bufio.NewReader(stream); f.event != event; {
		if f, err = nextFrame(rest); err != nil {
			t.Fatalf("no %s came on %s: %v", event, path, err)
		}
	}
	return rest, f
}

func TestAccountsOfTheRunningSystem(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	must := func(stdin string, args ...string) string {
		t.Helper()
		stdout, stderr, code := p.cli(t, stdin, append([]string{"user"}, args...)...)
		if code != 0 {
			t.Fatalf("user %v: %d %s", args, code, stderr)
		}
		return stdout
	}
	code := func(l login) int { t.Helper(); return l.do(t, "GET", "/api/collections/chats/records", nil).code }
	phone := p.account(t, "user")
	email := p.admin(t).list(t, "users", `id = "`+phone.id+`"`)[0]["email"].(string)
	is.True(regexp.MustCompile(email + ` +user +enabled`).MatchString(must("", "list")))
	_, stderr, exit := p.cli(t, somePassword+"\n", "user", "add", strings.ToUpper(email))
	is.True(exit != 0 && strings.Contains(stderr, "belongs to another account"))

	laptop := p.login(t, email, somePassword)
	var sessions []account.Session
	is.NoErr(json.Unmarshal([]byte(must("", "sessions", email, "--json")), &sessions))
	is.Equal(len(sessions), 2)
	is.Equal(sessions[0].Device, "Go-http-client/1.1")
	var own []struct {
		ID      string
		Current bool
	}
	phone.must(t, "GET", "/api/pocketcoder/sessions", nil, &own)
	for _, s := range own {
		if s.Current {
			must("", "revoke", email, s.ID)
		}
	}
	is.Equal([]int{code(phone), code(laptop)}, []int{http.StatusUnauthorized, http.StatusOK})
	must("another good password\n", "passwd", email)
	is.Equal(code(laptop), http.StatusUnauthorized)
	refused := func(password string) int {
		return login{process: p}.do(t, "POST", "/api/collections/users/auth-with-password",
			record{"identity": email, "password": password}).code
	}
	is.Equal(refused(somePassword), http.StatusBadRequest)

	user := p.login(t, email, "another good password")
	chat := user.create(t, "chats", record{"title": "until disabled"})
	history, _ := user.open(t, "/api/chats/"+chat+"/events", "caught-up")
	realtime, connected := user.open(t, "/api/realtime", "PB_CONNECT")
	user.must(t, "POST", "/api/realtime", record{"clientId": connected.id, "subscriptions": []string{"chats/*"}}, nil)
	user.must(t, "PATCH", recordPath("chats", chat), record{"title": "seen"}, nil)
	for f := (frame{}); !strings.Contains(f.data, `"seen"`); {
		var err error
		f, err = nextFrame(realtime)
		is.NoErr(err)
	}
	must("", "disable", email)
	is.Equal(code(user), http.StatusUnauthorized) // the token is refused at once
	for _, stream := range []*bufio.Reader{realtime, history} {
		_, err := io.Copy(io.Discard, stream) // and what is open ends
		is.NoErr(err)
	}
	is.Equal(refused("another good password"), http.StatusBadRequest)
	must("", "enable", email)
	is.Equal(code(user), http.StatusUnauthorized) // an ended session stays ended
	is.Equal(code(p.login(t, email, "another good password")), http.StatusOK)
}

var setupToken = regexp.MustCompile(`(http://\S+/setup)#(\S+)`)

func setupLinkMakesOneAdministrator(t *testing.T, p *process) login {
	is := is.New(t)
	var link []string
	expect.Eventually(t, "the link is shown", func() bool {
		link = setupToken.FindStringSubmatch(p.output.String())
		return link != nil
	})
	is.Equal(link[1], p.HTTP+"/setup")
	guest := login{process: p}
	is.Equal(guest.do(t, "GET", "/setup", nil).code, http.StatusOK)

	setUp := func(t *testing.T, token, email, password string) reply {
		return guest.do(t, "POST", "/api/pocketcoder/setup", record{"token": token, "email": email, "password": password})
	}
	is.Equal(setUp(t, "guessed", "first@example.org", somePassword).code, http.StatusNotFound)
	is.Equal(setUp(t, link[2], "first@example.org", "short").code, http.StatusBadRequest) // and the link is good still
	var racing sync.WaitGroup
	emails := []string{"first@example.org", "second@example.org", "third@example.org"}
	replies := make([]reply, len(emails))
	for i, email := range emails {
		racing.Go(func() { replies[i] = setUp(t, link[2], email, somePassword) })
	}
	racing.Wait()
	var made []login
	for _, a := range replies {
		if a.code != http.StatusOK {
			is.True(a.code == http.StatusBadRequest || a.code == http.StatusNotFound)
			continue
		}
		var auth struct {
			Token  string
			Record struct{ ID, Role string }
		}
		decode(t, a.body, &auth)
		is.Equal(auth.Record.Role, "admin")
		made = append(made, login{process: p, token: auth.Token, id: auth.Record.ID})
	}
	is.Equal(len(made), 1) // one of the concurrent requests
	is.Equal(len(made[0].list(t, "users", "")), 1)
	is.Equal(setUp(t, link[2], "fourth@example.org", somePassword).code, http.StatusNotFound)

	logged := facts(made[0].whole(t, "/api/events", func(f frame) bool { return f.event == "caught-up" }))
	is.True(strings.Contains(logged, "account.created") && strings.Contains(logged, "login.failed"))
	is.True(!strings.Contains(logged, link[2]) && !strings.Contains(logged, somePassword))

	made[0].create(t, "users", record{"email": adminEmail, "password": adminPassword, "passwordConfirm": adminPassword,
		"role": "admin"}) // for the next stages
	return made[0]
}

// setUpStays checks, after a restart, that there is no other setup link, and that the administrator is logged in.
func setUpStays(t *testing.T, administrator login) {
	t.Helper()
	is := is.New(t)
	p := administrator.process
	expect.Eventually(t, "all is said", func() bool { return strings.Contains(p.output.String(), "Ctrl-C") })
	is.Equal(len(administrator.list(t, "users", "")), 2)
	is.True(!setupToken.MatchString(p.output.String()))
	// which the environment gave an administrator
	is.True(!setupToken.MatchString(sharedSystem(t).output.String()))
}
