package permission

import (
	"cmp"
	"context"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
)

// review holds a request and what the policy evaluates.
type review struct {
	Request
	Input policy.Input // by the current files
	Agent string       // that made the request; empty when it is not known
	// of the time when the policy evaluated the request; the current ones if it has not
	Rules []policy.Rule
}

// review returns a stored request of a chat. It decides nothing.
func (g Gate) review(ctx context.Context, chat, permission string) (r review, err error) {
	if err := handlers.CheckChat(chat); err != nil {
		return r, err
	}
	if r.Request, err = g.Permissions.known(ctx, chat, permission); err != nil {
		return r, err
	}
	in, by := g.input(ctx, chat, *r.Content, r.ViaAPI, 0)
	in.Cwd = cmp.Or(r.cwd(), in.Cwd)
	r.Input, r.Agent = in, by.Agent
	scope := by.scope(chat)
	if r.Outcome.Decided != nil && r.Outcome.By == events.ActorPolicy {
		scope.Seq, scope.At = r.Outcome.Seq, r.Outcome.At
	} else if r.Escalation.Seq != 0 {
		scope.Seq, scope.At = r.Escalation.Seq, r.Escalation.At
	}
	rules, err := g.RuleSets(ctx, scope)
	_, r.Rules = rules.judge(in)
	return r, err
}
