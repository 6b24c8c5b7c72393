package handlers

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/wire"
)

// intends is a request for a command, as an agent makes it over the API; it names a session and a call of OpenCode's.
func intends(id, command string) RequestPermission {
	metadata, _ := json.Marshal(map[string]string{"command": command})
	return RequestPermission{
		Command: Command{Actor: alice}, Chat: "c1", Permission: id, Type: "bash", Patterns: []string{command}, Metadata: metadata,
		Session: "ses_1", Call: "call_per_1",
	}
}

// gateOn is a gate that is asked and does not run. It works in /.
func gateOn(h *Handlers) Gate {
	return Gate{
		Handlers: h, Log: quiet(), Rules: []policy.Rule{{Permission: "bash", Pattern: "git status*"}}, Workspace: "/",
		Session: func(string) (Session, bool) { return Session{}, false },
		Call:    func(context.Context, string, events.Call, time.Duration) (Call, bool) { return Call{}, false },
	}
}

func TestRequestIsDecidedAtOnceOrWaits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	g := gateOn(h)
	id, status, seq, err := g.Request(t.Context(), intends("", "git status"))
	is.NoErr(err)
	is.Equal(status, "authorized")
	all, data := history(t, h.Log, "c1")
	last := all[len(all)-1]
	is.Equal(seq, last.Seq) // who waits for it sees the decision
	is.Equal(last.Actor, events.ActorPolicy)
	is.Equal(last.Cause, all[len(all)-2].ID)
	is.Equal(data[len(data)-1], events.PermissionDecided{
		Permission: id, Decision: events.Authorized, RuleRef: events.RuleRef{Rule: "bash: git status*"}, Type: "bash", Command: "git status", Request: request("git status"),
	})
	same, status, again, err := g.Request(t.Context(), intends(id, "git status"))
	is.NoErr(err)
	is.Equal([]any{same, status, again}, []any{id, "authorized", seq})

	_, status, _, err = g.Request(t.Context(), intends("i1", "make"))
	is.NoErr(err)
	is.Equal(status, Draft)
	_, err = h.DecidePermission(t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: "i1", Decision: events.Denied})
	is.NoErr(err)
	_, status, _, err = g.Request(t.Context(), intends("i1", "make"))
	is.NoErr(err)
	is.Equal(status, "denied")
	_, data = history(t, h.Log, "c1")
	is.Equal(len(of[events.PermissionRequested](data)), 2)
	is.Equal(len(of[events.PermissionDecided](data)), 2)
}

// The log never holds the secret, and still knows the same request again.
func TestRequestWithASecretIsMadeOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := &Handlers{Log: eventstest.Log(t, "sk-very-secret")}
	_, _, err := h.CreateChat(t.Context(), CreateChat{Chat: "c1"})
	is.NoErr(err)
	for range 2 {
		_, seq, err := h.RequestPermission(t.Context(), intends("i1", "login sk-very-secret"))
		is.NoErr(err)
		is.Equal(seq, uint64(2))
	}
	all, _ := history(t, h.Log, "c1")
	expect.Lacks(t, string(all[1].Data), "sk-very-secret")
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	h := open(t)
	_, _, err := h.RequestPermission(t.Context(), intends("i1", "make"))
	is.New(t).NoErr(err)
	for name, c := range map[string]struct {
		change func(*RequestPermission)
		code   Code
		says   string
	}{
		"other content":        {func(c *RequestPermission) { c.Permission, c.Patterns = "i1", []string{"rm"} }, Conflict, "other content"},
		"OpenCode's id":        {func(c *RequestPermission) { c.Permission = "per_1" }, Invalid, "OpenCode's"},
		"OpenCode's id to be":  {func(c *RequestPermission) { c.Permission = "per_9" }, Invalid, "OpenCode's"},
		"a bad id":             {func(c *RequestPermission) { c.Permission = "a.b" }, Invalid, "permission: parse id"},
		"no type":              {func(c *RequestPermission) { c.Type = "" }, Invalid, "type: parse id"},
		"metadata of no sort":  {func(c *RequestPermission) { c.Metadata = []byte(`["x"]`) }, Invalid, "want a JSON object"},
		"metadata that breaks": {func(c *RequestPermission) { c.Metadata = []byte(`{"x"`) }, Invalid, "want a JSON object"},
		"not UTF-8":            {func(c *RequestPermission) { c.Patterns = []string{"\xff"} }, Invalid, "UTF-8"},
		"too long":             {func(c *RequestPermission) { c.Message = strings.Repeat("x", MaxRequest) }, Invalid, "the limit is"},
		"a chat that is not":   {func(c *RequestPermission) { c.Chat = "c9" }, NotFound, "no chat c9"},
		"every chat":           {func(c *RequestPermission) { c.Chat = "*" }, Invalid, "chat: parse id"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			r := intends("i2", "make")
			c.change(&r)
			_, _, err := h.RequestPermission(t.Context(), r)
			is.Equal(refusal(t, err), c.code)
			expect.Contains(t, err.Error(), c.says)
		})
	}
	_, data := history(t, h.Log, "c1")
	is.New(t).Equal(len(of[events.PermissionRequested](data)), 1)
}

// An id is that of the first ask of the chat that had it: nothing that is said about the other kind's decides it.
func TestAskIsNotTakenForOneOfTheOtherKind(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	_, _, err := h.RequestPermission(t.Context(), intends("i1", "make"))
	is.NoErr(err)
	ask := askBash("i1", "git status")
	happened(t, h.Log, "c1", ask, replied("i1"), askBash("strange", "make"))
	g := gateOn(h)
	is.NoErr(g.react(t.Context(), ask.event(t, "c1"))) // a rule allows this one
	_, status, _, err := g.Request(t.Context(), intends("i1", "make"))
	is.NoErr(err)
	is.Equal(status, Draft)
	_, err = h.DecidePermission(t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: "i1", Decision: events.Authorized})
	is.NoErr(err)
	_, data := history(t, h.Log, "c1")
	is.Equal(of[events.PermissionDecided](data)[0].Command, "make")

	_, _, err = h.RequestPermission(t.Context(), intends("strange", "git status"))
	is.Equal(err, Refused{Code: Conflict, Text: "permission strange was asked for already with other content", Field: "id"})
	s := newPermissions()
	given(t, s, askBash("strange", "make"), fact{by: alice, data: intends("strange", "git status").event()})
	is.Equal(s.asks["strange"].command, "make")
	is.True(!s.intended("strange"))
}

// The gate that runs decides what nobody evaluated at once, as after a crash in between.
func TestRunningGateLooksAtRequests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	for _, c := range []RequestPermission{intends("i1", "make"), intends("i2", "git status")} {
		_, _, err := g.RequestPermission(t.Context(), c)
		is.NoErr(err)
	}
	await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "i2" })
	found, _ := g.decisions("i1")
	is.Equal(len(found), 0)
}

func TestRequestUsesUpNoApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	happened(t, h.Log, "c1", askBash("per_5", "make"), fact{data: events.PermissionInterrupted{Permission: "per_5"}})
	_, status, _, err := gateOn(h).Request(t.Context(), intends("", "make"))
	is.NoErr(err)
	is.Equal(status, Draft)
	_, err = h.DecidePermission(t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: "per_5", Decision: events.Authorized})
	is.NoErr(err) // it is still there, and was not taken for asked again
	_, status, _, err = gateOn(h).Request(t.Context(), intends("", "make"))
	is.NoErr(err)
	is.Equal(status, Draft)
}

func TestAskOfADeletedChatIsDenied(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := openGate(t)
	_, err := g.DeleteChat(t.Context(), DeleteChat{Chat: "c1"})
	is.NoErr(err)
	happened(t, g.Log, "c1", askBash("per_1", "git status"), askBash("per_2", "make"))
	for _, id := range []string{"per_1", "per_2"} {
		_, d := await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == id })
		is.Equal(d.Decision, events.Denied)
		is.Equal(d.Reason, "the chat was deleted")
		is.Equal(d.Rule, "")
	}
}

// Whoever asks over the API can name any session, call and command. An approval of it runs nothing.
func TestApprovedRequestRunsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	_, _, err := s.CreateChat(t.Context(), CreateChat{Chat: "c1"})
	is.NoErr(err)
	r := s.request("echo forged")
	c := intends("i1", r.Command)
	c.Session, c.Call = r.Session, r.Call
	_, _, err = s.RequestPermission(t.Context(), c)
	is.NoErr(err)
	_, err = s.DecidePermission(t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: "i1", Decision: events.Authorized})
	is.NoErr(err)
	result, stdout, _ := s.shell(t.Context(), r)
	is.Equal(result.Reason, wire.Refused)
	is.Equal(stdout, "")
	is.Equal(s.started.Load(), int64(0))
	_, data := history(t, s.Log, "c1")
	d := of[events.PermissionDecided](data)[0]
	is.Equal(d.Session+d.Call, "") // and nobody who reads the decision alone is deceived
}

func TestAuthorizedOverlooksWhatOpenCodeDidNotAsk(t *testing.T) {
	is := is.New(t)
	intent := fact{by: alice, data: intends("i1", "ls").event()}
	s := newExecState()
	given(t, s, intent, fact{by: alice, data: events.PermissionDecided{ // even if it names the call
		Permission: "i1", Decision: events.Authorized, Session: "ses_1", Call: "call_per_1", Type: "bash", Command: "ls", Request: request("ls"),
	}})
	_, err := s.authorized(wire.Request{Session: "ses_1", Call: "call_per_1", Command: "ls"}, time.Now())
	is.Equal(refusal(t, err), NotFound)

	s = newExecState()
	given(t, s, askBash("per_1", "ls"), decided("per_1", "ls", events.Authorized), fact{data: events.Deleted{}})
	_, err = s.authorized(wire.Request{Session: "ses_1", Call: "call_per_1", Command: "ls"}, time.Now())
	is.Equal(refusal(t, err), NotFound)
	is.Equal(err.Error(), "the chat was deleted")
}
