package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events/atomicfile"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
)

// Address says which system is meant.
type Address struct {
	Data    datadir.Dir // of the system on this machine
	Account string      // id of the account in whose name the operator acts; empty for the operator
	Server  string      // URL of a system elsewhere; empty for the system on this machine
	Token   string      // of an account there; empty for the one that Login has stored
	Config  string      // directory with the user's configuration of PocketCoder
}

// State returns the directory for files of this user about the system: what was typed, and the socket of tmux.
func (a Address) State() datadir.Dir {
	if a.Server == "" {
		return a.Data
	}
	name := strings.NewReplacer("://", "-", ":", "_", "/", "-").Replace(a.Server) // no host name has a _
	return datadir.Dir(filepath.Join(a.Config, "servers", name))
}

// Args returns the flags with which another process of this program means the same system.
func (a Address) Args() []string {
	if a.Server == "" {
		return []string{"--data", datadir.Absolute(string(a.Data))}
	}
	return []string{"--server", a.Server}
}

// CheckServer returns the URL of a server without a slash at its end. A token is sent without TLS only to this machine.
func CheckServer(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("%q is not the URL of a server; want one such as https://code.example.org", text)
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme == "http" && u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return "", fmt.Errorf("%s would get your token without encryption; use https", text)
	}
	return u.Scheme + "://" + u.Host, nil
}

// login is a stored login at a server.
type login struct {
	Token     string    `json:"token"`
	Email     string    `json:"email"`
	Refreshed time.Time `json:"refreshed"`
}

// refreshAfter is the age at which a stored token is replaced. A token is valid for 14 days.
const refreshAfter = 24 * time.Hour

func (a Address) loginsPath() string { return filepath.Join(a.Config, "logins.json") }

// logins reads the stored logins, by the URL of the server.
func (a Address) logins() (map[string]login, error) {
	all := map[string]login{}
	b, err := os.ReadFile(a.loginsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("read the logins in %s: %w", a.loginsPath(), err)
	}
	return all, nil
}

// store stores a login at the server. Only the user can read it.
func (a Address) store(ctx context.Context, l login) error {
	if err := os.MkdirAll(a.Config, 0o700); err != nil {
		return err
	}
	unlock, err := a.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	all, err := a.logins()
	if err != nil {
		return err
	}
	all[a.Server] = l
	b, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(a.loginsPath(), b)
}

// lockTime limits the wait for another process that stores a login, and lockPause is the time between two tries.
const (
	lockTime  = 10 * time.Second
	lockPause = 20 * time.Millisecond
)

// lock waits until this process alone may change the stored logins.
func (a Address) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	for {
		unlock, err = atomicfile.Lock(a.loginsPath() + ".lock")
		if !errors.Is(err, atomicfile.ErrLocked) || sleep.For(ctx, lockPause) != nil {
			return unlock, err
		}
	}
}

// check returns the address with the URL of the server as CheckServer returns it.
func (a Address) check() (_ Address, err error) {
	if a.Config == "" {
		return a, errors.New("HOME is not set; name a directory for your logins and your history with XDG_CONFIG_HOME")
	}
	a.Server, err = CheckServer(a.Server)
	return a, err
}

// connectElsewhere returns a connection to the server, with the stored token.
func connectElsewhere(ctx context.Context, at Address) (*System, error) {
	at, err := at.check()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(string(at.State()), 0o700); err != nil {
		return nil, err
	}
	s := At(at.Server)
	s.Address = at
	if at.Token != "" {
		return s, nil
	}
	all, err := at.logins()
	if err != nil {
		return nil, err
	}
	l, known := all[at.Server]
	if !known {
		return nil, fmt.Errorf("you are not logged in at %s; log in with: pocketcoder login %[1]s", at.Server)
	}
	s.Token = l.Token
	if time.Since(l.Refreshed) < refreshAfter {
		return s, nil
	}
	var answer struct{ Token string }
	if err := s.Send(ctx, http.MethodPost, "/api/collections/users/auth-refresh", nil, &answer); err != nil {
		return nil, err
	}
	s.Token, l.Token, l.Refreshed = answer.Token, answer.Token, time.Now()
	return s, at.store(ctx, l)
}

// loginPause is the time between two questions whether a person has confirmed a code.
const loginPause = 2 * time.Second

// Login logs in at the server: show gets the code and the address of the page where a person confirms it. It stores the
// token, and returns the email of the account.
func Login(ctx context.Context, at Address, show func(code, page string)) (email string, err error) {
	if at, err = at.check(); err != nil {
		return "", err
	}
	s := At(at.Server)
	var begun struct{ Code, Secret, Page string }
	if err := s.Send(ctx, http.MethodPost, "/api/pocketcoder/logins", nil, &begun); err != nil {
		return "", err
	}
	page, _ := url.Parse(begun.Page)
	if page == nil || page.Host == "" { // the server does not know its URL
		begun.Page = at.Server + begun.Page
	}
	show(begun.Code, begun.Page)
	return at.awaitConfirmation(ctx, s, begun.Code, begun.Secret)
}

// awaitConfirmation waits until a person has confirmed the code, and stores the token. While the server cannot be
// reached, it goes on until the code expires.
func (a Address) awaitConfirmation(ctx context.Context, s *System, code, secret string) (email string, err error) {
	expires := time.Now().Add(account.CodeLife)
	for {
		var answer struct {
			Pending      bool
			Token, Email string
		}
		err := s.Send(ctx, http.MethodPost, "/api/pocketcoder/logins/"+url.PathEscape(code)+"/token",
			map[string]string{"secret": secret}, &answer)
		if err == nil && !answer.Pending {
			return answer.Email, a.store(ctx, login{answer.Token, answer.Email, time.Now()})
		}
		refused := handlers.CodeOf(err) != "" && handlers.CodeOf(err) != handlers.Unavailable
		if refused || err != nil && time.Now().After(expires) {
			return "", err
		}
		if err := sleep.For(ctx, loginPause); err != nil {
			return "", err
		}
	}
}
