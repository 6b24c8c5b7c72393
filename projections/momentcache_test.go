package projections

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"
	"pgregory.net/rapid"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
)

// recorded returns events of a chat: a recording of OpenCode several times, each time with ids of its own.
func recorded(t testing.TB, chat string, times int) (all []events.Event) {
	t.Helper()
	is := is.New(t)
	created, err := events.New(chat, events.UserActor("ann"), events.ChatCreated{User: "ann", Engine: "oc1"})
	is.NoErr(err)
	all = append(all, created)
	text, err := os.ReadFile("testdata/9i-perm-task.jsonl")
	is.NoErr(err)
	ids := regexp.MustCompile(`\b(ses|msg|prt|per|evt|call)_`)
	for i := range times {
		own := ids.ReplaceAllString(string(text), fmt.Sprint("${1}_", chat, "x", i))
		for lines := bufio.NewScanner(strings.NewReader(own)); lines.Scan(); {
			var r struct {
				ID, Type   string
				Seq        int64
				Properties json.RawMessage
			}
			is.NoErr(json.Unmarshal(lines.Bytes(), &r))
			e, err := events.NewOpenCode(chat, "oc1", r.ID, r.Seq, events.OpenCode{Type: r.Type, Properties: r.Properties})
			is.NoErr(err)
			all = append(all, e)
		}
	}
	return all
}

func appended(t testing.TB, l *log.Log, all []events.Event) uint64 {
	t.Helper()
	last, err := l.AppendAll(t.Context(), all)
	is.New(t).NoErr(err)
	return last
}

// content returns all rows of all tables but those of SQLite: indexes are created later than in a saved moment.
func content(db dbx.Builder) (text string, err error) {
	var names []string
	err = db.NewQuery(`SELECT name FROM pragma_table_list
		WHERE schema='main' AND type='table' AND name NOT LIKE 'sqlite%' ORDER BY name`).Column(&names)
	for _, name := range names {
		var rows []dbx.NullStringMap
		if err == nil {
			err = db.NewQuery("SELECT * FROM " + name + " ORDER BY 1").All(&rows)
		}
		for _, r := range rows {
			line, _ := json.Marshal(r) // sorts the columns
			text += name + string(line) + "\n"
		}
	}
	return text, err
}

// shown returns the moments that a function shows.
func shown(show func(MomentView) error) (all []string, err error) {
	err = show(func(db dbx.Builder, last events.Event) error {
		text, err := content(db)
		all = append(all, fmt.Sprint(last.Seq, last.ID, "\n", text))
		return err
	})
	return all, err
}

func TestACachedMomentEqualsTheComputedOne(t *testing.T) {
	t.Parallel()
	l := eventstest.Log(t)
	all, other := recorded(t, "chat1", 2), recorded(t, "chat2", 1)
	known := appended(t, l, append(append(append([]events.Event{}, other[:20]...), all[:120]...), other[20:]...))
	all = all[120:]
	want := map[uint64]string{}
	computed := func(seq uint64) string {
		if want[seq] == "" {
			one, err := shown(func(fn MomentView) error { return MomentAt(context.Background(), l, "chat1", seq, fn) })
			if want[seq] = strings.Join(one, ""); errors.Is(err, ErrNoChat) {
				want[seq] = err.Error()
			}
		}
		return want[seq]
	}
	expect.Property(t, func(r *rapid.T) {
		c := NewMomentCache(l)
		every := rapid.IntRange(1, 30).Draw(r, "every")
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			switch rapid.IntRange(0, 9).Draw(r, "step") {
			case 0: // the chat goes on
				if n := min(rapid.IntRange(1, 30).Draw(r, "appended"), len(all)); n > 0 {
					maps.DeleteFunc(want, func(seq uint64, _ string) bool { return seq > known })
					known, all = appended(t, l, all[:n]), all[n:]
				}
			case 1: // it was not used for long
				if len(c.chats) > 0 {
					c.remove(c.chats[0])
				}
			case 2: // another chat is read
				_, err := shown(func(fn MomentView) error { return c.Show(context.Background(), "chat2", known, 0, fn) })
				if err != nil {
					r.Fatal(err)
				}
			default:
				seq := uint64(rapid.IntRange(1, int(known)+3).Draw(r, "seq"))
				more := rapid.IntRange(0, 3).Draw(r, "more")
				c.leave(c.enter("chat1"))
				if k := c.chats[0]; len(k.model.saves) == 0 {
					k.model.every = every
				}
				got, err := shown(func(fn MomentView) error { return c.Show(context.Background(), "chat1", seq, more, fn) })
				steps, _ := c.Events(context.Background(), "chat1")
				later := slices.DeleteFunc(slices.Clone(steps), func(e MomentEvent) bool { return e.Seq <= seq })
				if count := 1 + min(more, len(later)); err == nil && len(got) != count {
					r.Fatalf("%d moments from #%d on, want %d", len(got), seq, count)
				}
				if err != nil {
					got = []string{err.Error()}
				}
				for i, one := range got {
					at := seq
					if i > 0 {
						at = later[i-1].Seq
					}
					if one != computed(at) {
						r.Fatalf("after #%d:\n%s\ncomputed:\n%s", at, one, computed(at))
					}
				}
			}
		}
		for len(c.chats) > 0 {
			c.remove(c.chats[0])
		}
	})
}

func TestACacheIsBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	c := NewMomentCache(l)
	var last uint64
	var models []*momentModel
	for i := range maxMomentChats + 2 {
		id := fmt.Sprint("chat", i)
		last = appended(t, l, recorded(t, id, 1))
		_, err := c.Events(t.Context(), id)
		is.NoErr(err)
		c.chats[0].model.every = 5
		is.NoErr(c.Show(t.Context(), id, last, 0, func(dbx.Builder, events.Event) error { return nil }))
		models = append(models, c.chats[0].model)
	}
	is.Equal(len(c.chats), maxMomentChats)
	is.True(models[0].memory == nil && models[1].memory == nil) // the two that were used longest ago
	is.True(models[2].memory != nil)

	m := models[maxMomentChats+1]
	saves, size := len(m.saves), m.saved
	is.True(saves > 4)
	m.limit = size / 2
	m.every = 1
	is.NoErr(m.save())
	is.True(m.saved <= m.limit)
	is.True(len(m.saves) > 0)
	c.remove(c.chats[0])
	is.True(m.memory == nil)
	is.Equal(len(c.chats), maxMomentChats-1)
}
