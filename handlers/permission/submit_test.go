package permission_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/ops/expect"
)

func TestRequestIsDecidedAtOnceOrWaits(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	g := permissiontest.GateOn(h)
	id, status, seq, err := g.Submit(t.Context(), permissiontest.SubmitBash("", "git status"))
	is.NoErr(err)
	is.Equal(status, "authorized")
	all, data := handlerstest.History(t, h.Log, "c1")
	last := all[len(all)-1]
	is.Equal(seq, last.Seq) // who waits for it sees the decision
	is.Equal(last.Actor, events.ActorPolicy)
	is.Equal(last.Cause, all[len(all)-2].ID)
	is.Equal(data[len(data)-1], events.PermissionDecided{
		Permission: id, Decision: events.Authorized, RuleRef: events.RuleRef{Rule: "bash: git status*"}, Type: "bash", Command: "git status", Request: handlerstest.Request("git status"),
	})
	same, status, again, err := g.Submit(t.Context(), permissiontest.SubmitBash(id, "git status"))
	is.NoErr(err)
	is.Equal([]any{same, status, again}, []any{id, "authorized", seq})

	_, status, _, err = g.Submit(t.Context(), permissiontest.SubmitBash("i1", "make"))
	is.NoErr(err)
	is.Equal(status, events.Draft)
	_, err = h.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: "i1", Decision: events.Denied})
	is.NoErr(err)
	_, status, _, err = g.Submit(t.Context(), permissiontest.SubmitBash("i1", "make"))
	is.NoErr(err)
	is.Equal(status, "denied")
	_, data = handlerstest.History(t, h.Log, "c1")
	is.Equal(len(handlerstest.Of[events.PermissionRequested](data)), 2)
	is.Equal(len(handlerstest.Of[events.PermissionDecided](data)), 2)
}

// A request over the API names no agent.
func TestAPIRequestObeysDenyRulesOfAgentsButNoAllowRules(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	permissiontest.SaveRecord(t, h, "ai_agents", "a1", `{"name":"Tester"}`)
	permissiontest.SaveRecord(t, h, "tool_permissions", "r1",
		`{"agent":"a1","tool":"edit","pattern":"*","action":"deny","active":true}`)
	permissiontest.SaveRecord(t, h, "tool_permissions", "r2",
		`{"agent":"a1","tool":"bash","pattern":"make","action":"allow","active":true}`)
	for command, want := range map[string]string{"echo run >>file": "denied", "make": events.Draft} {
		_, status, _, err := permissiontest.GateOn(h).Submit(t.Context(), permissiontest.SubmitBash("", command))
		is.NoErr(err)
		is.Equal(status, want)
	}
}

// The log never holds the secret, and still knows the same request again.
func TestRequestWithASecretIsMadeOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.New(eventstest.Log(t, "sk-very-secret"))
	_, _, err := h.Chats.Create(t.Context(), chat.Create{Chat: "c1"})
	is.NoErr(err)
	for range 2 {
		_, seq, err := h.Permissions.Submit(t.Context(), permissiontest.SubmitBash("i1", "login sk-very-secret"))
		is.NoErr(err)
		is.Equal(seq, uint64(2))
	}
	all, _ := handlerstest.History(t, h.Log, "c1")
	expect.Lacks(t, string(all[1].Data), "sk-very-secret")
}

func TestBadRequestsAreRefused(t *testing.T) {
	t.Parallel()
	h := permissiontest.Open(t)
	_, _, err := h.Permissions.Submit(t.Context(), permissiontest.SubmitBash("i1", "make"))
	is.New(t).NoErr(err)
	for name, c := range map[string]struct {
		change func(*permission.Submit)
		code   handlers.Code
		want   string
	}{
		"other content":        {func(c *permission.Submit) { c.Permission, c.Patterns = "i1", []string{"rm"} }, handlers.Conflict, "other content"},
		"OpenCode's id":        {func(c *permission.Submit) { c.Permission = "per_1" }, handlers.Invalid, "OpenCode's"},
		"OpenCode's id to be":  {func(c *permission.Submit) { c.Permission = "per_9" }, handlers.Invalid, "OpenCode's"},
		"a bad id":             {func(c *permission.Submit) { c.Permission = "a.b" }, handlers.Invalid, "permission: parse id"},
		"no type":              {func(c *permission.Submit) { c.Type = "" }, handlers.Invalid, "type: parse id"},
		"metadata of no sort":  {func(c *permission.Submit) { c.Metadata = []byte(`["x"]`) }, handlers.Invalid, "want a JSON object"},
		"metadata that breaks": {func(c *permission.Submit) { c.Metadata = []byte(`{"x"`) }, handlers.Invalid, "want a JSON object"},
		"too many levels": {func(c *permission.Submit) {
			c.Metadata = []byte(`{"command":"make","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + "}")
		}, handlers.Invalid, "nests 101 levels; at most 100"},
		"not UTF-8":          {func(c *permission.Submit) { c.Patterns = []string{"\xff"} }, handlers.Invalid, "UTF-8"},
		"too long":           {func(c *permission.Submit) { c.Message = strings.Repeat("x", permission.MaxRequest) }, handlers.Invalid, "the limit is"},
		"a chat that is not": {func(c *permission.Submit) { c.Chat = "c9" }, handlers.NotFound, "no chat c9"},
		"every chat":         {func(c *permission.Submit) { c.Chat = "*" }, handlers.Invalid, "chat: parse id"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			r := permissiontest.SubmitBash("i2", "make")
			c.change(&r)
			_, _, err := h.Permissions.Submit(t.Context(), r)
			is.Equal(handlerstest.Refusal(t, err), c.code)
			expect.Contains(t, err.Error(), c.want)
		})
	}
	_, data := handlerstest.History(t, h.Log, "c1")
	is.New(t).Equal(len(handlerstest.Of[events.PermissionRequested](data)), 1)
}

// The running gate evaluates requests that were stored without an evaluation, as after a crash in between.
func TestRunningGateLooksAtRequests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	for _, c := range []permission.Submit{permissiontest.SubmitBash("i1", "make"),
		permissiontest.SubmitBash("i2", "git status")} {
		_, _, err := g.Permissions.Submit(t.Context(), c)
		is.NoErr(err)
	}
	handlerstest.Await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == "i2" })
	found, _ := g.Decisions("i1")
	is.Equal(len(found), 0)
}

func TestRequestUsesUpNoApproval(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	handlerstest.Happened(t, h.Log, "c1", handlerstest.Bash("per_5", "make"),
		handlerstest.Fact{Data: events.PermissionInterrupted{Permission: "per_5"}})
	_, status, _, err := permissiontest.GateOn(h).Submit(t.Context(), permissiontest.SubmitBash("", "make"))
	is.NoErr(err)
	is.Equal(status, events.Draft)
	_, err = h.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: "per_5", Decision: events.Authorized})
	is.NoErr(err) // it is still there, and was not taken for asked again
	_, status, _, err = permissiontest.GateOn(h).Submit(t.Context(), permissiontest.SubmitBash("", "make"))
	is.NoErr(err)
	is.Equal(status, events.Draft)
}

func TestRequestOfADeletedChatIsDenied(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := permissiontest.OpenGate(t)
	_, err := g.Chats.Delete(t.Context(), chat.Delete{Chat: "c1"})
	is.NoErr(err)
	handlerstest.Happened(t, g.Log, "c1", handlerstest.Bash("per_1", "git status"),
		handlerstest.Bash("per_2", "make"))
	for _, id := range []string{"per_1", "per_2"} {
		_, d := handlerstest.Await(t, g.Log, func(d events.PermissionDecided) bool { return d.Permission == id })
		is.Equal(d.Decision, events.Denied)
		is.Equal(d.Reason, "the chat was deleted")
		is.Equal(d.Rule, "")
	}
}

// An id is that of the first request of the chat that had it: nothing that is said about the other kind's decides it.
func TestRequestIsNotTakenForOneOfTheOtherKind(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	_, _, err := h.Permissions.Submit(t.Context(), permissiontest.SubmitBash("i1", "make"))
	is.NoErr(err)
	request := handlerstest.Bash("i1", "git status")
	handlerstest.Happened(t, h.Log, "c1", request, handlerstest.Replied("i1"), handlerstest.Bash("strange", "make"))
	g := permissiontest.GateOn(h)
	is.NoErr(g.React(t.Context(), request.Event(t, "c1"))) // a rule allows this one
	_, status, _, err := g.Submit(t.Context(), permissiontest.SubmitBash("i1", "make"))
	is.NoErr(err)
	is.Equal(status, events.Draft)
	_, err = h.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: "c1", Permission: "i1", Decision: events.Authorized})
	is.NoErr(err)
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(handlerstest.Of[events.PermissionDecided](data)[0].Command, "make")

	_, _, err = h.Permissions.Submit(t.Context(), permissiontest.SubmitBash("strange", "git status"))
	is.Equal(err, handlers.Refused{Code: handlers.Conflict, Text: "permission strange exists already with other content",
		Field: "id"})
}
