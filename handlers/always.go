package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// AlwaysPermission allows from now on what an ask is about, by a rule, and the ask with it.
type AlwaysPermission struct {
	Command
	Chat       string        `json:"chat"`
	Permission string        `json:"permission"`        // OpenCode's per_… id, or that of a RequestPermission
	Pattern    string        `json:"pattern,omitempty"` // of the rule; empty for the smallest sensible one
	Scope      string        `json:"scope"`             // ScopeChat, ScopeAgent or ScopeAll
	For        string        `json:"for,omitempty"`     // a Go duration such as "1h"; empty is for ever
	Shown                    // as for DecidePermission
	ShownRules []policy.Rule `json:"shown_rules,omitempty"` // those of the Proposal that was shown; others are not stored
	Client     events.Client `json:"-"`
}

// Whom a rule that comes of an ask is for.
const (
	ScopeChat  = "chat"  // the chat of the ask
	ScopeAgent = "agent" // the agent that asked, in every chat
	ScopeAll   = "all"
)

// Proposal is what AllowAlways would store, and what that would have allowed so far.
type Proposal struct {
	Rules []policy.Rule `json:"rules"`
	Chat  DryRun        `json:"chat"` // over this chat
	All   DryRun        `json:"all"`  // over all chats
}

// ProposeAlways decides nothing and stores nothing. What it refuses, AllowAlways refuses.
func (g Gate) ProposeAlways(ctx context.Context, c AlwaysPermission) (Proposal, error) {
	what, err := g.always(ctx, c)
	if err != nil {
		return Proposal{}, err
	}
	t := g.trial(what.rules)
	t.which = c.Chat
	err = t.run(ctx, "*")
	return Proposal{Rules: what.rules, Chat: t.chat.result(), All: t.all.result()}, err
}

// AllowAlways stores the rules, or makes those that are there already last as long, and authorizes the ask when it still
// waits: both, or nothing. rules are the ids of the rules, as policy.Rule has them.
func (g Gate) AllowAlways(ctx context.Context, c AlwaysPermission) (rules []string, seq uint64, err error) {
	if rules, seq, err = g.Handlers.savedRules(ctx, c.ID); err != nil || seq != 0 {
		return rules, seq, err
	}
	what, err := g.always(ctx, c)
	if err != nil {
		return nil, 0, err
	}
	seq, err = g.Handlers.Transaction(ctx, func(ctx context.Context) error {
		rules = nil
		for i, r := range what.rules {
			id, err := g.Handlers.saveRule(ctx, c.part(i), r, what)
			if err != nil {
				return err
			}
			rules = append(rules, toolPermissions+"/"+id)
		}
		_, err := g.Handlers.DecidePermission(ctx, DecidePermission{
			Command: c.Command, Chat: c.Chat, Permission: c.Permission, Decision: events.Authorized, Client: c.Client, cwd: what.cwd,
		})
		if r := (Refused{}); errors.As(err, &r) && r.Code == Conflict { // it does not wait any more
			return nil
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return rules, seq, nil
}

// part is the command that stores one of the rules.
func (c AlwaysPermission) part(i int) Command {
	part := c.Command
	if c.ID != "" {
		part.ID = fmt.Sprintf("%s.%d", c.ID, i)
	}
	return part
}

// savedRules gives what an earlier AllowAlways of the same command stored, and where; 0 when there was none.
func (h *Handlers) savedRules(ctx context.Context, command string) (rules []string, seq uint64, err error) {
	if command == "" {
		return nil, 0, nil
	}
	f := h.collection(ctx, toolPermissions)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.advance(ctx, h.Log); err != nil {
		return nil, 0, err
	}
	c := AlwaysPermission{Command: Command{ID: command}}
	for i := 0; ; i++ {
		saved, ok := f.state.(*collection).saved[c.part(i).ID]
		if !ok {
			return rules, seq, nil
		}
		rules, seq = append(rules, toolPermissions+"/"+saved.record), saved.seq
	}
}

// always is what is to be allowed from now on.
type always struct {
	rules       []policy.Rule
	chat, agent string // whom they are for: records
	expires     string // as a record has it
	cwd         string // of the command that is approved with it
	note        string
}

// always finds the rules for an ask. They are refused when they would not allow it.
func (g Gate) always(ctx context.Context, c AlwaysPermission) (what always, err error) {
	if err := c.check(&what); err != nil {
		return what, err
	}
	a, err := g.Handlers.asked(ctx, c.Chat, c.Permission)
	if err != nil {
		return what, err
	}
	if !a.found {
		return what, refuse(NotFound, "there is no permission ask %s in chat %s", c.Permission, c.Chat)
	}
	if err := c.Shown.check(ask{id: c.Permission, typ: a.ask.Permission, command: a.ask.Command(), request: a.ask.Request()}); err != nil {
		return what, err
	}
	wait := callWait
	if a.settled || a.lost || a.cwd != "" {
		wait = 0
	}
	in, agent := g.input(ctx, c.Chat, a.ask, a.intended, wait)
	if a.cwd != "" {
		in.Cwd = a.cwd
	}
	what.cwd = foundAbout(a.ask, a.intended, in.Cwd, policy.Verdict{}).cwd
	if c.Scope == ScopeAgent {
		if what.agent, err = g.Handlers.agentNamed(ctx, agent); err != nil {
			return what, err
		}
	}
	what.note = note("from ask "+c.Permission+" of chat "+c.Chat, textOf(a.ask))
	what.rules = policy.Suggest(in, a.ask.Always)
	if c.Pattern != "" {
		r := policy.Rule{Permission: a.ask.Permission, Pattern: c.Pattern, Action: policy.Allow}
		if len(what.rules) > 0 {
			r.Permission = what.rules[0].Permission // of a tool it is another than the ask's
		}
		what.rules = []policy.Rule{r}
	}
	for _, r := range what.rules {
		if err := CheckRule(r); err != nil {
			return what, err
		}
	}
	// What a path leads to may have changed since the person looked.
	if shown, now := texts(c.ShownRules), texts(what.rules); len(shown) > 0 && !slices.Equal(shown, now) {
		return what, refuseField(Conflict, "shown_rules", "The rule would not be the one that was shown: it would be %q now. Nothing was stored.", strings.Join(now, " + "))
	}
	inForce, err := g.InForce(ctx, RuleScope{Chat: c.Chat, Agent: agent, At: time.Now()})
	if err != nil {
		return what, err
	}
	v := policy.Evaluate(append(inForce, what.rules...), in)
	switch {
	case v.Action == policy.Allow && len(what.rules) > 0:
		return what, nil
	case len(what.rules) == 0:
		return what, refuseField(Invalid, "pattern", "there is no rule to propose: %s", v.Reason)
	}
	return what, refuseField(Invalid, "pattern", "the rule would not allow this: %s", v.Reason)
}

func texts(rules []policy.Rule) (all []string) {
	for _, r := range rules {
		all = append(all, r.String())
	}
	return all
}

func (c AlwaysPermission) check(what *always) error {
	if _, err := events.ParseID(c.Chat); err != nil {
		return refuseField(Invalid, "chat", "chat: %v", err)
	}
	switch c.Scope {
	case ScopeChat:
		what.chat = c.Chat
	case ScopeAgent, ScopeAll:
	default:
		return refuseField(Invalid, "scope", "scope: want %q, %q or %q, got %q", ScopeChat, ScopeAgent, ScopeAll, c.Scope)
	}
	if c.For == "" {
		return nil
	}
	lasts, err := duration("for", c.For)
	what.expires = time.Now().UTC().Add(lasts).Format(dateFormat)
	return err
}

// note says in a record where a rule comes from.
func note(from, text string) string {
	if short := []rune(text); len(short) > 200 {
		text = string(short[:200]) + "…"
	}
	return from + ": " + text
}

// agentNamed finds the record of an agent.
func (h *Handlers) agentNamed(ctx context.Context, name string) (record string, err error) {
	err = h.withRulebook(ctx, func(b *rulebook) {
		for id, agent := range b.agents {
			if agent.name == name && name != "" && !agent.deleted {
				record = id
			}
		}
	})
	if err == nil && record == "" {
		err = refuseField(Invalid, "scope", "scope: no agent of the name %q is kept", name)
	}
	return record, err
}

// saveRule stores a rule, or gives the record of the same one that is in force as long.
func (h *Handlers) saveRule(ctx context.Context, c Command, r policy.Rule, what always) (record string, err error) {
	set := map[string]any{"active": true, "expires_at": what.expires, "author": strings.TrimPrefix(c.Actor, events.UserActor("")), "note": what.note}
	isNew, lasts := true, false
	err = h.withRulebook(ctx, func(b *rulebook) {
		for id, k := range b.rules {
			if k.rule.Permission != r.Permission || k.rule.Pattern != r.Pattern || k.rule.Action != policy.Allow || k.chat != what.chat || k.agent != what.agent {
				continue
			}
			until, _ := parseDate(what.expires)
			record, isNew = id, false
			lasts = k.active && k.broken == nil && (k.expires.IsZero() || what.expires != "" && !k.expires.Before(until))
		}
	})
	if err != nil || lasts {
		return record, err
	}
	if isNew {
		for field, value := range map[string]string{"agent": what.agent, "chat": what.chat, "tool": r.Permission, "pattern": r.Pattern, "action": string(policy.Allow)} {
			set[field] = value
		}
	}
	fields := map[string]json.RawMessage{}
	for field, value := range set {
		fields[field], _ = json.Marshal(value) // texts and a bool
	}
	id, _, err := h.SaveRecord(ctx, SaveRecord{
		Command: c, Collection: toolPermissions, Record: record, Set: fields, New: isNew, Unique: ruleUnique,
	})
	return id, err
}

// ruleUnique are the fields that together name a rule of tool_permissions.
var ruleUnique = []string{"agent", "tool", "pattern", "chat"}
