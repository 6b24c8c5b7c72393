package projections

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
)

func TestUnusableFileIsMovedAsideAndMadeAgain(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, path string) error{
		"no database": func(_ *testing.T, path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("not SQLite ", 1000)), 0o600)
		},
		"damaged page": func(_ *testing.T, path string) error {
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, 20000), 4096)
			return errors.Join(err, f.Close())
		},
		"cut short": func(_ *testing.T, path string) error { return os.Truncate(path, 5000) },
		"other tables": func(t *testing.T, path string) error {
			f, err := openFile(t.Context(), path)
			if err != nil {
				return err
			}
			return errors.Join(f.tx.exec("PRAGMA user_version=7"), f.close())
		},
		"another log": func(t *testing.T, path string) error {
			f, err := openFile(t.Context(), path)
			if err != nil {
				return err
			}
			return errors.Join(f.tx.exec("UPDATE checkpoint SET seq=1000000"), f.close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			log, dir := eventstest.Log(t), t.TempDir()
			last, err := log.AppendAll(t.Context(), conversation(t, "01-simple-text"))
			is.NoErr(err)
			m, err := Open(t.Context(), dir, log)
			is.NoErr(err)
			stop := work(t, m)
			want := digestOf(t, m.waited(t, last))
			stop()
			is.NoErr(m.Close())
			is.NoErr(spoil(t, m.path()))

			again := running(t, dir, log)
			expect.Eventually(t, "set aside", func() bool { return strings.Contains(again.SetAside(), m.path()+".corrupt-1") })
			_, err = os.Stat(m.path() + ".corrupt-1")
			is.NoErr(err)
			is.Equal(digestOf(t, again.waited(t, last)), want)
		})
	}
}

func TestFileDamagedWhileInUseIsMadeAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log, dir := eventstest.Log(t), t.TempDir()
	all := conversation(t, "9i-perm-task")
	half, err := log.AppendAll(t.Context(), all[:60])
	is.NoErr(err)
	m, err := Open(t.Context(), dir, log)
	is.NoErr(err)
	defer m.Close()
	stop := work(t, m)
	is.NoErr(m.Wait(t.Context(), half))
	stop()
	is.NoErr(m.current.tx.exec("PRAGMA wal_checkpoint(TRUNCATE)"))
	f, err := os.OpenFile(m.path(), os.O_WRONLY, 0)
	is.NoErr(err)
	_, err = f.WriteAt([]byte(strings.Repeat("x", 200000)), 4096)
	is.NoErr(err)
	is.NoErr(f.Close())
	is.NoErr(m.current.tx.exec("PRAGMA shrink_memory")) // forget the pages it has read

	defer work(t, m)()
	last, err := log.AppendAll(t.Context(), all[60:])
	is.NoErr(err)
	is.NoErr(m.Wait(t.Context(), last))
	expect.Contains(t, m.SetAside(), ".corrupt-1")
	is.Equal(len(shown(t, m)), 6)
}

func TestPoisonIsSetAsideAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, t.TempDir()))
	log := eventstest.Open(t, nc)
	s := &story{t: t}
	var last uint64
	appended := func(e events.Event) {
		t.Helper()
		seq, err := log.Append(t.Context(), e)
		is.NoErr(err)
		last = seq
	}
	appended(s.created())
	appended(s.submitted("m1"))
	stray := nats.NewMsg("evt.chat." + chatID + ".message.submitted") // past our own code: no envelope
	stray.Data = []byte("\xff not JSON")
	_, err := nc.RequestMsg(stray, 5*time.Second)
	is.NoErr(err)
	appended(s.submitted("m1")) // exists, and is no poison: whoever submits chooses the id
	appended(s.sending("nobody", "msg_x"))
	appended(s.opencode(true, "message.updated", `{"sessionID":"ses_own","info":{"id":7}}`))
	appended(s.opencode(true, "message.updated", `{"sessionID":"ses_own","info":{"role":"user"}}`))
	appended(s.opencode(false, "brand.new", `{"sessionID":"ses_own","what":[1]}`)) // unknown is no error
	appended(s.own(events.ExecFinished{Exec: "never"}))
	appended(s.submitted("m2"))

	m := running(t, t.TempDir(), log)
	is.NoErr(m.Wait(t.Context(), last))
	n, err := m.DeadLetters(t.Context())
	is.NoErr(err)
	is.Equal(n, 5)
	is.Equal(len(shown(t, m)), 2)
	_, found, err := m.Session(t.Context(), ses)
	is.NoErr(err)
	is.True(!found) // what was set aside has left nothing behind
	type letter struct {
		Seq            uint64
		Subject, Error string
	}
	letters, err := list[letter](t.Context(), m, "dead letters", "SELECT seq, subject, error FROM dead_letters ORDER BY seq", nil)
	is.NoErr(err)
	for i, want := range []string{"ce-id", "message nobody was never submitted", "cannot unmarshal", "without its ids", "execution never was never requested"} {
		expect.Contains(t, letters[i].Error, want)
		expect.Contains(t, letters[i].Error, fmt.Sprintf("#%d", letters[i].Seq))
	}
}

func TestFullDiskIsNobodysPoison(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &story{t: t}
	feed(t, m, s.created())
	is.NoErr(m.current.tx.exec("PRAGMA max_page_count=1")) // the file may not grow any more
	big := own(t, user, events.MessageSubmitted{Message: "m1", Parts: []events.Part{{Type: "text", Text: strings.Repeat("words ", 20000)}}})
	big.Seq, big.Time = 2, time.Now()
	err := m.take(decodeAll([]events.Event{big}), true)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "full")
	is.NoErr(m.current.tx.exec("PRAGMA max_page_count=1000000"))
	is.NoErr(m.take(decodeAll([]events.Event{big}), true))
	n, err := m.DeadLetters(t.Context())
	is.NoErr(err)
	is.Equal(n, 0)
	is.Equal(len(shown(t, m)), 1)
}

func TestRebuildRepairsADamagedFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log := eventstest.Log(t)
	m := running(t, t.TempDir(), log)
	last, err := log.AppendAll(t.Context(), conversation(t, "9i-perm-task"))
	is.NoErr(err)
	want := digestOf(t, m.waited(t, last))
	is.NoErr(m.current.tx.exec("DELETE FROM messages; UPDATE chats SET title='wrong'")) // somebody wrote into it
	r, err := m.Rebuild(t.Context(), func(done, total uint64) {})
	is.NoErr(err)
	is.True(r.Before != want)
	is.Equal(r.After, want)
	is.Equal(digestOf(t, m), want)
}
