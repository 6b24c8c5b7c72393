package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// Session is what is known of an OpenCode session.
type Session struct {
	Chat      string
	Directory string // absolute
}

// Gate is the reaction to permission asks: what a rule allows is decided at once, in the name of the policy; what was
// approved before OpenCode forgot it is decided by that approval, once; everything else waits for a person.
type Gate struct {
	Handlers *Handlers
	Rules    []policy.Rule
	Session  func(id string) (Session, bool) // of a session whose asks are in the log
	Log      *slog.Logger
}

// The names under which the log remembers which asks the gate has looked at: OpenCode's, and those of RequestPermission.
const (
	GateWorker         = "gate"
	GateRequestsWorker = "gate-requests"
)

// Run reacts until ctx ends. Each ask is looked at exactly as often as it takes: after a crash it goes on where it was.
func (g Gate) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	for name, asked := range map[string]events.Data{
		GateWorker: events.OpenCode{Type: events.PermissionAsked}, GateRequestsWorker: events.PermissionRequested{},
	} {
		go func() {
			ended <- g.Handlers.Log.Work(ctx, name, events.ChatSubject("*", asked.Kind()), g.react, func(e events.Event, err error) {
				g.Log.Error("gate", "seq", e.Seq, "err", err)
			})
		}()
	}
	err := <-ended
	cancel()
	<-ended
	return err
}

func (g Gate) react(ctx context.Context, e events.Event) error {
	ask, intended, err := askOf(e)
	if err != nil {
		g.Log.Error("gate: unreadable ask", "seq", e.Seq, "err", err)
		return nil // it stays undecided, and OpenCode waiting: trying again would not make it readable
	}
	return g.decide(ctx, e.Subject.ID, ask, intended)
}

// askOf reads an ask, and whether it came by RequestPermission.
func askOf(e events.Event) (ask events.PermissionAsk, intended bool, err error) {
	d, err := events.Decode(e)
	if err != nil {
		return ask, false, err
	}
	if requested, ok := d.(events.PermissionRequested); ok {
		return requested.Ask(), true, nil
	}
	err = json.Unmarshal(e.Data, &ask)
	return ask, false, err
}

// decide does with an ask what needs no person.
func (g Gate) decide(ctx context.Context, chat string, ask events.PermissionAsk, intended bool) error {
	c, earlier, err := g.look(ctx, chat, ask, intended)
	if err != nil || c == nil {
		return err
	}
	if c.Decision != "" {
		_, err := g.Handlers.DecidePermission(ctx, *c)
		if r, _ := err.(Refused); err != nil && r.Code != Conflict { // a conflict: a person was first
			return err
		}
	}
	return g.supersede(ctx, chat, ask.ID, earlier)
}

// look says what to do about an ask: nothing (nil), decide it, or, when the command has no decision, leave it to a person.
// earlier are undecided asks for the same, which OpenCode forgot.
func (g Gate) look(ctx context.Context, chat string, a events.PermissionAsk, intended bool) (c *DecidePermission, earlier []string, err error) {
	f := g.Handlers.chatPermissions(ctx, chat)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.advance(ctx, g.Handlers.Log); err != nil {
		return nil, nil, err
	}
	s := f.state.(*permissions)
	if _, done := s.settled[a.ID]; done || intended != s.intended(a.ID) { // the other kind's ask had the id first
		return nil, nil, nil
	}
	c = &DecidePermission{Command: Command{ID: s.asks[a.ID].event, Actor: events.ActorPolicy}, Chat: chat, Permission: a.ID}
	if s.deleted != 0 {
		c.Decision, c.Reason = events.Denied, "the chat was deleted"
		return c, nil, nil
	}
	if grant, by := s.grant(a.Request()); grant != "" && !intended {
		c.Decision, c.Grant, c.Actor = events.Authorized, grant, by
		c.Reason = fmt.Sprintf("approved as %s, which OpenCode forgot when it restarted", grant)
	} else if rule, ok := policy.Evaluate(g.Rules, g.input(chat, a)); ok {
		c.Decision, c.Rule = events.Authorized, rule.String()
	}
	for id, other := range s.asks {
		if _, done := s.settled[id]; !done && s.lost[id] && !intended && id != a.ID && other.request == a.Request() {
			earlier = append(earlier, id)
		}
	}
	return c, earlier, nil
}

// supersede expires undecided asks that OpenCode forgot and now asks again, so that a person sees each request once.
func (g Gate) supersede(ctx context.Context, chat, by string, earlier []string) error {
	for _, id := range earlier {
		e, err := events.New(chat, events.ActorPolicy, events.PermissionExpired{Permission: id, Reason: "asked again as " + by})
		if err != nil {
			return err
		}
		if _, err := g.Handlers.Log.Append(ctx, e.CausedBy(by)); err != nil {
			return err
		}
	}
	return nil
}

// input is what the policy looks at. Paths are resolved here, because the policy does no I/O; what cannot be resolved
// is left out, and the policy asks.
func (g Gate) input(chat string, ask events.PermissionAsk) policy.Ask {
	in := policy.Ask{Type: ask.Permission, Patterns: ask.Patterns, Command: ask.Command()}
	session, ok := g.Session(ask.SessionID)
	if !ok || session.Chat != chat || (ask.Permission != "read" && ask.Permission != "list") {
		return in
	}
	in.Root, _ = filepath.EvalSymlinks(session.Directory)
	for _, p := range ask.Patterns {
		if real, ok := resolve(session.Directory, p); ok {
			in.Paths = append(in.Paths, real)
		}
	}
	return in
}

// resolve finds the file a pattern means. OpenCode writes it relative to its worktree: the directory, the git repository
// around it, or / outside of one. That is taken which exists; when several do, none is.
func resolve(directory, pattern string) (real string, ok bool) {
	if filepath.IsAbs(pattern) {
		real, err := filepath.EvalSymlinks(pattern)
		return real, err == nil
	}
	for root := directory; ; root = filepath.Dir(root) {
		if found, err := filepath.EvalSymlinks(filepath.Join(root, pattern)); err == nil {
			if ok && found != real {
				return "", false
			}
			real, ok = found, true
		}
		if root == filepath.Dir(root) {
			return real, ok
		}
	}
}
