package projections_test

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/projections"
)

// checkTextIndexes compares the indexes of texts in a closed file with the rows that they are about.
func checkTextIndexes(t *testing.T, dir string) {
	t.Helper()
	is := is.New(t)
	files, err := filepath.Glob(filepath.Join(dir, "readmodel.v*.db"))
	is.NoErr(err)
	is.Equal(len(files), 1)
	db, err := sql.Open("sqlite", "file:"+files[0])
	is.NoErr(err)
	defer db.Close()
	for _, index := range []string{"search_parts", "search_chats", "search_decisions"} {
		_, err := db.ExecContext(t.Context(), "INSERT INTO "+index+"("+index+", rank) VALUES('integrity-check', 1)")
		is.NoErr(err)
		var n int
		is.NoErr(db.QueryRowContext(t.Context(), "SELECT count(*) FROM "+index+"_idx").Scan(&n))
		is.True(n > 0) // it has entries
	}
}

func TestIndexesOfTextsHoldWhatTheRowsHold(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	log, dir := eventstest.Log(t), t.TempDir()
	m, err := projections.Open(t.Context(), dir, log)
	is.NoErr(err)
	stop := work(t, m)
	s := &eventBuilder{t: t}
	ofAnother := func(d events.Data) events.Event {
		e, err := events.New("chat2", user, d)
		is.NoErr(err)
		return e
	}
	deep := strings.Repeat("[", 2000) + strings.Repeat("]", 2000)
	for _, e := range append(conversation(t, "9i-perm-task"),
		textPart(s, "msg_a", "prt_a", "first words"), textPart(s, "msg_a", "prt_a", "other words"),
		textPart(s, "msg_a", "prt_b", "more"),
		s.opencode(true, "message.part.removed", `{"sessionID":"`+ses+`","messageID":"msg_a","partID":"prt_b"}`),
		s.opencode(true, "message.part.updated", `{"sessionID":"`+ses+
			`","part":{"id":"prt_c","messageID":"msg_a","sessionID":"`+ses+`","type":"tool","state":{"input":`+deep+`}}}`),
		s.opencode(true, "message.part.updated", `{"sessionID":"`+ses+
			`","part":{"id":"prt_d","messageID":"msg_a","sessionID":"`+ses+
			`","type":"tool","state":{"output":7,"input":{"command":["a"]}}}}`),
		s.request("per_x", ses, "date"), s.own(events.PermissionDecided{Permission: "per_x", Decision: events.Denied,
			Reason: "not now"}),
		s.own(events.ChatUpdated{Title: new("Named")}), s.own(events.ChatUpdated{Tags: new("a,b")}),
		ofAnother(events.ChatCreated{Title: "Another"}), ofAnother(events.ChatUpdated{Description: new("about it")}),
	) {
		seq, err := log.Append(t.Context(), e)
		is.NoErr(err)
		is.NoErr(m.Wait(t.Context(), seq)) // a batch each
	}
	letters, err := m.DeadLetters(t.Context(), 1)
	is.NoErr(err)
	is.Equal(letters.Count, 0)
	stop()
	is.NoErr(m.Close())
	checkTextIndexes(t, dir)

	m, err = projections.Open(t.Context(), dir, log)
	is.NoErr(err)
	stop = work(t, m)
	_, err = m.Rebuild(t.Context(), func(uint64, uint64) {})
	is.NoErr(err)
	last, err := log.Append(t.Context(), textPart(s, "msg_a", "prt_a", "words after the rebuild"))
	is.NoErr(err)
	is.NoErr(m.Wait(t.Context(), last))
	stop()
	is.NoErr(m.Close())
	checkTextIndexes(t, dir)
}
