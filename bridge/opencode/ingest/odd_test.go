package ingest_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/bridge/opencode/outbox"
	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

func TestAHugeEventIsStoredWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := bridgetest.Connected(t)
	s.Session("ses_1", "")
	body := `{"sessionID":"ses_1","todos":[{"content":"` + strings.Repeat("x", 32<<20) + `"}]}`
	s.Say(bridgetest.Plain("todo.updated", body))
	s.Happen(bridgetest.Plain("session.idle", `{"sessionID":"ses_1"}`))
	s.Drained()
	stored := s.OpenCodeEvents(s.ChatOf("ses_1"), "todo.updated")
	is.Equal(len(stored), 1)
	is.True(string(stored[0].Data) == body)
	is.Equal(len(s.OpenCodeEvents(s.ChatOf("ses_1"), "session.idle")), 1)
}

func TestUnusualEventsAreStored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, b := bridgetest.Connected(t)
	s.Session("ses_1", "")
	s.Happen(
		bridgetest.Plain("an odd > type", `{"sessionID":"ses_1","n":1}`),
		bridgetest.Plain("message.part.delta", `{"sessionID":"ses_1","messageID":"msg.*","partID":">","delta":"odd ids"}`),
		bridgetest.Plain("message.part.delta", `{"sessionID":"ses_1","messageID":7}`),
		bridgetest.Plain("session.idle", `{"sessionID":"a session > of *"}`),
		bridgetest.Plain("todo.updated", `[1,2]`),
		[]byte(`{"payload":{"id":"evt * > \n.","type":"session.compacted","properties":{"sessionID":"ses_1"}}}`),
		[]byte(`{"payload":{"id":"evt_x","type":"file.edited"}}`),
		bridgetest.Plain("session.idle", `{"sessionID":"ses_1"}`))
	s.Happen(s.Durably("ses_1", "an odd.> type", `{"sessionID":"ses_1"}`)...)
	s.Happen(s.Durably("workspace of * >", "workspace.moved", `{"n":2}`)...)
	s.Happen(s.Durably("ses_1", "session.updated",
		`{"sessionID":"ses_1","info":{"id":"ses_1","directory":"/workspace","title":"last"}}`)...)
	s.Drained()
	chat := s.ChatOf("ses_1")
	is.Equal(len(s.OpenCodeEvents(chat, "message.part.delta")), 0) // they are fragments, whatever their ids
	is.Equal(len(s.OpenCodeEvents(chat, "session.compacted")), 1)
	is.Equal(len(s.OpenCodeEvents(chat, "session.idle")), 1)
	is.Equal(len(s.OpenCodeEvents(chat, "session.updated")), 1)
	engine := func(typ string) int { return len(s.Events(events.EngineOpenCodeSubject(b.Engine, typ))) }
	is.Equal(engine("session.idle"), 1)
	is.Equal(engine("todo.updated"), 1)
	is.Equal(engine("workspace.moved"), 1)
	is.Equal(engine("server.connected"), 1) // the connection was not cut
	stored := s.Events(events.EngineOpenCodeSubject(b.Engine, ingest.Unstorable))
	// the last event came in both forms
	types := []string{"an odd > type", "file.edited", "an odd.> type", "an odd.> type"}
	is.Equal(len(stored), len(types))
	for i, typ := range types {
		var body struct{ Type string }
		is.NoErr(json.Unmarshal(stored[i].Data, &body))
		is.Equal(body.Type, typ)                   // stored
		expect.Contains(t, b.Logged.String(), typ) // and logged
	}
}

func TestSecretsDoNotReachTheLog(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const canary = "sk-canary-0123456789abcdef"
	s := bridgetest.NewSystem(t, canary)
	deltas := listen(t, s.NC)
	s.Start().Connected()
	info := `{"sessionID":"ses_1","info":{"id":"ses_1","directory":"/workspace","title":"key ` + canary + `"}}`
	s.Happen(s.Durably("ses_1", "session.created", info)...)
	s.Happen(bridgetest.Plain("session.error", `{"sessionID":"ses_1","error":{"name":"APIError","data":{"message":"bad key `+canary+`"}}}`),
		bridgetest.Plain("message.part.delta", `{"sessionID":"ses_1","messageID":"msg_1","partID":"prt_1","delta":"`+canary+
			`"}`))
	s.Drained()
	for _, e := range s.Events(events.AllEvents) {
		is.True(!bytes.Contains(e.Data, []byte(canary)))
	}
	for _, m := range deltas() {
		is.True(!bytes.Contains(m.Data, []byte(canary)))
	}
	stored := s.OpenCodeEvents(s.ChatOf("ses_1"), "session.error")
	is.Equal(len(stored), 1)
	is.True(bytes.Contains(stored[0].Data, []byte("bad key [redacted]")))
}

func TestTheGateGetsTheOriginalOfARequestThatTheLogConceals(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := bridgetest.NewSystem(t)
	s.Log.Conceal(secret.System, "token", "private/archive01")
	originals := make(chan events.PermissionRequest, 9)
	b := s.Start(func(o *outbox.Outbox) {
		o.Ingest.KeepOriginal = func(a events.PermissionRequest) { originals <- a }
	}).Connected()
	request := `{"id":"per_1","sessionID":"ses_1","permission":"edit","patterns":["private/archive01/a"],"metadata":{},"always":[]}`
	s.Session("ses_1", "")
	s.Happen(bridgetest.Plain("session.status", `{"sessionID":"ses_1","status":{"type":"busy"}}`),
		bridgetest.Plain("permission.asked", strings.Replace(request, "private/archive01", "public", 1)),
		bridgetest.Plain("permission.asked", strings.Replace(request, "per_1", "per_2", 1)))
	s.Drained()
	is.Equal((<-originals).Patterns, []string{"private/archive01/a"}) // only that of the request that is concealed
	stored := s.OpenCodeEvents(s.ChatOf("ses_1"), "permission.asked")
	is.Equal(len(stored), 2)
	expect.Contains(t, string(stored[1].Data), `"[redacted]/a"`)
	s.Reconnected(b, func() {}) // as the gate of another process needs it
	again := <-originals
	is.Equal([]any{again.ID, again.Patterns}, []any{"per_2", []string{"private/archive01/a"}})
}
