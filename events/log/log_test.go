package log_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

// openCode makes an OpenCode event with a body of n bytes or so.
func openCode(t testing.TB, chat, id string, seq int64, n int) events.Event {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"sessionID": "ses_1", "text": strings.Repeat("x", n)})
	e, err := events.NewOpenCode(chat, "local", id, seq, events.OpenCode{Type: "message.part.updated", Properties: body})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// read gives what the log holds after a sequence.
func read(t testing.TB, l *log.Log, after uint64, filters ...string) []events.Event {
	t.Helper()
	var got []events.Event
	err := l.Read(t.Context(), after, filters, func(b log.Batch) error {
		got = append(got, b.Events...)
		if b.Behind == 0 {
			return events.ErrStop
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAppendedEventIsReadBackUnchanged(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	e, err := events.New("chat1", events.UserActor("u1"), events.ChatCreated{Title: "t", Engine: "local"})
	is.NoErr(err)
	seq, err := l.Append(t.Context(), e.CausedBy("cmd1"))
	is.NoErr(err)
	got := read(t, l, 0)
	is.Equal(len(got), 1)
	is.Equal(got[0].Seq, seq)
	is.Equal(got[0].Actor, "user:u1")
	is.Equal(got[0].Cause, "cmd1")
	is.True(got[0].Time.Equal(e.Time))
	is.Equal(got[0].Subject, events.Subject{Scope: events.ScopeChat, ID: "chat1", Kind: "created"})
	d, err := events.Decode(got[0])
	is.NoErr(err)
	is.Equal(d, events.ChatCreated{Title: "t", Engine: "local"})
}

func TestReaderOfAnEmptyLogIsCaughtUp(t *testing.T) {
	is := is.New(t)
	is.Equal(len(read(t, eventstest.Log(t), 0)), 0)
}

func TestSecondWriterGetsAConflict(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	e := openCode(t, "chat1", "evt_1", 0, 10)
	filter := events.ChatFilter("chat1")
	seq, err := l.Append(t.Context(), e, log.Expect{Filter: filter, Last: 0})
	is.NoErr(err)
	_, err = l.Append(t.Context(), openCode(t, "chat1", "evt_2", 1, 10), log.Expect{Filter: filter, Last: 0})
	is.True(errors.Is(err, log.ErrConflict))
	_, err = l.Append(t.Context(), openCode(t, "chat2", "evt_3", 0, 10),
		log.Expect{Filter: events.ChatFilter("chat2"), Last: 0})
	is.NoErr(err) // an append to another chat is no conflict
	_, err = l.Append(t.Context(), openCode(t, "chat1", "evt_2", 1, 10), log.Expect{Filter: filter, Last: seq})
	is.NoErr(err)
}

func TestAppendAllStoresInOrderAndOnce(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	var all []events.Event
	for i := range 1200 {
		all = append(all, openCode(t, "chat1", fmt.Sprintf("evt_%d", i), int64(i), 100))
	}
	_, err := l.AppendAll(t.Context(), all[:700])
	is.NoErr(err)
	_, err = l.AppendAll(t.Context(), all[600:]) // a hundred of them again
	is.NoErr(err)
	got := read(t, l, 0)
	is.Equal(len(got), len(all))
	for i := range got {
		is.Equal(got[i].ID, all[i].ID)
		is.Equal(got[i].OpenCodeSeq, int64(i))
	}
}

func TestLargeBodyIsStoredInBlobs(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	big := openCode(t, "chat1", "evt_big", 0, 12<<20) // more than one message of NATS may have
	_, err := l.AppendAll(t.Context(), []events.Event{openCode(t, "chat1", "evt_0", -1, 10), big,
		openCode(t, "chat1", "evt_2", -1, 10)})
	is.NoErr(err)
	got := read(t, l, 0)
	is.Equal(len(got), 3)
	is.True(bytes.Equal(got[1].Data, big.Data))
	n := 0
	_, err = l.Fold(t.Context(), events.ChatFilter("chat1"), 0, func(e events.Event) error {
		n += len(e.Data)
		return nil
	})
	is.NoErr(err)
	is.True(n > 12<<20)
}

func TestReadContinuesWithNewEvents(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	caughtUp, got, done := make(chan bool, 1), make(chan events.Event, 10), make(chan error, 1)
	go func() {
		done <- l.Read(ctx, 0, []string{"evt.chat.*.created"}, func(b log.Batch) error {
			if len(b.Events) == 0 {
				caughtUp <- true
			}
			for _, e := range b.Events {
				got <- e
			}
			return nil
		})
	}()
	<-caughtUp
	_, err := l.Append(t.Context(), openCode(t, "chat1", "evt_1", 0, 10)) // not asked for
	is.NoErr(err)
	e, _ := events.New("chat1", events.ActorPolicy, events.ChatCreated{Title: "t"})
	_, err = l.Append(t.Context(), e)
	is.NoErr(err)
	is.Equal((<-got).ID, e.ID)
	cancel()
	is.True(errors.Is(<-done, context.Canceled))
}

func TestFoldFiltersAndResumes(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t)
	for i := range 1300 {
		chat := fmt.Sprintf("chat%d", i%2)
		_, err := l.AppendAll(t.Context(), []events.Event{openCode(t, chat, fmt.Sprintf("evt_%d", i), int64(i), 10)})
		is.NoErr(err)
	}
	n := 0
	count := func(e events.Event) error { is.Equal(e.Subject.ID, "chat1"); n++; return nil }
	last, err := l.Fold(t.Context(), events.ChatFilter("chat1"), 0, count)
	is.NoErr(err)
	is.Equal(n, 650)
	is.Equal(last, uint64(1300))
	again, err := l.Fold(t.Context(), events.ChatFilter("chat1"), last, count)
	is.NoErr(err)
	is.Equal(again, last)
	is.Equal(n, 650)
}

func TestForeignMessageIsMalformed(t *testing.T) {
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	is.NoErr(nc.Publish("evt.chat.x.created", []byte("not json")))
	is.NoErr(nc.Publish("evt.nonsense", []byte("{}")))
	is.NoErr(nc.Flush())
	_, err := l.Append(t.Context(), openCode(t, "chat1", "evt_1", 0, 10))
	is.NoErr(err)
	got := read(t, l, 0)
	is.Equal(len(got), 3)
	is.True(got[0].Malformed != nil)
	is.True(got[1].Malformed != nil)
	is.NoErr(got[2].Malformed)
}

func TestSecretsNeverReachTheLog(t *testing.T) {
	is := is.New(t)
	secret := `pass"word/with+odd chars`
	l := eventstest.Log(t, secret, "short")
	body, _ := json.Marshal(map[string]string{"plain": "a " + secret + " z", "ok": "short"})
	e, err := events.NewOpenCode("chat1", "local", "evt_1", -1, events.OpenCode{Type: "session.error", Properties: body})
	is.NoErr(err)
	_, err = l.Append(t.Context(), e)
	is.NoErr(err)
	var got map[string]string
	is.NoErr(json.Unmarshal(read(t, l, 0)[0].Data, &got))
	is.Equal(got, map[string]string{"plain": "a [redacted] z", "ok": "short"})
}

func TestConcealedSecretIsRedactedFromThenOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t, "first-secret")
	say := func(text string) string {
		e, err := events.New("chat1", events.ActorPolicy, events.ChatCreated{Title: text})
		is.NoErr(err)
		seq, err := l.Append(t.Context(), e)
		is.NoErr(err)
		return string(read(t, l, seq-1)[0].Data)
	}
	expect.Contains(t, say("first-secret second-secret"), "[redacted] second-secret")
	var all sync.WaitGroup
	for i := range 20 { // while other writers append
		all.Go(func() {
			l.Conceal(secret.System, fmt.Sprint(i), fmt.Sprintf("secret-of-%d", i), "second-secret")
			say("anything")
		})
	}
	all.Wait()
	expect.Contains(t, say("first-secret second-secret"), "[redacted] [redacted]")
	for i := range 20 {
		expect.Lacks(t, say(fmt.Sprintf("secret-of-%d", i)), "secret-of")
	}
}

func TestHistoriesAreReadOverAConnectionOfTheirOwn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := eventstest.Server(t, expect.MemoryDir(t))
	nc := eventstest.Conn(t, s)
	l := eventstest.Open(t, nc)
	p := log.Start(events.ChatFilter("chat1"))
	advance := func() (n int, requests uint64) {
		t.Helper()
		before := nc.Stats().OutMsgs
		is.NoErr(l.Advance(t.Context(), p, func(events.Event) error { n++; return nil }))
		return n, nc.Stats().OutMsgs - before
	}
	appendLost(t, l, "chat1", 0, 3)
	n, requests := advance()
	is.Equal(n, 3)
	is.Equal(requests, uint64(0))
	appendLost(t, l, "chat1", 3, 1)
	n, requests = advance() // the news
	is.Equal(n, 1)
	is.True(requests > 0)

	is.Equal(s.NumClients(), 2)
	nc.Close()
	expect.Eventually(t, "both are closed", func() bool { return s.NumClients() == 0 })
}
