package permission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

// RuleSets are the rules of a request: first those of its own agent and chat, then, for a delegate, those of the agents
// that delegated, and for a run of an assistant's schedule those of the chat that made the schedule. The strictest
// verdict counts, so a delegate may never do more than the chat that delegated to it, and a run no more than that
// assistant.
type RuleSets [][]policy.Rule

// ownAgent is the name of OpenCode's agent in a chat for which no person has chosen one.
const ownAgent = "build"

func (g Gate) RuleSets(ctx context.Context, s rule.Scope) (sets RuleSets, err error) {
	scopes, err := g.scopes(ctx, s)
	for _, scope := range scopes {
		rules, err := g.InForce(ctx, scope)
		if err != nil {
			return nil, err
		}
		sets = append(sets, rules)
	}
	return sets, err
}

// RulesOf returns the rules of a chat for an agent that a person has chosen. An empty agent, the id of a record, is
// OpenCode's own.
func (g Gate) RulesOf(ctx context.Context, chat, chosen string) (RuleSets, error) {
	return g.rulesOf(ctx, rule.Scope{Chat: chat}, chosen)
}

// rulesOf returns the rules of a scope for an agent that a person has chosen.
func (g Gate) rulesOf(ctx context.Context, s rule.Scope, chosen string) (RuleSets, error) {
	s.Agent, s.Chosen, s.At = ownAgent, chosen, time.Now()
	if chosen != "" {
		names, err := agent.Names(ctx, g.Records)
		if err != nil {
			return nil, err
		}
		s.Agent = names[chosen]
	}
	return g.RuleSets(ctx, s)
}

// scopes returns a scope, and those of the chats above a delegate or a scheduled run. The agent of a chat above is the
// one that was chosen when it delegated, and the one that is chosen now. If a subagent delegated, its rules count too.
// An erased chat has no chat above but the root of the tree, which its delegates name.
func (g Gate) scopes(ctx context.Context, s rule.Scope) (scopes []rule.Scope, err error) {
	scopes = []rule.Scope{s}
	if s.Chat == "" {
		return scopes, nil
	}
	at, err := g.placeOf(ctx, s.Chat)
	if err != nil {
		return nil, err
	}
	scopes[0].Project = at.project
	for chat, root := s.Chat, s.Chat; ; {
		parent := at.parent
		if parent == nil && chat != root {
			parent = &events.Parent{Chat: root, Root: root}
		}
		if parent == nil {
			return scopes, nil
		}
		root = parent.Root
		project := at.project
		if at, err = g.placeOf(ctx, parent.Chat); err != nil {
			return nil, err
		}
		at.project = cmp.Or(at.project, project)
		for _, id := range slices.Compact([]string{parent.Agent, at.agent}) {
			above := rule.Scope{Chat: parent.Chat, Project: at.project, Within: s.Chat, Agent: ownAgent, Chosen: id, At: s.At,
				Seq: s.Seq}
			if id != "" {
				names, err := agent.Names(ctx, g.Records)
				if err != nil {
					return nil, err
				}
				above.Agent = names[id]
			}
			scopes = append(scopes, above)
		}
		if parent.Subagent != "" {
			scopes = append(scopes, rule.Scope{Chat: parent.Chat, Project: at.project, Within: s.Chat,
				Agent: parent.Subagent, Chosen: parent.Agent, At: s.At, Seq: s.Seq})
		}
		chat = parent.Chat
	}
}

// place is what the rules of a chat depend on.
type place struct {
	parent  *events.Parent // the chat that limits a delegate or a scheduled run; nil for another chat or an erased one
	agent   string         // chosen agent of the chat
	project string         // of the chat; empty for an erased one
}

// placeOf returns the place of a chat. It fails if the replica of the log that answers does not have the chat yet.
func (g Gate) placeOf(ctx context.Context, chat string) (p place, err error) {
	err = g.Permissions.Chat(ctx, chat).Read(ctx, g.Permissions.Log, func(s *State) error {
		if s.Created == 0 && s.Deleted == 0 { // an erased chat has no readable event but the erasure, which is Deleted
			return fmt.Errorf("look up who delegated to chat %s: the chat is not there yet", chat)
		}
		p = place{s.Parent, s.Agent, s.Project}
		if c := s.Ceiling; p.parent == nil && c != nil {
			p.parent = &events.Parent{Chat: c.Chat, Root: c.Root, Agent: c.Agent, Subagent: c.Subagent}
		}
		return nil
	})
	return p, err
}

// with returns the rule sets with more rules of a scope. What is allowed to an agent is not allowed to the one that
// delegates to it.
func (sets RuleSets) with(more []policy.Rule, scope string) RuleSets {
	sets = slices.Clone(sets)
	for i := range sets {
		if i == 0 || scope != ScopeAgent {
			sets[i] = slices.Concat(sets[i], more)
		}
	}
	return sets
}

// DeniedTools returns the tools that the rules deny wholly, as policy.Rule.DeniedTool names them.
func (sets RuleSets) DeniedTools() (names []string) {
	for _, rule := range slices.Concat(sets...) {
		if name := rule.DeniedTool(); name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// judge returns the strictest verdict, and the rules that it follows from.
func (sets RuleSets) judge(in policy.Input) (strictest policy.Verdict, rules []policy.Rule) {
	for i, set := range sets {
		v := judge(set, in)
		if i > 0 && rank(v) <= rank(strictest) {
			continue
		}
		if i > 0 {
			v.Reason = "what the chat that delegated or scheduled this may do decides: " + v.Reason
		}
		strictest, rules = v, set
	}
	return strictest, rules
}

// rank orders verdicts: deny, then what a rule asks about, then what no rule allows, then allow.
func rank(v policy.Verdict) int {
	switch {
	case v.Action == policy.Deny:
		return 3
	case v.Action == policy.AskPerson && len(v.Rules) > 0:
		return 2
	case v.Action == policy.AskPerson:
		return 1
	}
	return 0
}
