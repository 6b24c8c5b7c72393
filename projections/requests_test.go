package projections_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/projections/timeline"
)

func (s *eventBuilder) request(id, session, command string) events.Event {
	return s.opencode(false, "permission.asked", fmt.Sprintf(
		`{"id":%q,"sessionID":%q,"permission":"bash","patterns":[%q],"metadata":{"command":%q},"always":["echo *"],"tool":{"messageID":"msg_a","callID":"call_1"}}`, id, session, command, command))
}

func (s *eventBuilder) replies(id, reply string) events.Event {
	return s.opencode(false, "permission.replied", fmt.Sprintf(`{"sessionID":%q,"requestID":%q,"reply":%q}`, ses, id,
		reply))
}

func (s *eventBuilder) decides(actor, id string, d events.Decision) events.Event {
	return own(s.t, actor, events.PermissionDecided{Permission: id, Decision: d, Reason: "because",
		RuleRef: events.RuleRef{Rule: "echo *"}, Session: ses, Type: "bash"})
}

// fate returns the outcome of a request.
func fate(t testing.TB, m *projections.Model, id string) string {
	t.Helper()
	p, found, err := m.Permission(t.Context(), id)
	if err != nil || !found {
		t.Fatal("no permission", id, err)
	}
	return fmt.Sprintf("%s by %s approved_by=%s replied=%t interrupted=%t used=%t", p.Status, p.DecidedBy, p.ApprovedBy,
		p.Replied, p.Interrupted, p.GrantUsed)
}

func TestReferralAndDecisionAreShownInFull(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, m := &eventBuilder{t: t}, still(t)
	rule := events.RuleRef{Rule: "ask bash: echo*", RuleID: "tool_permissions/r1", RuleVersion: 3}
	feed(t, m, s.created(), s.request("per_1", ses, "echo hi"),
		s.own(events.PermissionReferred{Permission: "per_1", Reason: "a rule wants a person", Cwd: "/w/sub", RuleRef: rule}),
		s.own(events.PermissionReferred{Permission: "per_9", Reason: "another's id"})) // no dead letter
	shown := func() []any {
		t.Helper()
		p, _, err := m.Permission(t.Context(), "per_1")
		is.NoErr(err)
		return []any{p.Status, p.Referred, p.ReferredReason, p.Cwd, p.Rule, p.RuleID, p.RuleVersion, p.Edited, p.Expires,
			p.Device, p.Reason}
	}
	is.Equal(shown(), []any{"draft", true, "a rule wants a person", "/w/sub", rule.Rule, rule.RuleID, int64(3), "", "",
		"", ""})
	feed(t, m, own(t, user, events.PermissionDecided{
		Permission: "per_1", Decision: events.Authorized, Reason: "fine", Type: "bash", Command: "echo hi", Edited: "echo ho", Cwd: "/w/sub",
		Expires: time.Date(2026, 1, 2, 3, 4, 5, 6_000_000, time.UTC), Client: events.Client{Device: "Phone/1"},
	}), s.own(events.ExecRequested{Exec: "x1", Permission: "per_1", Session: ses, Call: "call_1", Command: "echo ho",
		Original: "echo hi"}))
	is.Equal(shown(), []any{"authorized", true, "a rule wants a person", "/w/sub", "", "", int64(0), "echo ho",
		"2026-01-02 03:04:05.006Z", "Phone/1", "fine"})
	runs, err := m.Executions(t.Context(), chatID)
	is.NoErr(err)
	is.Equal([]string{runs[0].Text, runs[0].Original}, []string{"echo ho", "echo hi"})
	bad, err := m.DeadLetters(t.Context(), 0)
	is.NoErr(err)
	is.Equal(bad.Count, 0)
}

func TestFirstDecisionAboutARequestStands(t *testing.T) {
	t.Parallel()
	s := &eventBuilder{t: t}
	for name, test := range map[string]struct {
		events []events.Event
		want   string
	}{
		"undecided":              {nil, "draft by  approved_by= replied=false interrupted=false used=false"},
		"a person":               {[]events.Event{s.decides(user, "per_1", events.Authorized)}, "authorized by user:ann approved_by=ann replied=false interrupted=false used=false"},
		"the policy":             {[]events.Event{s.decides("policy", "per_1", events.Authorized), s.replies("per_1", "once")}, "authorized by policy approved_by= replied=true interrupted=false used=false"},
		"a denial":               {[]events.Event{s.decides(user, "per_1", events.Denied)}, "denied by user:ann approved_by= replied=false interrupted=false used=false"},
		"a late one":             {[]events.Event{s.decides(user, "per_1", events.Denied), s.decides("user:bob", "per_1", events.Authorized)}, "denied by user:ann approved_by= replied=false interrupted=false used=false"},
		"OpenCode rejects":       {[]events.Event{s.replies("per_1", "reject"), s.decides(user, "per_1", events.Authorized)}, "denied by engine:oc1 approved_by= replied=true interrupted=false used=false"},
		"allowed elsewhere":      {[]events.Event{s.replies("per_1", "once")}, "authorized by engine:oc1 approved_by= replied=true interrupted=false used=false"},
		"seen again":             {[]events.Event{s.decides(user, "per_1", events.Denied), s.request("per_1", ses, "echo hi")}, "denied by user:ann approved_by= replied=false interrupted=false used=false"},
		"expired":                {[]events.Event{s.decides(user, "per_1", events.Authorized), s.own(events.PermissionExpired{Permission: "per_1", Reason: "gone"})}, "expired by user:ann approved_by=ann replied=false interrupted=false used=false"},
		"answered cannot expire": {[]events.Event{s.replies("per_1", "once"), s.own(events.PermissionExpired{Permission: "per_1", Reason: "gone"})}, "authorized by engine:oc1 approved_by= replied=true interrupted=false used=false"},
		"rejected since":         {[]events.Event{s.decides(user, "per_1", events.Authorized), s.replies("per_1", "reject")}, "expired by user:ann approved_by=ann replied=true interrupted=false used=false"},
		"rejected, expired":      {[]events.Event{s.decides(user, "per_1", events.Authorized), s.replies("per_1", "reject"), s.own(events.PermissionExpired{Permission: "per_1", Reason: "gone"})}, "expired by user:ann approved_by=ann replied=true interrupted=false used=false"},
		"expired, rejected":      {[]events.Event{s.decides(user, "per_1", events.Authorized), s.own(events.PermissionExpired{Permission: "per_1", Reason: "gone"}), s.replies("per_1", "reject")}, "expired by user:ann approved_by=ann replied=true interrupted=false used=false"},
		"interrupted":            {[]events.Event{s.own(events.PermissionInterrupted{Permission: "per_1"})}, "draft by  approved_by= replied=false interrupted=true used=false"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			m := still(t)
			feed(t, m, s.created(), s.request("per_1", ses, "echo hi"))
			feed(t, m, test.events...)
			is.Equal(fate(t, m, "per_1"), test.want)
		})
	}
}

func TestRequestIsShownWithWhatItIsAbout(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.request("per_1", ses, "echo  hi\nls"))
	all, err := m.Permissions(t.Context(), chatID, events.Draft)
	is.NoErr(err)
	p := all[0]
	is.Equal([]string{p.ID, p.EnginePermission, p.Session, p.Chat, p.Permission},
		[]string{store.RecordID("per_1"), "per_1", ses, chatID, "bash"})
	is.Equal([]string{string(p.Patterns), string(p.Metadata), string(p.Always)},
		[]string{`["echo  hi\nls"]`, `{"command":"echo  hi\nls"}`, `["echo *"]`})
	is.Equal([]string{p.EngineMessage, p.Call, p.Message, p.Source},
		[]string{"msg_a", "call_1", "bash: echo hi ls", "opencode"})
	request := events.PermissionRequest{Permission: "bash", Patterns: []string{"echo  hi\nls"},
		Metadata: []byte(`{"command":"echo  hi\nls"}`)}
	is.Equal(p.Request, request.ContentHash())
	none, err := m.Permissions(t.Context(), "", events.Denied)
	is.NoErr(err)
	is.Equal(len(none), 0)
}

// A person has to decide what the policy has left to a person, and what OpenCode has forgotten. The row, the view
// and the count of a list of chats agree.
func TestOneDefinitionSaysWhatWaitsForAPerson(t *testing.T) {
	t.Parallel()
	s := &eventBuilder{t: t}
	referred := s.own(events.PermissionReferred{Permission: "per_1", Reason: "a rule wants a person"})
	interrupted := s.own(events.PermissionInterrupted{Permission: "per_1"})
	for name, test := range map[string]struct {
		events []events.Event
		want   int64
	}{
		"not decided by the policy": {nil, 0},
		"referred":                  {[]events.Event{referred}, 1},
		"interrupted before":        {[]events.Event{interrupted}, 1},
		"interrupted after":         {[]events.Event{referred, interrupted}, 1},
		"allowed by the policy":     {[]events.Event{s.decides("policy", "per_1", events.Authorized)}, 0},
		"denied by a person":        {[]events.Event{referred, s.decides(user, "per_1", events.Denied)}, 0},
		"expired":                   {[]events.Event{referred, s.own(events.PermissionExpired{Permission: "per_1", Reason: "gone"})}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			m := still(t)
			feed(t, m, s.begun()...)
			feed(t, m, s.request("per_1", ses, "echo hi"))
			feed(t, m, test.events...)
			p, _, err := m.Permission(t.Context(), "per_1")
			is.NoErr(err)
			is.Equal(p.WaitsForPerson(), test.want == 1)
			is.NoErr(m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
				var n int64
				err := db.NewQuery("SELECT count(*) FROM waiting_requests").Row(&n)
				is.Equal(n, test.want)
				return err
			}))
			is.NoErr(m.View(t.Context(), func(db dbx.Builder, _ uint64) error {
				chats, err := timeline.Chats(t.Context(), db, "ann", []string{chatID})
				is.Equal(chats[0].Pending, test.want)
				return err
			}))
		})
	}
}

func TestRequestListsAreWhatIsLeftToDo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	lists := func() string {
		t.Helper()
		waiting, err := m.PendingRequests(t.Context())
		is.NoErr(err)
		decided, err := m.DecidedRequests(t.Context())
		is.NoErr(err)
		ids := func(requests []projections.PendingRequest) string {
			var s []string
			for _, a := range requests {
				s = append(s, a.EnginePermission+"@"+a.Directory)
			}
			return strings.Join(s, " ")
		}
		return "pending " + ids(waiting) + " decided " + ids(decided)
	}
	feed(t, m, s.begun()...)
	is.Equal(lists(), "pending  decided ")
	feed(t, m, s.request("per_1", ses, "a"), s.request("per_2", ses, "b"),
		s.own(events.PermissionInterrupted{Permission: "per_2"}))
	is.Equal(lists(), "pending per_1@/workspace per_2@/workspace decided ")
	feed(t, m, s.decides(user, "per_2", events.Authorized), s.decides(user, "per_1", events.Denied))
	is.Equal(lists(), "pending  decided per_2@/workspace per_1@/workspace")
	feed(t, m, s.replies("per_1", "reject"), s.own(events.PermissionExpired{Permission: "per_2", Reason: "gone"}))
	is.Equal(lists(), "pending  decided ")
	feed(t, m, s.request("per_3", ses, "c"), s.own(events.PermissionInterrupted{Permission: "per_3"}),
		s.decides(user, "per_3", events.Denied))
	is.Equal(lists(), "pending  decided ")
}

func TestApprovalOfAnInterruptedRequestIsGoodForOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.request("per_1", ses, "date"), s.request("per_x", ses, "date"),
		s.own(events.PermissionInterrupted{Permission: "per_1"}),
		s.decides(user, "per_1", events.Authorized), s.decides(user, "per_x", events.Authorized))
	request, _, err := m.Permission(t.Context(), "per_1")
	is.NoErr(err)
	is.True(!request.GrantUsed)
	again := events.PermissionDecided{Permission: "per_2", Decision: events.Authorized, ApprovalOf: "per_1", Session: ses,
		Type: "bash", Request: request.Request}
	feed(t, m, s.request("per_2", ses, "date"), own(t, "policy", again))
	request, _, err = m.Permission(t.Context(), "per_1")
	is.NoErr(err)
	is.True(request.GrantUsed)
	decided, err := m.DecidedRequests(t.Context())
	is.NoErr(err)
	is.Equal(len(decided), 2) // per_x and per_2
	is.Equal(fate(t, m, "per_2"), "authorized by policy approved_by= replied=false interrupted=false used=false")
}

func (s *eventBuilder) questions() events.Event {
	return s.opencode(false, "question.asked", fmt.Sprintf(`{"id":"que_1","sessionID":%q,"questions":[
		{"question":"Colour?","header":"C","options":[{"label":"Red","description":"warm"},{"label":"Blue","description":"cold"}]},
		{"question":"Why?","header":"W","options":[],"multiple":true}],"tool":{"messageID":"msg_a","callID":"call_1"}}`, ses))
}

func TestQuestionsAreAnsweredWhenAllHaveAnAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	lists := func() string {
		t.Helper()
		waiting, err := m.PendingQuestions(t.Context())
		is.NoErr(err)
		answered, err := m.AnsweredQuestions(t.Context())
		is.NoErr(err)
		return fmt.Sprintf("pending %d answered %d", len(waiting), len(answered))
	}
	feed(t, m, s.begun()...)
	feed(t, m, s.questions(), s.questions())
	is.Equal(lists(), "pending 2 answered 0")
	feed(t, m, s.own(events.QuestionAnswered{Question: "que_1", Index: 1, Answers: []string{"so"}}))
	is.Equal(lists(), "pending 1 answered 0")
	feed(t, m, s.own(events.QuestionAnswered{Question: "que_1", Index: 0, Answers: []string{"Red"}}),
		s.own(events.QuestionAnswered{Question: "que_1", Index: 0, Answers: []string{"Blue"}}))
	is.Equal(lists(), "pending 0 answered 2")
	all, err := m.Questions(t.Context(), chatID, projections.QuestionReplied)
	is.NoErr(err)
	q := all[0]
	is.Equal([]string{q.Question, q.Header, string(q.Choices), string(q.Descriptions), string(q.Reply), q.RepliedBy},
		[]string{"Colour?", "C", `["Red","Blue"]`, `["warm","cold"]`, `["Red"]`, user})
	is.Equal([]any{all[1].Index, all[1].Multiple, string(all[1].Choices)}, []any{int64(1), true, "[]"})
	feed(t, m, s.opencode(false, "question.replied",
		fmt.Sprintf(`{"sessionID":%q,"requestID":"que_1","answers":[["Red"],["so"]]}`, ses)))
	is.Equal(lists(), "pending 0 answered 0")
}

func TestQuestionsAreRejectedOrExpireTogether(t *testing.T) {
	t.Parallel()
	s := &eventBuilder{t: t}
	for name, test := range map[string]struct {
		event    events.Event
		status   string
		answered int
	}{
		"here":     {s.own(events.QuestionAnswered{Question: "que_1", Index: 1, Rejected: true}), projections.QuestionRejected, 2},
		"OpenCode": {s.opencode(false, "question.rejected", fmt.Sprintf(`{"sessionID":%q,"requestID":"que_1"}`, ses)), projections.QuestionRejected, 0},
		"expired":  {s.own(events.QuestionExpired{Question: "que_1", Reason: "gone"}), projections.QuestionExpired, 0},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			m := still(t)
			feed(t, m, s.created(), s.questions(), test.event)
			all, err := m.Questions(t.Context(), chatID, test.status)
			is.NoErr(err)
			is.Equal(len(all), 2)
			answered, err := m.AnsweredQuestions(t.Context())
			is.NoErr(err)
			is.Equal(len(answered), test.answered)
		})
	}
}
