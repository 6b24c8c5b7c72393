package opencode_test

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	_ "modernc.org/sqlite"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
)

// holdsHistory waits until the log has the durable events that POST /sync/history returns, unchanged, each once and in
// the order of its session. The log may lack updates of a running tool call. OpenCode has no history of a deleted
// session.
func (w *bridgedOpenCode) holdsHistory(deleted ...string) {
	w.t.Helper()
	expect.Eventually(w.t, "the log has the history", func() bool {
		lacks := w.lacks(deleted)
		if len(lacks) > 0 {
			w.t.Log("the log lacks", len(lacks), "events, such as", lacks[0])
		}
		return len(lacks) == 0
	})
}

func (w *bridgedOpenCode) lacks(deleted []string) (lacks []string) {
	w.t.Helper()
	var stored []events.Event
	_, err := w.log.Fold(w.t.Context(), events.AllEvents, 0, func(e events.Event) error {
		ofDeleted := slices.ContainsFunc(deleted, func(session string) bool {
			return bytes.Contains(e.Data, []byte(session))
		})
		if e.OpenCodeSeq >= 0 && !ofDeleted {
			stored = append(stored, e)
		}
		return e.Malformed
	})
	w.must(err)
	left := w.history()
	is, last := is.New(w.t), map[string]int64{}
	for _, e := range stored {
		there, ok := left[e.ID]
		if !ok {
			w.t.Fatalf("%s %s is in the log twice, or not in the history", e.Subject.Kind, e.ID)
		}
		delete(left, e.ID)
		if e.Source == events.SourceReconcile { // the stream has the same fields in another order
			is.Equal(string(e.Data), string(there.Data))
		}
		is.Equal(e.OpenCodeSeq, there.Seq)
		before, begun := last[there.Aggregate]
		is.True(!begun && there.Seq == 0 || there.Seq > before)
		last[there.Aggregate] = there.Seq
	}
	for _, e := range left {
		if e.Type != "message.part.updated.1" || !bytes.Contains(e.Data, []byte(`"status":"running"`)) {
			lacks = append(lacks, fmt.Sprint(e.Aggregate, " ", e.Seq, " ", e.Type))
		}
	}
	return lacks
}

// durable is a durable event as OpenCode's own API returns it.
type durable struct {
	ID, Type  string
	Aggregate string `json:"aggregate_id"`
	Seq       int64
	Data      json.RawMessage
}

// history returns all durable events by id.
func (w *bridgedOpenCode) history() map[string]durable {
	w.t.Helper()
	resp := w.request("POST", "/sync/history", w.client.Password(), "{}")
	defer resp.Body.Close()
	var all []durable
	w.must(json.NewDecoder(resp.Body).Decode(&all))
	byID := map[string]durable{}
	for _, e := range all {
		byID[e.ID] = e
	}
	return byID
}

// session makes a session in OpenCode that no chat asked for.
func (w *bridgedOpenCode) session(title string) string {
	w.t.Helper()
	s, err := w.client.CreateSession(w.t.Context(), client.NewSession{Directory: w.workspace, Title: title})
	w.must(err)
	return s.ID
}

func (w *bridgedOpenCode) request(method, path, password, body string) *http.Response {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), method, w.client.URL()+path, strings.NewReader(body))
	w.must(err)
	r.SetBasicAuth("opencode", password)
	r.Header.Set("Content-Type", "application/json")
	resp, err := w.client.HTTP().Do(r)
	w.must(err)
	return resp
}

// status returns the status of the answer to a request.
func (w *bridgedOpenCode) status(method, path, password, body string) int {
	w.t.Helper()
	resp := w.request(method, path, password, body)
	w.must(resp.Body.Close())
	return resp.StatusCode
}

// rename changes the title of a session.
func (w *bridgedOpenCode) rename(session, title string) {
	w.t.Helper()
	is.New(w.t).Equal(w.status("PATCH", "/session/"+session, w.client.Password(), fmt.Sprintf(`{"title":%q}`, title)),
		http.StatusOK)
}

// copies is the start of a statement that selects the numbers from 1 to its first argument.
const copies = "WITH RECURSIVE copies(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM copies WHERE n<?) "

// inDatabase executes a statement in OpenCode's database. It makes events there, because OpenCode itself needs about
// 50 ms of processor time for each.
func (w *bridgedOpenCode) inDatabase(statement string, args ...any) {
	w.t.Helper()
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(w.workspace), "*", "data", "opencode", "opencode.db"))
	w.must(err)
	is.New(w.t).Equal(len(paths), 1)
	database, err := sql.Open("sqlite", paths[0]+"?_pragma=busy_timeout(10000)")
	w.must(err)
	defer database.Close()
	_, err = database.Exec(statement, args...)
	w.must(err)
}

// copySession makes copies of a session, which must have a single event.
func (w *bridgedOpenCode) copySession(session string, number int) {
	w.t.Helper()
	w.inDatabase(copies+`INSERT INTO event(id, aggregate_id, seq, type, data)
		SELECT id||n, 'ses_'||n, seq, type, replace(data, aggregate_id, 'ses_'||n) FROM event, copies
		WHERE aggregate_id=?`, number, session)
	w.inDatabase(copies+"INSERT INTO event_sequence(aggregate_id, seq) SELECT 'ses_'||n, 0 FROM copies", number)
}

// repeatLastEvent adds copies of the last event to a session.
func (w *bridgedOpenCode) repeatLastEvent(session string, number int) {
	w.t.Helper()
	w.inDatabase(copies+`INSERT INTO event(id, aggregate_id, seq, type, data)
		SELECT id||n, aggregate_id, seq+n, type, data FROM event JOIN event_sequence USING (aggregate_id, seq), copies
		WHERE aggregate_id=?`, number, session)
	w.inDatabase("UPDATE event_sequence SET seq=seq+? WHERE aggregate_id=?", number, session)
}

// missedEventsAreFetchedInPages comes first: it compares the whole history with the log.
func missedEventsAreFetchedInPages(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	turn := func(session, script string) {
		turn(t, w.client, w.workspace, session, script, idle(t, w.client, session))
	}

	is.Equal(w.status("GET", "/pocketcoder/history", w.client.Password(), ""), http.StatusOK)
	is.Equal(w.status("GET", "/pocketcoder/history", "other", ""), http.StatusUnauthorized)
	is.Equal(w.status("POST", "/pocketcoder/history", "other", "[]"), http.StatusUnauthorized)

	long, wide, other, deleted := w.session("long"), w.session("wide"), w.session("other"), w.session("deleted")
	w.rename(long, "a title")
	w.repeatLastEvent(long, 600) // more than a page
	w.rename(wide, strings.Repeat("wide ", 20_000))
	w.repeatLastEvent(wide, 45) // more than the bytes of a page
	turn(other, `@@call bash {"command":"echo one","description":"d"}`+"\n@@next\n@@say one")
	turn(other, `@@call task {"description":"d","prompt":"look","subagent_type":"general"}`+"\n@@next\n@@say two")
	many := w.session("many")
	w.copySession(many, 130) // more than one page names
	disconnect := w.connect()
	w.must(w.outbox.Ingest.WaitConnected(t.Context()))
	w.holdsHistory()
	chat := w.chat()
	w.say(chat, "@@say one")
	w.say(chat, "@@say two")
	own := w.row(chat).Session
	disconnect()

	messages, err := w.client.Messages(t.Context(), own)
	is.NoErr(err)
	w.must(w.client.DeleteMessage(t.Context(), own, messages[3].Info.ID))
	w.must(w.client.Revert(t.Context(), own, messages[2].Info.ID))
	turn(other, "@@say three")
	w.rename(many, "renamed")
	w.must(w.client.DeleteSession(t.Context(), deleted))
	young := w.session("young")
	w.must(w.client.Prompt(t.Context(), young, client.Prompt{MessageID: "msg_young",
		Parts: []client.PromptPart{{ID: "prt_young", Type: "text",
			Text: `@@call bash {"command":"echo two","description":"d"}`}}}))
	expect.Eventually(t, "OpenCode asks", func() bool {
		requests, err := w.client.PermissionRequests(t.Context(), w.workspace)
		w.must(err)
		return len(requests) == 1
	})
	before := w.outbox.Ingest.Condition().Stored
	defer w.connect()()
	w.must(w.outbox.Ingest.WaitConnected(t.Context()))
	t.Log("events stored after the reconnect:", w.outbox.Ingest.Condition().Stored-before)
	w.holdsHistory(deleted)
	row, _, err := w.model.Session(t.Context(), own)
	is.NoErr(err)
	is.True(row.Outcome != "") // the read model has caught up
	is.Equal(w.title(many), "renamed")
	requests, err := w.model.PendingRequests(t.Context())
	is.NoErr(err)
	is.Equal(len(requests), 1)
	is.Equal(requests[0].Session, young)
	w.shows(chat, "@@say one|one|@@say two") // OpenCode keeps a reverted message until the next prompt
	w.say(chat, "@@say again")               // the next live event follows without a gap
	w.shows(chat, "@@say one|one|@@say again|again")
	w.holdsHistory(deleted)
}

// title is the title of the chat of a session.
func (w *bridgedOpenCode) title(session string) string {
	w.t.Helper()
	row, _, err := w.model.Session(w.t.Context(), session)
	w.must(err)
	return w.row(row.Chat).Title
}
