package permission

import (
	"context"
	"encoding/json"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission/dryrun"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

// ListRules is a query for the rules of a scope. Its result is a list of policy.Rule.
type ListRules struct {
	Chat  string `json:"chat,omitempty"`
	Agent string `json:"agent,omitempty"`
	Seq   uint64 `json:"seq,omitempty"` // 0 is now
}

// ReplayPolicy is a query for the effect that a rule would have had on past requests together with the active rules of
// each chat. Its result is a dryrun.Result.
type ReplayPolicy struct {
	Rule policy.Rule `json:"rule"`
	Chat string      `json:"chat,omitempty"` // empty is all
}

// commandLine is the device of decisions that were sent over NATS.
var commandLine = events.Client{Device: "command line"}

// Commands are the commands about permissions that can be sent over NATS.
func (g Gate) Commands() handlers.Commands {
	return handlers.Commands{
		"permission.decide":  handlers.CommandOf(func(c *Decide, actor string) { c.Actor, c.Client, c.Admin = actor, commandLine, true }, handlers.SeqOnly(g.Decide)),
		"permission.propose": handlers.QueryOf(g.ProposeAlways),
		"permission.always":  handlers.CommandOf(func(c *AllowAlways, actor string) { c.Actor, c.Client = actor, commandLine }, g.allowAlways),
		"policy.rules":       handlers.QueryOf(g.listRules),
		"policy.replay":      handlers.QueryOf(func(ctx context.Context, c ReplayPolicy) (dryrun.Result, error) { return g.DryRun(ctx, c.Rule, c.Chat) }),
	}
}

// allowAlways answers with the ids of the rules.
func (g Gate) allowAlways(ctx context.Context, c AllowAlways) (handlers.Accepted, error) {
	rules, seq, err := g.AllowAlways(ctx, c)
	if err != nil {
		return handlers.Accepted{}, err
	}
	body, err := json.Marshal(rules)
	return handlers.Accepted{Seq: seq, Result: body}, err
}

func (g Gate) listRules(ctx context.Context, c ListRules) ([]policy.Rule, error) {
	return g.InForce(ctx, rule.Scope{Chat: c.Chat, Agent: c.Agent, At: time.Now(), Seq: c.Seq})
}
