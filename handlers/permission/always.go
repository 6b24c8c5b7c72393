package permission

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

// AllowAlways is the command to store a rule that allows such requests from now on, and to approve the request itself.
type AllowAlways struct {
	handlers.Command
	Chat         string `json:"chat"`
	Permission   string `json:"permission"`        // OpenCode's per_… id, or that of a request over the API
	Pattern      string `json:"pattern,omitempty"` // of the rule; empty for the smallest sensible one
	Scope        string `json:"scope"`             // ScopeChat, ScopeAgent or ScopeAll
	For          string `json:"for,omitempty"`     // a Go duration such as "1h"; empty is for ever
	ShownRequest        // as for Decide
	// those of the Proposal that was shown; others are not stored
	ShownRules []policy.Rule `json:"shown_rules,omitempty"`
	Client     events.Client `json:"-"`
}

// The scopes of a rule that is made from a request.
const (
	ScopeChat  = "chat"  // the chat of the request
	ScopeAgent = "agent" // the agent that asked, in every chat
	ScopeAll   = "all"
)

// Proposal holds the rules that AllowAlways would store, and the last requests that they would have allowed.
type Proposal struct {
	Rules []policy.Rule `json:"rules"`
	// what the rules do not cover, though their patterns look as if they did
	Limits []string     `json:"limits,omitempty"`
	Chat   DryRunResult `json:"chat"` // over this chat
	All    DryRunResult `json:"all"`  // over all chats
}

// ProposeAlways returns the rules that AllowAlways would store. It stores and decides nothing, and refuses what
// AllowAlways refuses.
func (g Gate) ProposeAlways(ctx context.Context, c AllowAlways) (Proposal, error) {
	proposed, err := g.newRules(ctx, c)
	if err != nil {
		return Proposal{}, err
	}
	p, trial := Proposal{Rules: proposed.rules}, g.trial(proposed.rules, c.Scope)
	for _, r := range proposed.rules {
		p.Limits = append(p.Limits, r.Limits()...)
	}
	if p.Chat, err = trial.Run(ctx, c.Chat); err == nil {
		p.All, err = trial.Run(ctx, "")
	}
	return p, err
}

// DryRun tries a rule, together with the active rules of each chat, on the last requests of a chat, or of all chats if
// chat is empty.
func (g Gate) DryRun(ctx context.Context, r policy.Rule, chat string) (DryRunResult, error) {
	if err := rule.Check(r); err != nil {
		return DryRunResult{}, err
	}
	return g.trial([]policy.Rule{r}, ScopeAll).Run(ctx, chat)
}

// trial returns a trial of rules of a scope on past requests. It assumes that an unknown session worked in the
// workspace, and that a request was made by the agent that its chat has now.
func (g Gate) trial(rules []policy.Rule, scope string) *DryRun {
	return &DryRun{
		History: g.History, Rules: rules, Input: g.inputOfStored,
		Directory: func(chat, session string) string { return g.directory(chat, session, true) },
		Active: func(ctx context.Context, chat string) (ActiveRules, error) {
			at, err := g.placeOf(ctx, chat)
			if err != nil {
				return nil, err
			}
			active, err := g.RulesOf(ctx, chat, at.agent)
			return func(more []policy.Rule, in policy.Input) policy.Verdict {
				v, _ := active.with(more, scope).judge(in)
				return v
			}, err
		},
	}
}

// AllowAlways stores the rules, and approves the request if it is still pending: both, or neither. It extends the time
// of a rule that exists already. It returns the ids of the rules, as policy.Rule has them.
func (g Gate) AllowAlways(ctx context.Context, c AllowAlways) (rules []string, seq uint64, err error) {
	if rules, seq, err = g.savedRules(ctx, c); err != nil || seq != 0 {
		return rules, seq, err
	}
	proposed, err := g.newRules(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	r, err := g.Permissions.known(ctx, c.Chat, c.Permission)
	if err != nil {
		return nil, 0, err
	}
	files, err := g.checkFiles(ctx, c.Chat, r, proposed.cwd, "")
	if err != nil {
		return nil, 0, err
	}
	seq, err = handlers.Transaction(ctx, g.Permissions.Log, func(ctx context.Context) error {
		rules = nil
		for i, r := range proposed.rules {
			id, err := rule.Allow(ctx, g.Records, rule.AllowRule{
				Command: c.part(i), Rule: r, Chat: proposed.chat, Agent: proposed.agent, Expires: proposed.expires, Note: proposed.note,
			})
			if err != nil {
				return err
			}
			rules = append(rules, id)
		}
		_, err := g.Permissions.Decide(ctx, Decide{
			Command: c.Command, Chat: c.Chat, Permission: c.Permission, Decision: events.Authorized, Client: c.Client, cwd: proposed.cwd,
			files: files,
		})
		if handlers.CodeOf(err) == handlers.Conflict { // the request is no longer pending
			return nil
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return rules, seq, nil
}

// part returns the command that stores rule i.
func (c AllowAlways) part(i int) handlers.Command {
	part := c.Command
	if c.ID != "" {
		part.ID = fmt.Sprintf("%s.%d", c.ID, i)
	}
	return part
}

// savedRules returns the rules that an earlier AllowAlways of the same command stored, and the sequence of the last
// one. The sequence is 0 if there was none.
func (g Gate) savedRules(ctx context.Context, c AllowAlways) (rules []string, seq uint64, err error) {
	for i := 0; c.ID != ""; i++ {
		rule, stored, err := rule.SavedBy(ctx, g.Records, c.part(i).ID)
		if err != nil || stored == 0 {
			return rules, seq, err
		}
		rules, seq = append(rules, rule), stored
	}
	return nil, 0, nil
}

// ruleProposal holds the rules that an Always command stores.
type ruleProposal struct {
	rules       []policy.Rule
	chat, agent string // ids of the records to which the rules apply; empty for all
	expires     string // in the time format of records
	cwd         string // of the command that is approved with the rules
	note        string
}

// newRules returns the rules for a request. It refuses rules that would not allow the request.
func (g Gate) newRules(ctx context.Context, c AllowAlways) (proposed ruleProposal, err error) {
	if err := c.check(&proposed); err != nil {
		return proposed, err
	}
	r, err := g.Permissions.known(ctx, c.Chat, c.Permission)
	if err != nil {
		return proposed, err
	}
	if err := c.ShownRequest.check(r); err != nil {
		return proposed, err
	}
	wait := callWait
	if !r.Pending() || r.Interrupted || r.cwd() != "" {
		wait = 0
	}
	in, by := g.input(ctx, c.Chat, *r.Content, r.ViaAPI, wait)
	in.Cwd = cmp.Or(r.cwd(), in.Cwd)
	proposed.cwd = NewEvaluation(*r.Content, r.ViaAPI, in.Cwd, policy.Verdict{}).cwd
	if c.Scope == ScopeAgent {
		if proposed.agent, err = g.agentNamed(ctx, by.Agent); err != nil {
			return proposed, err
		}
	}
	proposed.note = note("from ask "+c.Permission+" of chat "+c.Chat, r.Content.Text())
	proposed.rules = policy.Suggest(in, r.Content.Always)
	if c.Pattern != "" {
		rule := policy.Rule{Permission: r.Type, Pattern: c.Pattern, Action: policy.Allow}
		if len(proposed.rules) > 0 {
			rule.Permission = proposed.rules[0].Permission // the rule of a tool has another type than the request
		}
		proposed.rules = []policy.Rule{rule}
	}
	for _, r := range proposed.rules {
		if err := rule.Check(r); err != nil {
			return proposed, err
		}
	}
	// The target of a symbolic link may have changed since the person saw the rule.
	if shown, now := texts(c.ShownRules), texts(proposed.rules); len(shown) > 0 && !slices.Equal(shown, now) {
		return proposed, handlers.RefuseField(handlers.Conflict, "shown_rules",
			"The rule would not be the one that was shown: it would be %q now. Nothing was stored.", strings.Join(now, " + "))
	}
	inForce, err := g.RuleSets(ctx, by.scope(c.Chat))
	if err != nil {
		return proposed, err
	}
	v, _ := inForce.with(proposed.rules, c.Scope).judge(in)
	switch {
	case v.Action == policy.Allow && len(proposed.rules) > 0:
		return proposed, nil
	case len(proposed.rules) == 0:
		return proposed, handlers.RefuseField(handlers.Invalid, "pattern", "there is no rule to propose: %s", v.Reason)
	}
	return proposed, handlers.RefuseField(handlers.Invalid, "pattern", "the rule would not allow this: %s", v.Reason)
}

func (g Gate) agentNamed(ctx context.Context, name string) (string, error) {
	names, err := agent.Names(ctx, g.Records)
	if err != nil {
		return "", err
	}
	for record, stored := range names {
		if stored == name {
			return record, nil
		}
	}
	return "", handlers.RefuseField(handlers.Invalid, "scope", "scope: there is no agent %q", name)
}

func texts(rules []policy.Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.String())
	}
	return all
}

func (c AllowAlways) check(proposed *ruleProposal) error {
	if err := handlers.CheckChat(c.Chat); err != nil {
		return err
	}
	switch c.Scope {
	case ScopeChat:
		proposed.chat = c.Chat
	case ScopeAgent, ScopeAll:
	default:
		return handlers.RefuseField(handlers.Invalid, "scope", "scope: want %q, %q or %q, got %q", ScopeChat, ScopeAgent,
			ScopeAll, c.Scope)
	}
	if c.For == "" {
		return nil
	}
	lasts, err := duration("for", c.For)
	proposed.expires = events.FormatTime(time.Now().Add(lasts))
	return err
}

// note returns the text of a record that names the origin of its rule.
func note(from, text string) string {
	if short := []rune(text); len(short) > 200 {
		text = string(short[:200]) + "…"
	}
	return from + ": " + text
}
