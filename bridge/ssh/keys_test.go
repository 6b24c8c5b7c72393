package ssh_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/ssh"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
)

// header is how a file that we wrote begins.
const header = "# Written by pocketcoder from the collection ssh_keys; changes made here are lost.\n"

func TestFileFollowsTheKeysAndTheirOwners(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann, root, bot := s.user("ann", account.User), s.user("root", account.Admin), s.user("bot", account.Agent)
	_, first := s.newKey()
	_, second := s.newKey()
	s.keep()
	s.eventually("there is a file before there is a key", func() bool {
		_, err := os.Stat(s.keys.Files[0])
		return err == nil && len(s.file()) == 0
	})

	one := s.register(ann, first, nil)
	s.register(root, second, nil)
	s.register(bot, first, nil)                                 // agents have no terminal
	s.register("nobody", first, nil)                            // nor who is not there
	s.register("", first, nil)                                  //
	s.register(ann, second, map[string]any{"is_active": false}) //
	// no time as records have it: it may not count as "never"
	s.register(ann, second, map[string]any{"expires_at": "2020-01-02 03:04:05"})
	s.register(ann, "ssh-ed25519 garbage", nil)
	s.register(ann, first+"\n"+second, nil)
	s.register(ann, `command="sh" `+second, nil)
	s.eventually("the good keys are there", func() bool { return len(s.file()) == 2 })
	short := func(line string) string { return strings.Join(strings.Fields(line)[:2], " ") }
	is.True(strings.HasPrefix(s.file()[0], `restrict,pty,command="'/bin/sh' '-c' `))
	is.True(strings.HasSuffix(s.file()[0], ` '`+ann+`' 'user'" `+short(first)+" "+ann))
	is.True(strings.HasSuffix(s.file()[1], ` '`+root+`' 'admin'" `+short(second)+" "+root))
	info, err := os.Stat(s.keys.Files[0])
	is.NoErr(err)
	is.Equal(info.Mode(), os.FileMode(0o600))
	s.eventually("what is left out is said", func() bool {
		return strings.Count(s.lines.String(), "an ssh key is left out") == 4
	})

	s.save(one, false, map[string]any{"is_active": false})
	s.eventually("a key that is not active is gone", func() bool { return len(s.file()) == 1 })
	s.save(one, false, map[string]any{"is_active": true})
	s.eventually("it is there again, where it was", func() bool {
		return len(s.file()) == 2 && strings.HasSuffix(s.file()[0], ann)
	})
	yes := true
	_, err = s.accounts.UpdateAccount(t.Context(),
		account.UpdateAccount{Command: handlers.Command{Actor: events.ActorSystem}, Account: ann, Disabled: &yes})
	is.NoErr(err)
	s.eventually("the keys of a disabled account are gone", func() bool {
		return len(s.file()) == 1 && strings.HasSuffix(s.file()[0], root)
	})
}

func TestKeyIsGoneWhenItExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.user("ann", account.User)
	_, brief := s.newKey()
	_, long := s.newKey()
	s.keep()
	s.register(ann, long, map[string]any{"expires_at": time.Now().Add(time.Hour).UTC().Format(events.TimeFormat)})
	s.eventually("the key that lasts is there", func() bool { return len(s.file()) == 1 })
	ends := time.Now().Add(3 * time.Second)
	s.register(ann, brief, map[string]any{"expires_at": ends.UTC().Format(events.TimeFormat)})
	s.eventually("the other is there until it expires", func() bool {
		return len(s.file()) == 2 || time.Now().After(ends)
	})
	s.eventually("and gone then, with nothing else happening", func() bool { return len(s.file()) == 1 })
	is.True(!time.Now().Before(ends.Truncate(time.Millisecond)))
}

func TestKeyThatTwoAccountsHoldIsLeftOut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann, bob := s.user("ann", account.User), s.user("bob", account.Admin)
	_, key := s.newKey()
	_, other := s.newKey()
	s.register(bob, key, nil)
	s.register(ann, other, nil)
	s.keep()
	s.eventually("both are there", func() bool { return len(s.file()) == 2 })
	twin := s.register(ann, key, nil)
	s.eventually("it is of no account", func() bool {
		return len(s.file()) == 1 && strings.Contains(s.file()[0], strings.Fields(other)[1])
	})
	s.eventually("that is said", func() bool {
		return strings.Count(s.lines.String(), "registered by more than one account") == 2
	})
	s.save(twin, false, map[string]any{"expires_at": time.Now().Add(2 * time.Second).UTC().Format(events.TimeFormat)})
	s.eventually("it is bob's again when ann's has expired", func() bool { return len(s.file()) == 2 })
	is.True(strings.HasSuffix(s.file()[0], bob))
}

func TestFileThatCannotBeWrittenLetsNobodyIn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.user("ann", account.User)
	_, key := s.newKey()
	missing := filepath.Join(s.dir, "not", "there", "authorized_keys")
	s.keys.Files = []string{missing, s.keys.Files[0]}
	is.NoErr(os.WriteFile(s.keys.Files[1], []byte(header+"an old key\n"), 0o600))
	var count atomic.Int64 // keys
	s.keys.Written = func(lines map[string]string) { count.Store(int64(len(lines))) }
	s.keep()
	id := s.register(ann, key, nil)
	s.eventually("the old file is gone", func() bool { _, err := os.Stat(s.keys.Files[1]); return os.IsNotExist(err) })
	s.eventually("the owner of the key gets the notice", func() bool { return count.Load() == 1 })
	s.save(id, false, map[string]any{"is_active": false})
	s.eventually("that it is taken back too", func() bool { return count.Load() == 0 })
	s.save(id, false, map[string]any{"is_active": true})
	is.NoErr(os.MkdirAll(filepath.Dir(missing), 0o700))
	s.eventually("both are there once they can be", func() bool {
		one, _ := os.ReadFile(missing)
		two, _ := os.ReadFile(s.keys.Files[1])
		return strings.Contains(string(one), ann) && string(one) == string(two)
	})
	entries, err := os.ReadDir(filepath.Dir(missing))
	is.NoErr(err)
	is.Equal(len(entries), 1) // no part of a file is left
	_, err = s.records.Delete(t.Context(), record.Delete{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: "ssh_keys", Record: id})
	is.NoErr(err)
	s.eventually("a deleted key is gone", func() bool {
		text, _ := os.ReadFile(missing)
		return len(text) > 0 && !strings.Contains(string(text), ann)
	})
}

func TestFileOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	foreign := filepath.Join(s.dir, "theirs")
	const line = "ssh-ed25519 AAAA the operator's own\n"
	is.NoErr(os.WriteFile(foreign, []byte(line), 0o600))
	// what cannot be written would have the next removed
	s.keys.Files = append(s.keys.Files, filepath.Join(s.dir, "not", "there"), foreign)
	_, key := s.newKey()
	s.register(s.user("ann", account.User), key, nil)
	s.keep()
	s.eventually("ours is there", func() bool { return len(s.file()) == 1 })
	// a round has ended by then
	s.eventually("it is said", func() bool { return strings.Count(s.lines.String(), "PocketCoder did not write it") >= 2 })
	text, err := os.ReadFile(foreign)
	is.NoErr(err)
	is.Equal(string(text), line)
	for content, ours := range map[string]bool{"": true, line: false, header + line: true} {
		is.NoErr(os.WriteFile(foreign, []byte(content), 0o600))
		is.Equal(ssh.CheckOwn(foreign) == nil, ours)
	}
}
