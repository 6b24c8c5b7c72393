package projections_test

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

func TestRequestOverTheAPIIsDecidedAndNobodyIsAnswered(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.own(events.PermissionRequested{Permission: "intent1", Type: "bash", Patterns: []string{"ls *"},
		Metadata: []byte(`{"command": "ls -l"}`),
		Session:  ses, MessageID: "msg_a", Call: "call_1"}),
		s.own(events.PermissionRequested{Permission: "intent2", Type: "edit", Message: "May I?"}))
	requests, err := m.Permissions(t.Context(), chatID, events.Draft)
	is.NoErr(err)
	p := requests[0]
	is.Equal([]string{p.ID, p.EnginePermission, p.Permission, p.Message, p.Source},
		[]string{"intent1", "intent1", "bash", "bash: ls -l", "api"})
	is.Equal([]store.JSON{p.Patterns, p.Metadata, p.Always}, []store.JSON{`["ls *"]`, `{"command":"ls -l"}`, "[]"})
	is.Equal([]string{p.Session, p.EngineMessage, p.Call}, []string{ses, "msg_a", "call_1"})
	is.Equal(requests[1].Message, "May I?")
	waiting, err := m.PendingRequests(t.Context())
	is.NoErr(err)
	is.Equal(len(waiting), 0) // OpenCode waits for none

	feed(t, m, s.decides(user, "intent1", events.Authorized), s.decides(user, "intent1", events.Denied),
		s.own(events.PermissionExpired{Permission: "intent1", Reason: "late"}),
		s.own(events.PermissionExpired{Permission: "intent2", Reason: "too late"}))
	all, _ := rows[projections.Permission](t, m, "permissions")
	is.Equal([]string{all[0].Status, all[0].ApprovedBy}, []string{events.Authorized, "ann"})
	is.Equal([]string{all[1].Status, all[1].Reason}, []string{events.Expired, "too late"})
	unreplied, err := m.DecidedRequests(t.Context())
	is.NoErr(err)
	is.Equal(len(unreplied), 0)

	feed(t, m, s.own(events.PermissionRequested{Permission: "intent1", Type: "edit"}))
	again, bad := rows[projections.Permission](t, m, "permissions")
	is.Equal(bad, 0)
	is.Equal(again, all) // it exists
}

func TestRowOfARequestSaysWhatTheSandboxDid(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	for _, id := range []string{"k1", "k2"} {
		feed(t, m, s.own(events.PermissionRequested{Permission: id, Type: "keep", Patterns: []string{".envrc"}}),
			s.decides(user, id, events.Authorized))
	}
	feed(t, m, s.own(events.PermissionApplied{Permission: "k1"}),
		s.own(events.PermissionApplied{Permission: "k2", Error: ".envrc exists now"}))
	all, bad := rows[projections.Permission](t, m, "permissions")
	is.Equal(bad, 0)
	is.Equal([]any{all[0].Applied, all[0].Failure}, []any{true, ""})
	is.Equal([]any{all[1].Applied, all[1].Failure}, []any{false, ".envrc exists now"})

	through, err := m.DecisionsDone(t.Context(), "keep")
	is.NoErr(err)
	is.Equal(through, m.Seq())
	feed(t, m, s.own(events.PermissionRequested{Permission: "k3", Type: "keep", Patterns: []string{".npmrc"}}))
	before := m.Seq()
	feed(t, m, s.decides(user, "k3", events.Denied))
	through, err = m.DecisionsDone(t.Context(), "keep")
	is.NoErr(err)
	is.Equal(through, before)
}

// in gives an event of ours in another chat.
func in(t testing.TB, chat, actor string, d events.Data) events.Event {
	t.Helper()
	e, err := events.New(chat, actor, d)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// Whoever asks over the API chooses the id: another chat's request, its row, or a request of that chat over the
// API.
func TestDecisionInAnotherChatChangesNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, in(t, "chat2", "user:eve", events.ChatCreated{Title: "Other", Engine: engine}),
		s.request("per_1", ses, "rm -rf ."),
		s.own(events.PermissionRequested{Permission: "intent1", Type: "bash"}))
	before, _ := rows[projections.Permission](t, m, "permissions")
	ids := []string{"per_1", store.RecordID("per_1"), "intent1"}
	var foreign []events.Event
	for _, id := range ids {
		foreign = append(foreign,
			in(t, "chat2", "user:eve", events.PermissionDecided{Permission: id, Decision: events.Authorized}),
			in(t, "chat2", "policy", events.PermissionExpired{Permission: id, Reason: "no"}),
			in(t, "chat2", "engine:oc1", events.PermissionInterrupted{Permission: id}),
			in(t, "chat2", "user:eve", events.PermissionDecided{Permission: "x", Decision: events.Authorized, ApprovalOf: id}))
	}
	for _, said := range []events.OpenCode{
		{Type: events.PermissionReplied, Properties: []byte(`{"sessionID":"ses_2","requestID":"per_1","reply":"once"}`)},
		{Type: events.PermissionAsked, Properties: []byte(`{"id":"per_1","sessionID":"ses_2","permission":"read"}`)},
	} {
		e, err := events.NewOpenCode("chat2", engine, events.NewID(), -1, said)
		is.NoErr(err)
		foreign = append(foreign, e)
	}
	feed(t, m, foreign...)
	after, bad := rows[projections.Permission](t, m, "permissions")
	is.Equal(after, before)
	is.Equal(bad, len(foreign))

	// Asks of its own under those ids are none, but for OpenCode's id: that is not the row's.
	for _, id := range ids {
		feed(t, m, in(t, "chat2", "user:eve", events.PermissionRequested{Permission: id, Type: "read"}))
	}
	feed(t, m, in(t, "chat2", "user:eve", events.PermissionDecided{Permission: "per_1", Decision: events.Authorized}))
	after, worse := rows[projections.Permission](t, m, "permissions")
	is.Equal(worse, bad)
	is.Equal(len(after), len(before)+1)
	for _, p := range after {
		is.Equal(p.Status == events.Authorized, p.Chat == "chat2")
	}
	unreplied, err := m.DecidedRequests(t.Context())
	is.NoErr(err)
	is.Equal(len(unreplied), 0) // OpenCode is told nothing
	for id, want := range map[string]string{"intent1": chatID, store.RecordID("per_1"): chatID, "per_1": "chat2",
		"intent2": ""} {
		chat, ok, err := m.ChatOf(t.Context(), "permissions", id)
		is.NoErr(err)
		is.Equal(chat, want)
		is.Equal(ok, want != "")
	}
}

func TestRequestIDIsThatOfTheFirstRequestOfItsChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.own(events.PermissionRequested{Permission: "one", Type: "read"}), s.request("one", ses, "rm x"),
		s.request("two", ses, "rm y"),
		s.own(events.PermissionRequested{Permission: "two", Type: "read"}))
	all, bad := rows[projections.Permission](t, m, "permissions")
	is.Equal(bad, 1)
	is.Equal(len(all), 2)
	feed(t, m, s.replies("one", "once"), s.decides(user, "one", events.Denied), s.decides(user, "two", events.Authorized))
	status := map[string]string{}
	all, _ = rows[projections.Permission](t, m, "permissions")
	for _, p := range all {
		status[p.Source] = p.ID + " " + p.Status
	}
	is.Equal(status, map[string]string{"api": "one denied", "opencode": store.RecordID("two") + " authorized"})
}
