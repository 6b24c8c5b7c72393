package query

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"
)

// newBenchDatabase returns a database with 40 chats of 250 messages of about 2 KB.
func newBenchDatabase(b *testing.B) *dbx.DB {
	b.Helper()
	is := is.New(b)
	db := open(b)
	text := strings.Repeat("All work and no play. ", 45)
	is.NoErr(db.Transactional(func(tx *dbx.Tx) error {
		for i := range 40 * 250 {
			chat, id := fmt.Sprintf("busy%d", i%40), fmt.Sprintf("busy%d", i)
			if i < 40 {
				if _, err := tx.NewQuery("INSERT INTO chats VALUES({:id}, 'busy', 'ann', 0, 1, {:at}, {:at}, {:seq}, {:seq}, 0)").Bind(dbx.Params{"id": chat, "at": at(i), "seq": i}).Execute(); err != nil {
					return err
				}
			}
			if _, err := tx.NewQuery("INSERT INTO messages VALUES({:id}, {:chat}, 'user', 'delivered', '', {:at}, {:at}, {:seq}, {:seq}, 0)").Bind(dbx.Params{"id": id, "chat": chat, "at": at(i), "seq": i}).Execute(); err != nil {
				return err
			}
			for _, part := range []string{"a", "b"} {
				if _, err := tx.NewQuery("INSERT INTO parts VALUES({:id}, {:message}, {:data})").Bind(dbx.Params{"id": id + part,
					"message": id, "data": `{"type":"text","text":"` + text + `"}`}).Execute(); err != nil {
					return err
				}
			}
		}
		return nil
	}))
	return db
}

func BenchmarkListOf50Messages(b *testing.B) {
	db := newBenchDatabase(b)
	for _, bench := range []struct {
		name string
		q    Query
	}{
		{"of a chat", Query{Filter: `chat = "busy7"`, Sort: "-created", PerPage: 50}},
		{"of a chat without total", Query{Filter: `chat = "busy7"`, Sort: "-created", PerPage: 50, SkipTotal: true}},
		{"all mine", Query{Sort: "-created", PerPage: 50}},
		{"expanded", Query{Filter: `chat = "busy7"`, Sort: "-created", PerPage: 50, SkipTotal: true, Expand: "chat.user"}},
		{"one", Query{Filter: `chat = "busy7"`, Sort: "-created", PerPage: 1, SkipTotal: true}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			is := is.New(b)
			var out []byte
			for b.Loop() {
				page, err := list(b.Context(), b, db, "messages", requestOf("ann"), bench.q)
				is.NoErr(err)
				out = page.AppendJSON(out[:0])
			}
			b.ReportMetric(float64(len(out)), "B/page")
		})
	}
}
