package events_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
)

// hostile are ids that would widen a filter, leave their token or be stored and never found again.
var hostile = []string{
	"", "*", ">", ".", "a.b", "a.", ".a", "a*", "a>", " ", "a b", "a\n", "\n", "a\x00", "ä", "a\u200b", "ａ", "🙂", "a/b",
	`a\b`, "a:b",
	"$JS", strings.Repeat("a", 65), strings.Repeat("a", 1<<20), "a\xff", "%2a", "a\r\nNats-Msg-Id: x",
}

func TestHostileIDsAreRefused(t *testing.T) {
	is := is.New(t)
	for _, id := range hostile {
		_, err := events.ParseID(id)
		is.True(err != nil)             // must be refused
		is.True(len(err.Error()) < 400) // and not be repeated at length
		_, err = events.New(id, events.ActorPolicy, events.TurnLost{})
		is.True(err != nil) // nor become a subject
		for _, subject := range []string{events.ChatSubject(id, "created"), "evt.engine." + id + ".opencode.x",
			"evt.chat.c1." + id} {
			if id == "a.b" { // a well-formed subject with another id and kind
				continue
			}
			_, err = events.ParseSubject(subject)
			is.True(err != nil)
		}
	}
	for _, id := range []string{"a", "Z", "0", "_", "-", "ses_abc-DEF", strings.Repeat("a", 64)} {
		got, err := events.ParseID(id)
		is.NoErr(err)
		is.Equal(got, id)
	}
}

func TestNewIDsAreDistinctAndValid(t *testing.T) {
	is := is.New(t)
	seen := map[string]bool{}
	for range 10_000 {
		id := events.NewID()
		_, err := events.ParseID(id)
		is.NoErr(err)
		is.Equal(len(id), 15)
		is.Equal(strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789"), "") // what PocketBase clients take
		is.True(!seen[id])
		seen[id] = true
	}
}

func TestParseSubject(t *testing.T) {
	is := is.New(t)
	for subject, want := range map[string]events.Subject{
		"evt.chat.c1.created":                           {Scope: events.ScopeChat, ID: "c1", Kind: "created"},
		"evt.chat.c1.message.submitted":                 {Scope: events.ScopeChat, ID: "c1", Kind: "message.submitted"},
		"evt.chat.c1.opencode.message.part.updated":     {Scope: events.ScopeChat, ID: "c1", Kind: "opencode.message.part.updated"},
		"evt.config.ai_agents.a1.saved":                 {Scope: events.ScopeConfig, Collection: "ai_agents", ID: "a1", Kind: "saved"},
		"evt.user.u1.account.created":                   {Scope: events.ScopeUser, ID: "u1", Kind: "account.created"},
		"evt.audit.login.failed":                        {Scope: events.ScopeAudit, Kind: "login.failed"},
		"evt.engine.local.opencode.server.connected":    {Scope: events.ScopeEngine, ID: "local", Kind: "opencode.server.connected"},
		events.ChatOpenCodeSubject("c1", "mcp.x-y_z.1"): {Scope: events.ScopeChat, ID: "c1", Kind: "opencode.mcp.x-y_z.1"},
	} {
		got, err := events.ParseSubject(subject)
		is.NoErr(err)
		is.Equal(got, want)
		typ, ok := got.OpenCodeType()
		is.Equal(ok, strings.Contains(subject, ".opencode."))
		is.True(!ok || "opencode."+typ == want.Kind)
	}
	for _, bad := range []string{
		"", "evt", "evt.", "evt.chat", "evt.chat.c1", "evt.chat.c1.", "evt.chat..created", "evt..c1.created",
		"evt.chat.c1.a..b", "evt.chat.c1.>",
		"evt.chat.*.created", "evt.>", "evt.chat.c1.created.", ".evt.chat.c1.created", "delta.chat.c1.m.p",
		"EVT.chat.c1.created", "evt.Chat.c1.created",
		"evt.users.u1.created", "evt.user.u1", "evt.config.ai_agents", "evt.config.ai_agents.a1",
		"evt.config.ai_agents..saved", "evt.audit", "evt.audit.", "evt.chat.c1.message submitted", "evt.chat.c1.ü",
		"evt.chat.c1." + strings.Repeat("k", 65),
	} {
		_, err := events.ParseSubject(bad)
		is.True(err != nil) // must be refused
	}
}

func TestOddOpenCodeTypesAreRefused(t *testing.T) {
	is := is.New(t)
	for _, typ := range []string{"", ".", "a.", ".a", "a..b", "*", "message.*", ">", "a b", "a\nb", "séance",
		strings.Repeat("x", 65)} {
		for _, chat := range []string{"c1", ""} {
			_, err := events.NewOpenCode(chat, "local", "evt_1", -1, events.OpenCode{Type: typ,
				Properties: json.RawMessage(`{}`)})
			is.True(err != nil) // never stored under such a subject
		}
	}
	_, err := events.NewOpenCode("c1", "local", "", -1, events.OpenCode{Type: "x", Properties: json.RawMessage(`{}`)})
	is.True(err != nil) // no id
	for _, body := range []string{"", "{", "{} {}", "nul"} {
		_, err := events.NewOpenCode("c1", "local", "evt_1", -1, events.OpenCode{Type: "x",
			Properties: json.RawMessage(body)})
		is.True(err != nil) // no JSON
	}
}

func TestUnknownKindDoesNotDecode(t *testing.T) {
	is := is.New(t)
	s, err := events.ParseSubject("evt.chat.c1.message.teleported")
	is.NoErr(err)
	_, err = events.Decode(events.Event{Seq: 9, Subject: s, RawSubject: "evt.chat.c1.message.teleported",
		Data: []byte(`{}`)})
	is.True(err != nil)
	is.Equal(err.Error(), "decode #9 evt.chat.c1.message.teleported: unknown kind")
	s.Kind = "turn.lost"
	_, err = events.Decode(events.Event{Seq: 9, Subject: s, RawSubject: "evt.chat.c1.turn.lost",
		Data: []byte(`{"session":1}`)})
	is.True(err != nil && strings.HasPrefix(err.Error(), "decode #9 evt.chat.c1.turn.lost: "))
	d, err := events.Decode(events.Event{Subject: s, Data: []byte(`{"session":"ses_1","of_the_future":true}`)})
	is.NoErr(err) // a newer writer may have added a field
	is.Equal(d, events.TurnLost{Session: "ses_1"})
}

func TestEventAsJSONIsCloudEvents(t *testing.T) {
	is := is.New(t)
	e, err := events.NewOpenCode("c1", "local", "evt_1", 3, events.OpenCode{Type: "session.idle",
		Properties: json.RawMessage(`{"sessionID":"ses_1"}`)})
	is.NoErr(err)
	e.Seq = 42
	shape := func(e events.Event) map[string]any {
		text, err := json.Marshal(e)
		is.NoErr(err)
		var m map[string]any
		is.NoErr(json.Unmarshal(text, &m))
		delete(m, "time")
		return m
	}
	is.Equal(shape(e), map[string]any{
		"specversion": "1.0", "sequence": 42.0, "id": "evt_1", "type": "opencode.session.idle", "source": "engine:local", "actor": "engine:local",
		"subject": "evt.chat.c1.opencode.session.idle", "opencodeseq": 3.0, "data": map[string]any{"sessionID": "ses_1"},
	})
	own, err := events.New("c1", events.UserActor("u1"), events.TurnLost{Session: "s"})
	is.NoErr(err)
	own = own.CausedBy("cmd1")
	is.Equal(shape(own), map[string]any{
		"specversion": "1.0", "sequence": 0.0, "id": own.ID, "type": "turn.lost", "source": "pocketcoder", "actor": "user:u1", "causationid": "cmd1",
		"subject": "evt.chat.c1.turn.lost", "dataversion": 1.0, "data": map[string]any{"session": "s"},
	})
}
