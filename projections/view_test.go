package projections

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/expect"
)

// count gives how many rows a condition on a table has.
func count(t testing.TB, db dbx.Builder, of string) (n int) {
	t.Helper()
	if err := db.NewQuery("SELECT count(*) FROM " + of).Row(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestViewSeesOneMoment(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &story{t: t}
	feed(t, m, s.created(), s.submitted("m1"))
	err := m.View(t.Context(), func(db dbx.Builder, seq uint64) error {
		is.Equal(seq, uint64(2))
		feed(t, m, s.submitted("m2")) // committed before the first query of ours
		is.Equal(m.Seq(), uint64(3))
		is.Equal(count(t, db, "messages"), 1)
		is.Equal(count(t, db, "checkpoint WHERE seq=2"), 1)
		return nil
	})
	is.NoErr(err)
	is.NoErr(m.View(t.Context(), func(db dbx.Builder, seq uint64) error {
		is.Equal(seq, uint64(3))
		is.Equal(count(t, db, "messages"), 2)
		return nil
	}))
}

// Clients go away at any moment, also while a transaction begins.
func TestAViewThatIsCancelledBreaksNoOther(t *testing.T) {
	t.Parallel()
	m := still(t)
	nothing := func(dbx.Builder, uint64) error { return nil }
	for i := range 5000 {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range i % 100 {
				runtime.Gosched()
			}
			cancel()
		}()
		_ = m.View(ctx, nothing)
		if err := m.View(t.Context(), nothing); err != nil {
			t.Fatalf("after %d views that were cancelled: %v", i+1, err)
		}
	}
}

func TestViewOnlyReads(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	mine := errors.New("mine")
	is.Equal(m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
		_, err := db.NewQuery("DELETE FROM chats").Execute()
		is.True(err != nil)
		return mine // given back as it is
	}), mine)
}

func TestQueriesOfAViewEndWithItsContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	ctx, cancel := context.WithCancel(t.Context())
	err := m.View(ctx, func(db dbx.Builder, _ uint64) error {
		cancel()
		var n int
		return db.NewQuery("WITH RECURSIVE all_of(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM all_of) SELECT count(*) FROM all_of").Row(&n)
	})
	is.True(errors.Is(err, context.Canceled))
	is.True(errors.Is(m.View(ctx, nil), context.Canceled))
}

func TestOneViewTooManyWaitsForAnother(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := still(t)
	inside, leave, ended := make(chan bool), make(chan bool), make(chan error, maxViews)
	free := sync.OnceFunc(func() { close(leave) })
	defer free()
	for range maxViews {
		go func() {
			ended <- m.View(t.Context(), func(dbx.Builder, uint64) error { inside <- true; <-leave; return nil })
		}()
	}
	for range maxViews {
		<-inside
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := m.View(ctx, func(dbx.Builder, uint64) error { return errors.New("it did not wait") })
	is.True(errors.Is(err, context.DeadlineExceeded))
	free()
	for range maxViews {
		is.NoErr(<-ended)
	}
	is.NoErr(m.View(t.Context(), func(dbx.Builder, uint64) error { return nil }))
}

// queryPlan says how SQLite would find the rows.
func queryPlan(t testing.TB, m *Model, query string) (plan string) {
	t.Helper()
	err := m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
		var steps []struct{ Detail string }
		err := db.NewQuery("EXPLAIN QUERY PLAN " + query).All(&steps)
		for _, s := range steps {
			plan += s.Detail + "\n"
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestListsOfClientsComeFromAnIndex(t *testing.T) {
	t.Parallel()
	m := still(t)
	for query, index := range map[string]string{
		"SELECT * FROM messages WHERE chat='c' AND NOT removed AND role<>'' ORDER BY created LIMIT 50":                                                  "messages_created",
		"SELECT * FROM messages WHERE chat='c' AND NOT removed AND role<>'' ORDER BY created DESC, first_seq DESC, id DESC":                             "messages_created",
		"SELECT * FROM messages WHERE chat='c' ORDER BY position":                                                                                       "messages_chat",
		"SELECT * FROM chats WHERE user='u' AND NOT removed ORDER BY last_active DESC LIMIT 50":                                                         "chats_user",
		"SELECT * FROM config WHERE collection='sops' AND record='r'":                                                                                   "config_record",
		"SELECT * FROM users WHERE email='e'":                                                                                                           "users_email",
		"SELECT * FROM commands c WHERE EXISTS (SELECT 1 FROM executions x WHERE x.command=c.id) AND c.id='one'":                                        "executions_command",
		"SELECT * FROM artifacts WHERE execution='x' ORDER BY path":                                                                                     "artifacts_execution",
		"SELECT x.*, coalesce(c.command,'') AS text FROM executions x LEFT JOIN commands c ON c.id=x.command WHERE 1 ORDER BY x.position DESC LIMIT 50": "executions_position",
	} {
		plan := queryPlan(t, m, query)
		expect.Contains(t, plan, index) // the index is used
		expect.Lacks(t, plan, "TEMP")   // and nothing sorted
	}
	for _, table := range shownTables {
		expect.Contains(t, queryPlan(t, m, "SELECT * FROM "+table+" WHERE last_seq > 7"), table+"_last")
	}
}

func TestUsageCanBeReadAsOtherRows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &story{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.assistant(ses, "msg_a", msg1, ended))
	rows, err := m.Usage(t.Context(), chatID)
	is.NoErr(err)
	is.Equal(len(rows), 1)
	is.Equal(rows[0].ID, chatID+"."+rows[0].Provider+"."+rows[0].Model)
	is.Equal(rows[0].Last, int64(m.Seq()))
	is.True(!rows[0].Removed)
}

// asOf gives the text of every message of a chat as it stood after seq.
func asOf(t testing.TB, log *log.Log, seq uint64) (texts []string, err error) {
	t.Helper()
	err = At(t.Context(), log, chatID, seq, func(db dbx.Builder) error {
		return db.NewQuery("SELECT submitted || ' ' || user_message_status FROM messages ORDER BY position").Column(&texts)
	})
	return texts, err
}

func TestChatCanBeReadAsItStoodThen(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log, s := eventstest.Log(t), &story{t: t}
	other, err := events.New("chat2", user, events.ChatCreated{Title: "Other", Engine: engine})
	is.NoErr(err)
	seqs := []uint64{}
	for _, e := range []events.Event{other, s.created(), s.submitted("m1"), s.own(events.MessageFailed{Message: "m1", Domain: "infrastructure"}), s.submitted("m2")} {
		seq, err := log.Append(t.Context(), e)
		is.NoErr(err)
		seqs = append(seqs, seq)
	}
	_, err = asOf(t, log, seqs[0])
	is.True(errors.Is(err, ErrNoChat))
	for i, want := range []string{"", "pending", "failed", "failed,pending", "failed,pending"} {
		texts, err := asOf(t, log, seqs[1]+uint64(i))
		is.NoErr(err)
		var got []string
		for _, text := range texts {
			got = append(got, text[strings.LastIndex(text, " ")+1:])
		}
		is.Equal(strings.Join(got, ","), want)
	}
	is.NoErr(At(t.Context(), log, chatID, seqs[4], func(db dbx.Builder) error {
		is.Equal(count(t, db, "chats"), 1) // this one alone
		return nil
	}))
	is.Equal(At(t.Context(), log, chatID, seqs[4], func(dbx.Builder) error { return sql.ErrNoRows }), sql.ErrNoRows)
}

func TestChatAsItStoodIsWhatTheReadModelsHeldThen(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l, m := eventstest.Log(t), still(t)
	all := copies(t, conversation(t, "9i-perm-task")[1:], 8) // several batches
	all = append([]events.Event{own(t, user, events.ChatCreated{Title: "Chat", User: "ann", Engine: engine})}, all...)
	_, err := l.AppendAll(t.Context(), all)
	is.NoErr(err)
	const query = "SELECT json_group_array(json_array(id, engine_message_status, cost, last_seq, first_seq, removed)) FROM messages"
	for _, n := range []int{1, 40, log.MaxBatch, len(all)} {
		feed(t, m, all[m.Seq():n]...)
		var then, now string
		is.NoErr(m.View(t.Context(), func(db dbx.Builder, _ uint64) error { return db.NewQuery(query).Row(&now) }))
		is.NoErr(At(t.Context(), l, chatID, uint64(n), func(db dbx.Builder) error { return db.NewQuery(query).Row(&then) }))
		is.Equal(then, now)
	}
}

// BenchmarkView reads 50 messages of a long chat with their parts, as a client's list does.
func BenchmarkView(b *testing.B) {
	_, m := longLog(b)
	for name, query := range map[string]string{
		"Nothing":  "",
		"Messages": selectShown + "m.chat='" + chatID + "' AND NOT m.removed AND m.role<>'' ORDER BY m.created LIMIT 50",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				err := m.View(b.Context(), func(db dbx.Builder, _ uint64) error {
					if query == "" {
						return nil
					}
					var rows []ShownMessage
					if err := db.NewQuery(query).All(&rows); err != nil {
						return err
					}
					if len(rows) != 50 {
						return fmt.Errorf("%d rows", len(rows))
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkAt computes a chat of 100 messages from the log.
func BenchmarkAt(b *testing.B) {
	log := eventstest.Log(b)
	all := append([]events.Event{own(b, user, events.ChatCreated{Title: "Chat", Engine: engine})}, copies(b, recording(b, "9i-perm-task"), 20)...)
	last, err := log.AppendAll(b.Context(), all)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := At(b.Context(), log, chatID, last, func(dbx.Builder) error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
