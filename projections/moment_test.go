package projections_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/projections"
)

// count returns the number of rows of a table.
func count(t testing.TB, db dbx.Builder, of string) (n int) {
	t.Helper()
	if err := db.NewQuery("SELECT count(*) FROM " + of).Row(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// asOf returns the text of every message of a chat as it stood after seq.
func asOf(t testing.TB, log *log.Log, seq uint64) (texts []string, err error) {
	t.Helper()
	err = projections.MomentAt(t.Context(), log, chatID, seq, func(db dbx.Builder, _ events.Event) error {
		return db.NewQuery("SELECT submitted || ' ' || user_message_status FROM messages ORDER BY position").Column(&texts)
	})
	return texts, err
}

func TestChatCanBeReadAsItStoodThen(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log, s := eventstest.Log(t), &eventBuilder{t: t}
	other, err := events.New("chat2", user, events.ChatCreated{Title: "Other", Engine: engine})
	is.NoErr(err)
	seqs := []uint64{}
	for _, e := range []events.Event{other, s.created(), s.submitted("m1"),
		s.own(events.MessageFailed{Message: "m1", Domain: "infrastructure"}), s.submitted("m2")} {
		seq, err := log.Append(t.Context(), e)
		is.NoErr(err)
		seqs = append(seqs, seq)
	}
	_, err = asOf(t, log, seqs[0])
	is.True(errors.Is(err, projections.ErrNoChat))
	for i, want := range []string{"", "pending", "failed", "failed,pending", "failed,pending"} {
		texts, err := asOf(t, log, seqs[1]+uint64(i))
		is.NoErr(err)
		var got []string
		for _, text := range texts {
			got = append(got, text[strings.LastIndex(text, " ")+1:])
		}
		is.Equal(strings.Join(got, ","), want)
	}
	is.NoErr(projections.MomentAt(t.Context(), log, chatID, seqs[4], func(db dbx.Builder, _ events.Event) error {
		is.Equal(count(t, db, "chats"), 1) // this one alone
		return nil
	}))
	is.Equal(projections.MomentAt(t.Context(), log, chatID, seqs[4],
		func(dbx.Builder, events.Event) error { return sql.ErrNoRows }), sql.ErrNoRows)
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
		is.NoErr(projections.MomentAt(t.Context(), l, chatID, uint64(n), func(db dbx.Builder, _ events.Event) error {
			return db.NewQuery(query).Row(&then)
		}))
		is.Equal(then, now)
	}
}

// BenchmarkView reads 50 messages of a long chat with their parts, as a client's list does.
func BenchmarkView(b *testing.B) {
	_, m := longLog(b)
	for name, query := range map[string]string{
		"Nothing":  "",
		"Messages": projections.SelectShown + "m.chat='" + chatID + "' AND NOT m.removed AND m.role<>'' ORDER BY m.created LIMIT 50",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				err := m.View(b.Context(), func(db dbx.Builder, _ uint64) error {
					if query == "" {
						return nil
					}
					var rows []projections.ShownMessage
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
	all := append([]events.Event{own(b, user, events.ChatCreated{Title: "Chat", Engine: engine})},
		copies(b, recording(b, "9i-perm-task"), 20)...)
	last, err := log.AppendAll(b.Context(), all)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		err := projections.MomentAt(b.Context(), log, chatID, last, func(dbx.Builder, events.Event) error { return nil })
		if err != nil {
			b.Fatal(err)
		}
	}
}

func TestMomentsFollowEachOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	all := append([]events.Event{own(t, user, events.ChatCreated{Title: "Chat", User: "ann", Engine: engine})},
		conversation(t, "9i-perm-task")[1:]...)
	_, err := l.AppendAll(t.Context(), all)
	is.NoErr(err)
	const query = "SELECT json_group_array(json_array(id, engine_message_status, cost, last_seq, first_seq, removed)) FROM messages"
	text := func(db dbx.Builder) (s string) {
		is.NoErr(db.NewQuery(query).Row(&s))
		return s
	}
	var want, got []uint64
	end := ""
	_, err = l.Fold(t.Context(), events.ChatFilter(chatID), 0, func(e events.Event) error {
		want = append(want, e.Seq)
		return nil
	})
	is.NoErr(err)
	c := projections.NewMomentCache(l)
	is.NoErr(c.Show(t.Context(), chatID, want[3], len(all), func(db dbx.Builder, last events.Event) error {
		got = append(got, last.Seq)
		end = text(db)
		if len(got)%10 != 0 { // computing each takes seconds
			return nil
		}
		is.NoErr(projections.MomentAt(t.Context(), l, chatID, last.Seq, func(alone dbx.Builder, _ events.Event) error {
			is.Equal(text(db), text(alone)) // the same as if it were computed alone
			return nil
		}))
		return nil
	}))
	is.Equal(got, want[3:])
	is.True(strings.Contains(end, "completed"))
	shown := 0
	stop := errors.New("stop")
	err = c.Show(t.Context(), chatID, 5, 9, func(dbx.Builder, events.Event) error {
		if shown++; shown == 3 {
			return stop
		}
		return nil
	})
	is.Equal(err, stop)
	is.Equal(shown, 3)
}
