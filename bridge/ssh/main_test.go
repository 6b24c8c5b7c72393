package ssh_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pocketcoder/bridge/ssh"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
)

func TestMain(m *testing.M) { expect.Run(m) }

// system is keys over a real log and real read models, and an sshd that gives a shell script.
type system struct {
	t        *testing.T
	dir      string // the server's
	accounts *account.Accounts
	model    *projections.Model
	records  *record.Records
	lines    expect.Buffer // what is logged
	known    atomic.Int64  // keys that the server of serve knows, which cuts the connections of others
	keys     ssh.Keys
}

// viewer stands for what a key gives: it says whose it is, what it was given by the client, and whether it has a
// terminal, and stays when it is asked to.
const viewer = `echo "viewer of <$1>, asked for <$SSH_ORIGINAL_COMMAND>, given <${SSH_AUTH_SOCK-}> <${POCKETCODER_DATA-}>"; tty; [ "$SSH_ORIGINAL_COMMAND" != stay ] || exec cat`

func newSystem(t *testing.T) *system {
	t.Helper()
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	s := &system{t: t, dir: privateDir(t)}
	log := eventstest.Open(t, nc, "sk-live-0123456789")
	secrets, err := secret.Open(t.Context(), nc, 1)
	check(t, err)
	s.model, err = projectionstest.Open(t.Context(), expect.MemoryDir(t), log)
	check(t, err)
	s.accounts, err = account.Open(t.Context(), log, secrets)
	check(t, err)
	s.accounts.HashMemory = 64
	s.records = recordtype.Open(log, nil)
	t.Cleanup(func() { s.model.Close() })
	expect.Background(t, s.model.Run)
	s.keys = ssh.Keys{
		Model: s.model, Accounts: s.accounts, Files: []string{filepath.Join(s.dir, ssh.AuthorizedKeys)}, Logger: s.logger(),
		Command: func(a account.Account, _ string) []string {
			return []string{"/bin/sh", "-c", viewer, `it's "quoted" $HOME \`, a.ID, a.Role}
		},
	}
	return s
}

// privateDir returns a directory like a data directory: only the current user can write above it, as sshd requires.
func privateDir(t *testing.T) string {
	t.Helper()
	u, err := user.LookupId(strconv.Itoa(os.Getuid())) // $HOME may be anywhere
	check(t, err)
	dir, err := os.MkdirTemp(u.HomeDir, ".pocketcoder-ssh-")
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func (s *system) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&s.lines, nil)) }

// keep keeps the files for as long as the test lasts.
func (s *system) keep() { expect.Background(s.t, s.keys.Run) }

// file is what the authorized_keys file has, without the comment at its beginning; nothing when there is none.
func (s *system) file() []string {
	text, _ := os.ReadFile(s.keys.Files[0])
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return lines[1:]
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls what cannot be waited for.
func (s *system) eventually(what string, is func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			s.t.Fatalf("not within a minute: %s; the file has %q; logged: %s", what, s.file(), s.lines.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// user makes an account.
func (s *system) user(name, role string) (id string) {
	s.t.Helper()
	id, _, err := s.accounts.CreateAccount(s.t.Context(), account.CreateAccount{
		Command: handlers.Command{Actor: events.ActorSystem}, Email: name + "@example.org", Name: name, Role: role, Password: "correct horse battery",
	})
	check(s.t, err)
	return id
}

// register keeps a record of ssh_keys, of an active key unless fields say otherwise, and gives its id.
func (s *system) register(user, publicKey string, fields map[string]any) (id string) {
	s.t.Helper()
	all := map[string]any{"user": user, "public_key": publicKey, "is_active": true}
	for name, value := range fields {
		all[name] = value
	}
	id = events.NewID()
	s.save(id, true, all)
	return id
}

func (s *system) save(id string, isNew bool, fields map[string]any) {
	s.t.Helper()
	if isNew { // without the checks of a command, which refuse bad keys and those of others
		body, err := json.Marshal(fields)
		check(s.t, err)
		e, err := events.NewConfig("ssh_keys", id, events.ActorSystem, events.Saved{Fields: body})
		check(s.t, err)
		_, err = s.records.Log.Append(s.t.Context(), e)
		check(s.t, err)
		return
	}
	set := map[string]json.RawMessage{}
	for name, value := range fields {
		text, err := json.Marshal(value)
		check(s.t, err)
		set[name] = text
	}
	_, _, err := s.records.Save(s.t.Context(), record.Save{
		Command: handlers.Command{Actor: events.ActorSystem}, Collection: "ssh_keys", Record: id, Set: set,
	})
	check(s.t, err)
}

// newKey makes a key with ssh-keygen, and gives the path of its private half and its public line.
func (s *system) newKey() (path, public string) {
	s.t.Helper()
	path = filepath.Join(s.t.TempDir(), "key")
	out, err := exec.Command(expect.Program(s.t, "ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", "a comment\"",
		"-f", path).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	line, err := os.ReadFile(path + ".pub")
	check(s.t, err)
	return path, strings.TrimSpace(string(line))
}
