package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// serveAccounts runs only the services that the user command needs, on a data directory.
func serveAccounts(t *testing.T) (datadir.Dir, *account.Accounts) {
	t.Helper()
	system := webtest.NewSystem(t)
	return cmdtest.Running(t, system.Web.Local()), system.Accounts
}

// user runs the command with stdin as a pipe.
func user(t *testing.T, d datadir.Dir, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, problems bytes.Buffer
	env := cli.Environment{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &problems, Getenv: func(string) string {
		return ""
	}}
	err = User(t.Context(), env, append(args, "--data", string(d)))
	return out.String(), problems.String(), err
}

func TestUserCommandManagesAccounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d, accounts := serveAccounts(t)
	must := func(stdin string, args ...string) string {
		t.Helper()
		stdout, stderr, err := user(t, d, stdin, args...)
		is.NoErr(err)
		is.Equal(stderr, "")
		return stdout
	}
	login := func(password string) (account.Token, error) {
		return accounts.Login(t.Context(), account.Login{Identity: "alice@example.org", Password: password,
			Client: events.Client{Address: "192.0.2.1", Device: "Phone\x1b[31m"}})
	}
	expect.Contains(t, must("", "list"), "no accounts yet")
	is.Equal(must("correct horse\nnot this line\n", "add", "alice@example.org", "--name", "Alice \x1b[31m"), "")
	_, err := login("correct horse")
	is.NoErr(err)
	made := strings.TrimSpace(must("", "passwd", "--generate", "Alice@example.org"))
	is.True(len(made) >= 20)
	_, err = login("correct horse")
	is.True(errors.Is(err, account.ErrCredentials))
	token, err := login(made)
	is.NoErr(err)
	is.Equal(must("battery staple\r\n", "passwd", "alice@example.org"), "")
	token, err = login("battery staple")
	is.NoErr(err)

	list := must("", "list")
	is.True(strings.Contains(list, "alice@example.org") && strings.Contains(list, "enabled"))
	expect.Lacks(t, list, "\x1b") // control characters of a name do not reach the terminal
	var all []account.Account
	is.NoErr(json.Unmarshal([]byte(must("", "list", "--json")), &all))
	is.Equal([]string{all[0].Email, all[0].Role}, []string{"alice@example.org", account.User})
	sessions := must("", "sessions", "alice@example.org")
	is.True(strings.Contains(sessions, token.Identity.Session) && strings.Contains(sessions, "192.0.2.1"))
	expect.Lacks(t, sessions, "\x1b")

	other, err := login("battery staple")
	is.NoErr(err)
	must("", "revoke", "alice@example.org", token.Identity.Session)
	_, err = accounts.Check(token.Text)
	is.True(errors.Is(err, account.ErrToken))
	_, err = accounts.Check(other.Text)
	is.NoErr(err)
	must("", "revoke", "alice@example.org")
	_, err = accounts.Check(other.Text)
	is.True(errors.Is(err, account.ErrToken))
	expect.Contains(t, must("", "sessions", "alice@example.org"), "logged in nowhere")

	must("", "disable", "alice@example.org")
	expect.Contains(t, must("", "list"), "disabled")
	_, err = login("battery staple")
	is.True(errors.Is(err, account.ErrCredentials))
	must("", "enable", "alice@example.org")
	must("", "role", "alice@example.org", "admin")
	token, err = login("battery staple")
	is.NoErr(err)
	is.Equal(token.Identity.Role, account.Admin)
	_, _, err = user(t, d, "", "disable", "alice@example.org")
	is.True(err != nil && strings.Contains(err.Error(), "is the last admin"))
}

func TestUserCommandReportsErrors(t *testing.T) {
	t.Parallel()
	d, _ := serveAccounts(t)
	for _, c := range []struct {
		args  string
		stdin string
		want  string
		err   error // nil for any other than wrong usage
	}{
		{"", "", "pocketcoder user add EMAIL", cli.ErrUsage},
		{"-h", "", "pass show alice | pocketcoder user passwd", flag.ErrHelp},
		{"remove", "", `there is no "remove"`, cli.ErrUsage},
		{"--json remove", "", `there is no "remove"`, cli.ErrUsage},
		{"add", "", "user add: wrong number of arguments", cli.ErrUsage},
		{"list alice@example.org", "", "wrong number of arguments", cli.ErrUsage},
		{"revoke a b c", "", "unexpected argument", cli.ErrUsage},
		{"add alice", "correct horse\n", "email: Must be a valid email address.", cli.ErrUsage},
		{"add alice@example.org", "short\n", "password: want 8 to 1024 bytes, got 5", cli.ErrUsage},
		{"add alice@example.org --role boss", "correct horse\n", "role: Must be one of admin, agent, user.", cli.ErrUsage},
		{"add alice@example.org", strings.Repeat("x", 1<<20), "password: want 8 to 1024 bytes, got 65536", cli.ErrUsage},
		{"add alice@example.org", "", "stdin has no line", nil},
		{"add alice@example.org", "\n", "stdin has no line", nil},
		{"passwd bob@example.org", "correct horse\n", "there is no account bob@example.org", nil},
		{"disable \x1b[31m", "", "there is no account ␛[31m", nil},
	} {
		is := is.New(t)
		stdout, stderr, err := user(t, d, c.stdin, strings.Fields(c.args)...)
		is.True(err != nil) // c.args
		if c.err != nil {
			is.True(errors.Is(err, c.err))            // c.args
			expect.Contains(t, stdout+stderr, c.want) // c.args
			continue
		}
		is.True(!errors.Is(err, cli.ErrUsage))
		expect.Contains(t, err.Error(), c.want) // c.args
	}
	is := is.New(t)
	_, _, err := user(t, datadir.Dir(t.TempDir()), "", "list")
	is.True(errors.Is(err, datadir.ErrNotRunning))
	_, _, err = user(t, datadir.Dir(t.TempDir()), "correct horse\n", "add", "alice@example.org")
	is.True(err != nil)
	expect.Lacks(t, err.Error(), "correct horse")
}
