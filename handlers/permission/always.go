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
	"pocketcoder/handlers/permission/dryrun"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

// Always is the command to store a rule that allows such requests from now on, and to approve the request itself.
type Always struct {
	handlers.Command
	Chat       string        `json:"chat"`
	Permission string        `json:"permission"`        // OpenCode's per_… id, or that of a request over the API
	Pattern    string        `json:"pattern,omitempty"` // of the rule; empty for the smallest sensible one
	Scope      string        `json:"scope"`             // ScopeChat, ScopeAgent or ScopeAll
	For        string        `json:"for,omitempty"`     // a Go duration such as "1h"; empty is for ever
	Shown                    // as for Decide
	ShownRules []policy.Rule `json:"shown_rules,omitempty"` // those of the Proposal that was shown; others are not stored
	Client     events.Client `json:"-"`
}

// The scopes of a rule that is made from a request.
const (
	ScopeChat  = "chat"  // the chat of the request
	ScopeAgent = "agent" // the agent that asked, in every chat
	ScopeAll   = "all"
)

// Proposal holds the rules that AllowAlways would store, and the requests that they would have allowed so far.
type Proposal struct {
	Rules []policy.Rule `json:"rules"`
	Chat  dryrun.Result `json:"chat"` // over this chat
	All   dryrun.Result `json:"all"`  // over all chats
}

// ProposeAlways returns the rules that AllowAlways would store. It stores and decides nothing, and refuses what
// AllowAlways refuses.
func (g Gate) ProposeAlways(ctx context.Context, c Always) (Proposal, error) {
	what, err := g.newRules(ctx, c)
	if err != nil {
		return Proposal{}, err
	}
	all, one, err := g.trial(what.rules).Both(ctx, c.Chat)
	return Proposal{Rules: what.rules, Chat: one, All: all}, err
}

// DryRun tries a rule on the past requests of a chat, or of all chats if chat is empty.
func (g Gate) DryRun(ctx context.Context, rule policy.Rule, chat string) (dryrun.Result, error) {
	if err := record.CheckRule(rule); err != nil {
		return dryrun.Result{}, err
	}
	return g.trial([]policy.Rule{rule}).Chat(ctx, chat)
}

// trial returns a trial of rules on past requests. It assumes that an unknown session worked in the workspace.
func (g Gate) trial(rules []policy.Rule) dryrun.Trial {
	directory := func(chat, session string) string { return g.directory(chat, session, true) }
	return dryrun.Trial{History: g.History, Rules: rules, Directory: directory, Ask: g.askOn}
}

// AllowAlways stores the rules, and approves the request if it is still pending: both, or neither. It extends the time
// of a rule that exists already. It returns the ids of the rules, as policy.Rule has them.
func (g Gate) AllowAlways(ctx context.Context, c Always) (rules []string, seq uint64, err error) {
	if rules, seq, err = g.savedRules(ctx, c); err != nil || seq != 0 {
		return rules, seq, err
	}
	what, err := g.newRules(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	seq, err = handlers.Transaction(ctx, g.Permissions.Log, func(ctx context.Context) error {
		rules = nil
		for i, r := range what.rules {
			id, err := g.Records.AllowRule(ctx, record.AllowRule{
				Command: c.part(i), Rule: r, Chat: what.chat, Agent: what.agent, Expires: what.expires, Note: what.note,
			})
			if err != nil {
				return err
			}
			rules = append(rules, id)
		}
		_, err := g.Permissions.Decide(ctx, Decide{
			Command: c.Command, Chat: c.Chat, Permission: c.Permission, Decision: events.Authorized, Client: c.Client, cwd: what.cwd,
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
func (c Always) part(i int) handlers.Command {
	part := c.Command
	if c.ID != "" {
		part.ID = fmt.Sprintf("%s.%d", c.ID, i)
	}
	return part
}

// savedRules returns the rules that an earlier AllowAlways of the same command stored, and the sequence of the last
// one. The sequence is 0 if there was none.
func (g Gate) savedRules(ctx context.Context, c Always) (rules []string, seq uint64, err error) {
	for i := 0; c.ID != ""; i++ {
		rule, stored, err := g.Records.SavedRule(ctx, c.part(i).ID)
		if err != nil || stored == 0 {
			return rules, seq, err
		}
		rules, seq = append(rules, rule), stored
	}
	return nil, 0, nil
}

// newRules holds the rules that an Always command stores.
type newRules struct {
	rules       []policy.Rule
	chat, agent string // ids of the records to which the rules apply; empty for all
	expires     string // in the time format of records
	cwd         string // of the command that is approved with the rules
	note        string
}

// newRules returns the rules for a request. It refuses rules that would not allow the request.
func (g Gate) newRules(ctx context.Context, c Always) (what newRules, err error) {
	if err := c.check(&what); err != nil {
		return what, err
	}
	r, err := g.Permissions.known(ctx, c.Chat, c.Permission)
	if err != nil {
		return what, err
	}
	if err := c.Shown.check(r); err != nil {
		return what, err
	}
	wait := callWait
	if !r.Pending() || r.Interrupted || r.cwd() != "" {
		wait = 0
	}
	in, agent := g.input(ctx, c.Chat, *r.Ask, r.Direct, wait)
	in.Cwd = cmp.Or(r.cwd(), in.Cwd)
	what.cwd = NewEvaluation(*r.Ask, r.Direct, in.Cwd, policy.Verdict{}).cwd
	if c.Scope == ScopeAgent {
		if what.agent, err = g.Records.AgentNamed(ctx, agent); err != nil {
			return what, err
		}
	}
	what.note = note("from ask "+c.Permission+" of chat "+c.Chat, r.Ask.Text())
	what.rules = policy.Suggest(in, r.Ask.Always)
	if c.Pattern != "" {
		rule := policy.Rule{Permission: r.Type, Pattern: c.Pattern, Action: policy.Allow}
		if len(what.rules) > 0 {
			rule.Permission = what.rules[0].Permission // the rule of a tool has another type than the request
		}
		what.rules = []policy.Rule{rule}
	}
	for _, r := range what.rules {
		if err := record.CheckRule(r); err != nil {
			return what, err
		}
	}
	// The target of a symbolic link may have changed since the person saw the rule.
	if shown, now := texts(c.ShownRules), texts(what.rules); len(shown) > 0 && !slices.Equal(shown, now) {
		return what, handlers.RefuseField(handlers.Conflict, "shown_rules",
			"The rule would not be the one that was shown: it would be %q now. Nothing was stored.", strings.Join(now, " + "))
	}
	inForce, err := g.InForce(ctx, record.RuleScope{Chat: c.Chat, Agent: agent, At: time.Now()})
	if err != nil {
		return what, err
	}
	v := policy.Evaluate(append(inForce, what.rules...), in)
	switch {
	case v.Action == policy.Allow && len(what.rules) > 0:
		return what, nil
	case len(what.rules) == 0:
		return what, handlers.RefuseField(handlers.Invalid, "pattern", "there is no rule to propose: %s", v.Reason)
	}
	return what, handlers.RefuseField(handlers.Invalid, "pattern", "the rule would not allow this: %s", v.Reason)
}

func texts(rules []policy.Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.String())
	}
	return all
}

func (c Always) check(what *newRules) error {
	if err := handlers.CheckChat(c.Chat); err != nil {
		return err
	}
	switch c.Scope {
	case ScopeChat:
		what.chat = c.Chat
	case ScopeAgent, ScopeAll:
	default:
		return handlers.RefuseField(handlers.Invalid, "scope", "scope: want %q, %q or %q, got %q", ScopeChat, ScopeAgent,
			ScopeAll, c.Scope)
	}
	if c.For == "" {
		return nil
	}
	lasts, err := duration("for", c.For)
	what.expires = record.FormatTime(time.Now().Add(lasts))
	return err
}

// note returns the text of a record that names the origin of its rule.
func note(from, text string) string {
	if short := []rune(text); len(short) > 200 {
		text = string(short[:200]) + "…"
	}
	return from + ": " + text
}
