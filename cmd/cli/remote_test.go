package cli_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// terminal runs commands with a home directory of its own.
type terminal struct {
	t    *testing.T
	home string
}

func (c terminal) run(command func(*terminal, cli.Environment) error) (stdout string, err error) {
	var out bytes.Buffer
	env := cli.Environment{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(name string) string {
		return map[string]string{"HOME": c.home}[name]
	}}
	err = command(&c, env)
	return out.String(), err
}

var codeShown = regexp.MustCompile(`[B-Z]{4}-[B-Z]{4}`)

// confirming confirms each code that passes as an account, as a person does at the page.
func confirming(t *testing.T, s *webtest.System, token string, status int, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		if code := codeShown.FindString(answer.Body.String()); code != "" && r.URL.Path == "/api/pocketcoder/logins" {
			got, _ := s.Raw(t, token, "POST", "/api/pocketcoder/logins/"+code+"/confirm", nil)
			if got != status {
				t.Errorf("confirm: %d", got)
			}
		}
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
	})
}

func TestTheCommandLineUsesAServerElsewhere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	_, eve := s.User(t, "eve", account.User)
	mine, hers := s.Chat(t, ada, "mine"), s.Chat(t, eve, "hers")
	server := httptest.NewServer(confirming(t, s, ada, http.StatusNoContent, s.Web.Routes()))
	t.Cleanup(server.Close)
	c := terminal{t, t.TempDir()}
	chats := func(c *terminal, env cli.Environment) error {
		return cli.Chats(c.t.Context(), env, []string{"--json", "--server", server.URL})
	}
	_, err := c.run(chats)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "log in with: pocketcoder login "+server.URL)
	out, err := c.run(func(c *terminal, env cli.Environment) error {
		return cli.Login(c.t.Context(), env, []string{server.URL + "/"})
	})
	is.NoErr(err)
	expect.Contains(t, out, "as ada@example.org")
	stored := filepath.Join(c.home, ".config", "pocketcoder", "logins.json")
	info, err := os.Stat(stored)
	is.NoErr(err)
	is.Equal(info.Mode().Perm(), os.FileMode(0o600))

	out, err = c.run(chats)
	is.NoErr(err)
	expect.Contains(t, out, mine)
	expect.Lacks(t, out, hers) // the rules of the account apply
	_, err = c.run(func(c *terminal, env cli.Environment) error {
		return cli.Replay(c.t.Context(), env, []string{hers, "--server", server.URL})
	})
	is.True(err != nil)
	s.AppendReferral(t, mine, "per_1")
	out, err = c.run(func(c *terminal, env cli.Environment) error {
		return cli.Deny(c.t.Context(), env, []string{"per_1", "use make", "--server", server.URL})
	})
	is.NoErr(err)
	expect.Contains(t, out, "denied: ")
	_, err = c.run(func(c *terminal, env cli.Environment) error {
		return cli.Approve(c.t.Context(), env, []string{"per_1", "--server", server.URL})
	})
	is.True(err != nil) // the first decision counts
	expect.Contains(t, err.Error(), "denied already")

	var logins map[string]struct{ Token string }
	is.NoErr(json.Unmarshal([]byte(expect.ReadFile(t, stored)), &logins))
	identity, err := s.Accounts.Check(logins[server.URL].Token)
	is.NoErr(err)
	status, _ := s.Raw(t, ada, "DELETE", "/api/pocketcoder/sessions/"+identity.Session, nil)
	is.Equal(status, http.StatusNoContent)
	_, err = c.run(chats)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "log in again with: pocketcoder login")
}

func TestOnlyAPersonConfirmsACode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, agent := s.User(t, "worker", account.Agent)
	_, begun := s.Call(t, "", "POST", "/api/pocketcoder/logins", nil)
	path := fmt.Sprint("/api/pocketcoder/logins/", begun["code"])
	for _, token := range []string{agent, ""} {
		status, _ := s.Raw(t, token, "POST", path+"/confirm", nil)
		is.True(status == http.StatusForbidden || status == http.StatusUnauthorized)
	}
	_, answer := s.Call(t, "", "POST", path+"/token", map[string]any{"secret": begun["secret"]})
	is.Equal(answer["pending"], true)
}

func TestATokenIsNotSentWithoutEncryption(t *testing.T) {
	c := terminal{t, t.TempDir()}
	_, err := c.run(func(c *terminal, env cli.Environment) error {
		return cli.Login(c.t.Context(), env, []string{"http://code.example.org"})
	})
	is.New(t).True(errors.Is(err, cli.ErrUsage))
}

func TestWithoutAHomeNoTokenIsStored(t *testing.T) {
	is := is.New(t)
	t.Chdir(t.TempDir())
	c := terminal{t, ""}
	for _, command := range []func(*terminal, cli.Environment) error{
		func(c *terminal, env cli.Environment) error {
			return cli.Login(c.t.Context(), env, []string{"https://code.example.org"})
		},
		func(c *terminal, env cli.Environment) error {
			return cli.Chats(c.t.Context(), env, []string{"--server", "https://code.example.org"})
		},
	} {
		_, err := c.run(command)
		expect.Contains(t, fmt.Sprint(err), "HOME is not set")
	}
	files, err := os.ReadDir(".")
	is.NoErr(err)
	is.Equal(len(files), 0)
}
