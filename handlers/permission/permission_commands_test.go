package permission_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/dryrun"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/policy"
)

func TestGateCommandsOverNATS(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := eventstest.Server(t, expect.MemoryDir(t))
	nc := eventstest.Conn(t, s)
	h := permissiontest.New(eventstest.Open(t, eventstest.Conn(t, s)))
	_, _, err := h.Chats.Create(t.Context(), chat.Create{Chat: "c1"})
	is.NoErr(err)
	g := permissiontest.GateOn(h)
	g.Session = func(string) (permission.Session, bool) { return permission.Session{Chat: "c1", Directory: "/"}, true }
	g.Call = func(context.Context, string, events.Call, time.Duration) (permission.Call, bool) {
		return permission.Call{Command: "make build", Cwd: "/", Agent: "build"}, true
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go g.Commands().Serve(ctx, nc, handlerstest.Alice, g.Logger)
	for nc.NumSubscriptions() < len(g.Commands()) {
		nc.Flush()
	}
	is.NoErr(nc.Flush())
	ask := handlerstest.AskBash("per_1", "make build")
	handlerstest.Happened(t, h.Log, "c1", ask)
	is.NoErr(g.React(t.Context(), ask.Event(t, "c1")))
	asks := eventstest.Conn(t, s)
	told := func(name string, command, into any) handlers.Accepted {
		t.Helper()
		a, err := handlers.Send(t.Context(), asks, name, command)
		is.NoErr(err)
		is.NoErr(json.Unmarshal(a.Result, into))
		return a
	}
	c := permission.AllowAlways{Chat: "c1", Permission: "per_1", Scope: permission.ScopeAll}
	var p permission.Proposal
	told("permission.propose", c, &p)
	is.Equal(p.All.Allowed, 1)
	var run dryrun.Result
	told("policy.replay", permission.ReplayPolicy{Rule: p.Rules[0]}, &run)
	is.Equal(run, p.All)
	var ids []string
	is.True(told("permission.always", c, &ids).Seq > 0)
	var rules []policy.Rule
	told("policy.rules", permission.ListRules{}, &rules)
	is.Equal(len(rules), 1+len(g.Rules))
	is.Equal(rules[0].ID, ids[0])
	_, err = handlers.Send(t.Context(), asks, "permission.propose", permission.AllowAlways{Chat: "c1",
		Permission: "per_9", Scope: permission.ScopeAll})
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
}
