package exec

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

// gateModel is a chat with a random history.
type gateModel struct {
	t        *rapid.T
	test     testing.TB
	log      *log.Log
	chat     string
	dirs     []string // the session's directory, and another
	requests []events.PermissionRequest
	h        *permissiontest.Handlers
	x        *Executions
	allowed  int // execs
}

// start replaces the handlers, as a restart does.
func (g *gateModel) start() {
	g.h = permissiontest.New(g.log)
	g.x = &Executions{Permissions: g.h.Permissions, Log: g.log, Engine: "local", Pool: "local",
		Logger: handlerstest.Quiet()}
}

func (g *gateModel) append(f handlerstest.Fact) {
	e := f.Event(g.test, g.chat)
	if _, err := g.log.Append(g.test.Context(), e); err != nil {
		g.t.Fatal(err)
	}
}

var commands = []string{"make", "make ", "make test"}

func (g *gateModel) draw(name string, n int) int { return rapid.IntRange(0, n-1).Draw(g.t, name) }

func (g *gateModel) skipOften() {
	if g.draw("seldom", 3) > 0 {
		g.t.Skip()
	}
}

// pickRequest picks a request, preferably a new one.
func (g *gateModel) pickRequest() events.PermissionRequest {
	if len(g.requests) == 0 {
		g.t.Skip()
	}
	return g.requests[len(g.requests)-1-min(g.draw("ask", 6), g.draw("or", 6), g.draw("or", 6), len(g.requests)-1)]
}

// cwdOf returns the directory of a request's call.
func (g *gateModel) cwdOf(a events.PermissionRequest) string { return g.dirs[len(a.ID)%2] }

func (g *gateModel) request(*rapid.T) {
	command := commands[g.draw("command", len(commands))]
	a := events.PermissionRequest{
		ID: fmt.Sprintf("per_%0*d", 2+g.draw("width", 2), len(g.requests)), SessionID: fmt.Sprint("ses_", g.draw("session", 2)), Permission: "bash", Patterns: []string{command},
		Metadata: []byte(`{"command":"` + command + `"}`), Tool: events.Call{MessageID: "msg_1", CallID: fmt.Sprint("call_", g.draw("call", 4))},
	}
	g.append(handlerstest.OpenCode(events.PermissionAsked, a))
	g.requests = append(g.requests, a)
	g.evaluate(a, g.draw("verdict", 8))
}

// evaluate records a random verdict of the policy: allow, deny or ask a person.
func (g *gateModel) evaluate(a events.PermissionRequest, verdict int) {
	action := policy.AskPerson
	switch {
	case verdict == 0:
		action = policy.Deny
	case verdict > 4:
		action = policy.Allow
	}
	w := permission.NewEvaluation(a, false, g.cwdOf(a), policy.Verdict{Action: action,
		Rules: []policy.Rule{{Permission: "bash", Pattern: "make*"}}})
	if err := g.h.Permissions.RecordEvaluation(g.test.Context(), g.chat, "cause", w); err != nil {
		g.t.Fatal(err)
	}
}

// redeliver evaluates a request again, with another verdict.
func (g *gateModel) redeliver(*rapid.T) { g.evaluate(g.pickRequest(), g.draw("verdict", 8)) }

// decide lets one or two persons decide at once.
func (g *gateModel) decide(*rapid.T) {
	var all []permission.Decide
	for i := range 1 + g.draw("people", 2) {
		c := permission.Decide{Command: handlers.Command{Actor: events.UserActor(fmt.Sprint("u", i))}, Chat: g.chat,
			Permission: g.pickRequest().ID, Decision: events.Denied}
		if g.draw("decision", 4) > 0 {
			c.Decision = events.Authorized
			c.Edited = []string{"", "", "make -n", "make"}[g.draw("edit", 4)]
			c.For = []string{"", "", "1h", "1ns"}[g.draw("for", 4)]
		}
		all = append(all, c)
	}
	var done sync.WaitGroup
	for _, c := range all {
		done.Go(func() { _, _ = g.h.Permissions.Decide(g.test.Context(), c) })
	}
	done.Wait()
}

func (g *gateModel) abort(*rapid.T) {
	g.skipOften()
	_, _ = g.h.Chats.AbortTurn(g.test.Context(), chat.AbortTurn{Chat: g.chat,
		Session: []string{"", "ses_0", "ses_1"}[g.draw("session", 3)]})
}

func (g *gateModel) lose(*rapid.T) {
	g.skipOften()
	a := g.pickRequest()
	g.append(handlerstest.Fact{By: "engine:local", Data: events.TurnLost{Session: a.SessionID}})
	g.append(handlerstest.Fact{By: "engine:local", Data: events.PermissionInterrupted{Permission: a.ID}})
}

func (g *gateModel) restart(*rapid.T) { g.start() }

// run runs a command as the shell does, once or twice at once. The command may differ from the request by a byte, or
// run in another directory.
func (g *gateModel) run(*rapid.T) {
	a := g.pickRequest()
	r := wire.Request{Session: a.SessionID, Call: a.Tool.CallID, Command: a.Command(), Cwd: g.cwdOf(a)}
	switch g.draw("wrong", 9) {
	case 0:
		b := []byte(r.Command)
		b[g.draw("byte", len(b))] ^= 1
		r.Command = string(b)
	case 1:
		r.Cwd = g.dirs[g.draw("dir", 2)]
	case 2:
		r.Command = "make -n"
	}
	var done sync.WaitGroup
	var mu sync.Mutex
	for range 1 + g.draw("shells", 2) {
		done.Go(func() {
			_, _, err := g.x.authorize(g.test.Context(), permission.Session{Chat: g.chat, Directory: g.dirs[0]}, r)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				g.allowed++
			}
		})
	}
	done.Wait()
}

// check reads the log. Every command that ran must match a valid decision exactly, and each decision must be used once.
func (g *gateModel) check() {
	type decision struct {
		events.PermissionDecided
		void string
	}
	decisions, used, lost, granted := map[string]*decision{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	ran := 0
	void := func(why string, of func(*decision) bool) {
		for _, d := range decisions {
			if of(d) {
				d.void = why
			}
		}
	}
	all, data := handlerstest.History(g.test, g.log, g.chat)
	for i, d := range data {
		switch d := d.(type) {
		case events.PermissionDecided:
			if decisions[d.Permission] != nil {
				g.t.Fatalf("%s was decided twice", d.Permission)
			}
			if from := decisions[d.ApprovalOf]; d.ApprovalOf != "" {
				switch {
				case granted[d.ApprovalOf], !lost[d.ApprovalOf], from.Decision != events.Authorized, from.Request != d.Request,
					from.Edited != d.Edited, from.Cwd != d.Cwd, !from.Expires.Equal(d.Expires):
					g.t.Fatalf("%+v is no grant of %+v", d, from)
				case from.void == "aborted":
					g.t.Fatalf("%s was granted by what was aborted", d.Permission)
				}
				granted[d.ApprovalOf] = true
			}
			decisions[d.Permission] = &decision{PermissionDecided: d}
		case events.AbortRequested:
			void("aborted", func(x *decision) bool { return d.Session == "" || d.Session == x.Session })
		case events.TurnLost:
			void("lost", func(x *decision) bool { return d.Session == x.Session && x.void == "" })
		case events.PermissionInterrupted:
			lost[d.Permission] = true
		case events.ExecRequested:
			ran++
			by := decisions[d.Permission]
			original, runs := by.Command, by.Command
			if by.Edited != "" {
				runs = by.Edited
			} else {
				original = ""
			}
			switch {
			case used[d.Permission]:
				g.t.Fatalf("%s was used twice", d.Permission)
			case by.Decision != events.Authorized || by.void != "" || lost[d.Permission]:
				g.t.Fatalf("%+v ran on %+v", d, by)
			case d.Command != runs || d.Original != original || d.Session != by.Session || d.Call != by.Call || d.Cwd != by.Cwd:
				g.t.Fatalf("%+v is not what was decided: %+v", d, by)
			case !by.Expires.IsZero() && !all[i].Time.Before(by.Expires):
				g.t.Fatalf("%+v ran after %s", d, by.Expires)
			}
			used[d.Permission] = true
		}
	}
	if ran != g.allowed {
		g.t.Fatalf("%d commands were let through, %d are recorded", g.allowed, ran)
	}
}

func TestOnlyAuthorizedCommandsRun(t *testing.T) {
	t.Parallel()
	log := eventstest.Log(t)
	h := permissiontest.New(log)
	dirs := []string{t.TempDir(), t.TempDir()}
	for i := range dirs {
		dirs[i], _ = workspace.RealPath(dirs[i])
	}
	total := 0
	expect.Property(t, func(r *rapid.T) {
		chat, _, err := h.Chats.Create(t.Context(), chat.Create{})
		if err != nil {
			r.Fatal(err)
		}
		g := &gateModel{t: r, test: t, log: log, chat: chat, dirs: dirs}
		g.start()
		r.Repeat(map[string]func(*rapid.T){
			"ask": g.request, "again": g.redeliver, "decide": g.decide, "decide another": g.decide, "abort": g.abort, "lose": g.lose, "restart": g.restart,
			"run": g.run, "run another": g.run, "run a third": g.run,
		})
		g.check()
		total += g.allowed
	})
	if total == 0 && !testing.Short() { // then there are too few sequences to count on it
		t.Fatal("nothing ran at all")
	}
	t.Logf("%d commands ran", total)
}
