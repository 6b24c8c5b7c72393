package permission

import (
	"context"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

// PastChat is a chat, or with an empty Chat a new one with a project, an agent and a ceiling.
type PastChat struct {
	Chat, Project, Agent string
	Ceiling              *events.Ceiling
}

// PastVerdict returns a function that evaluates a past request with the rules that a chat has now, or that a new one
// would have. It assumes that an unknown session worked in the workspace.
func (g Gate) PastVerdict(ctx context.Context, in PastChat) (func(events.PastRequest) policy.Verdict, error) {
	if in.Chat != "" {
		at, err := g.placeOf(ctx, in.Chat)
		if err != nil {
			return nil, err
		}
		in.Agent = at.agent
	}
	sets, err := g.rulesOf(ctx, rule.Scope{Chat: in.Chat, Project: in.Project}, in.Agent)
	if err == nil && in.Ceiling != nil {
		var above RuleSets
		above, err = g.RulesOf(ctx, in.Ceiling.Chat, in.Ceiling.Agent)
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
