package permission

import (
	"context"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// PastVerdict returns a function that evaluates a past request with the rules that a chat has now, or that a new chat
// with an agent and a ceiling would have if chat is empty. It assumes that an unknown session worked in the workspace.
func (g Gate) PastVerdict(ctx context.Context, chat, agent string, ceiling *events.Ceiling) (
	func(events.PastRequest) policy.Verdict, error) {
	if chat != "" {
		at, err := g.placeOf(ctx, chat)
		if err != nil {
			return nil, err
		}
		agent = at.agent
	}
	sets, err := g.RulesOf(ctx, chat, agent)
	if err == nil && ceiling != nil {
		var above RuleSets
		above, err = g.RulesOf(ctx, ceiling.Chat, ceiling.Agent)
		sets = append(sets, above...)
	}
	return func(r events.PastRequest) policy.Verdict {
		in := g.inputOfStored(r.Request, g.directory(r.Chat, r.Request.SessionID, true))
		if r.Cwd != "" {
			in.Cwd = r.Cwd
		}
		v, _ := sets.judge(in)
		return v
	}, err
}
