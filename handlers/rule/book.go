package rule

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

// Scope selects the rules of a chat, an agent and a time.
type Scope struct {
	Chat    string
	Project string // of the chat
	Within  string // chat of a delegate below Chat, whose rules apply too; empty for none
	// name of the session's agent. It is empty if unknown; rules for an agent then allow nothing
	Agent string
	// record of the agent that a person has chosen for the turn. Its rules that deny or ask apply to subagents too,
	// also after it was renamed
	Chosen string
	At     time.Time // rules that have expired by then do not count
	Seq    uint64    // selects the rules as of this event; 0 is now
}

// The collections that hold rules, and the agents they name.
const (
	ToolPermissions  = "tool_permissions"
	whitelistActions = "whitelist_actions"
	whitelistTargets = "whitelist_targets"
	Agents           = "ai_agents"
)

// collections are the collections of rules. Their records are active unless a field says otherwise.
var collections = []string{ToolPermissions, whitelistActions, whitelistTargets}

// concerns reports whether the events of a collection change rules, or to whom rules apply.
func concerns(collection string) bool {
	return collection == Agents || slices.Contains(collections, collection)
}

// filters returns the filters of the events that a Book applies.
func filters() (all []string) {
	for _, collection := range append([]string{Agents}, collections...) {
		all = append(all, events.ConfigSubject(collection, "*", "*"))
	}
	return all
}

// Book holds every stored rule.
type Book struct {
	rules   map[string]storedRule // of tool_permissions
	actions map[string]whitelistAction
	targets map[string]whitelistTarget // active ones
	agents  map[string]agentState
	last    uint64 // sequence of the newest event of all
}

// storedRule is a record of tool_permissions: a rule, and to whom it applies.
type storedRule struct {
	rule    policy.Rule
	agent   string // record; empty is every agent
	chat    string // empty is every chat
	project string // empty is every project
	active  bool
	expires time.Time // zero is never
	broken  error     // why the rule differs from the record
}

// whitelistAction allows a permission: for the pattern of its rule, or without a pattern for every target.
type whitelistAction struct {
	rule   policy.Rule
	active bool
	broken error
}

// whitelistTarget is a target that actions without a pattern allow.
type whitelistTarget struct {
	pattern string
	version uint64
}

// agentState is an agent that rules can name. A rule that denies something to an agent also denies it to a later agent
// with the same name.
type agentState struct {
	name    string
	deleted bool
}

func NewBook() *Book {
	return &Book{map[string]storedRule{}, map[string]whitelistAction{}, map[string]whitelistTarget{},
		map[string]agentState{}, 0}
}

func (b *Book) Apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil && e.Malformed == nil {
		return
	}
	b.last = max(b.last, e.Seq)
	id := e.Subject.ID
	if e.Malformed != nil {
		b.lose(e)
		return
	}
	saved, ok := d.(events.Saved)
	switch e.Subject.Collection {
	case ToolPermissions:
		delete(b.rules, id)
		if ok {
			b.rules[id] = readRule(id, e.Seq, saved.Fields)
		}
	case whitelistActions:
		delete(b.actions, id)
		if ok {
			b.actions[id] = readAction(id, e.Seq, saved.Fields)
		}
	case whitelistTargets:
		delete(b.targets, id)
		var t struct {
			Pattern string
			Active  bool
		}
		if ok && json.Unmarshal(saved.Fields, &t) == nil && t.Active {
			b.targets[id] = whitelistTarget{t.Pattern, e.Seq}
		}
	case Agents:
		a := struct{ Name string }{b.agents[id].name}
		if !ok || json.Unmarshal(saved.Fields, &a) == nil {
			b.agents[id] = agentState{a.Name, !ok}
		}
	}
}

// lose replaces a record whose newest version cannot be read. The rule may have denied or asked, so its replacement
// asks about everything.
func (b *Book) lose(e events.Event) {
	id := e.Subject.ID
	switch e.Subject.Collection {
	case ToolPermissions:
		k := readRule(id, e.Seq, nil)
		k.active, k.broken = true, e.Malformed
		b.rules[id] = k
	case whitelistActions:
		delete(b.actions, id)
	case whitelistTargets:
		delete(b.targets, id)
	}
}

// readRule reads a record of tool_permissions.
func readRule(id string, seq uint64, body json.RawMessage) storedRule {
	var r struct {
		Agent, Chat, Project, Tool, Pattern, Action string
		Active                                      bool
		Expires                                     string `json:"expires_at"`
	}
	k := storedRule{rule: policy.Rule{ID: ToolPermissions + "/" + id, Version: seq}}
	if k.broken = json.Unmarshal(body, &r); k.broken == nil {
		k.expires, k.broken = record.ParseDate(r.Expires)
	}
	k.agent, k.chat, k.project, k.active = r.Agent, r.Chat, r.Project, r.Active
	k.rule.Permission, k.rule.Pattern, k.rule.Action = r.Tool, r.Pattern, policy.Action(r.Action)
	k.rule = k.rule.OfTool()
	if k.broken == nil {
		k.broken = checkStored(k.rule)
	}
	if k.broken != nil && k.rule.Action != policy.Allow {
		k.rule.Pattern, k.rule.Action = "*", policy.AskPerson
		if k.rule.Check() != nil {
			k.rule.Permission = "*"
		}
	}
	return k
}

func checkStored(r policy.Rule) error {
	switch r.Action {
	case policy.Allow, policy.AskPerson, policy.Deny:
		return r.Check()
	}
	return fmt.Errorf("action: want allow, ask or deny, got %q", r.Action)
}

// readAction reads a record of whitelist_actions. A strict one is for exactly its value.
func readAction(id string, seq uint64, body json.RawMessage) whitelistAction {
	var r struct {
		Permission, Kind, Value string
		Active                  bool
	}
	a := whitelistAction{broken: json.Unmarshal(body, &r), active: r.Active}
	a.rule = policy.Rule{Permission: r.Permission, Pattern: r.Value, Action: policy.Allow,
		ID: whitelistActions + "/" + id, Version: seq}
	switch {
	case a.broken != nil || r.Value == "":
	case r.Kind == "strict" && strings.Contains(r.Value, "*"):
		a.broken = errors.New("value: a strict one is without *")
	default:
		a.broken = a.rule.Check()
	}
	return a
}

// InForce returns the rules of a scope that are in force, oldest first.
func (b *Book) InForce(s Scope) []policy.Rule {
	var rules []policy.Rule
	for _, k := range b.rules {
		if b.applies(k, s) {
			rules = append(rules, k.rule)
		}
	}
	for _, a := range b.actions {
		if a.active && a.broken == nil {
			rules = append(rules, b.allowed(a.rule)...)
		}
	}
	slices.SortFunc(rules, func(a, b policy.Rule) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Pattern, b.Pattern))
	})
	return rules
}

func (b *Book) applies(k storedRule, s Scope) bool {
	allows := k.rule.Action == policy.Allow
	switch {
	case !k.active || k.broken != nil && allows:
		return false
	case k.chat != "" && k.chat != s.Chat && k.chat != s.Within, k.project != "" && k.project != s.Project:
		return false
	case !k.expires.IsZero() && !s.At.Before(k.expires):
		return false
	case k.agent == "" || s.Agent == "" && !allows:
		return true
	}
	if k.agent == s.Chosen && !allows {
		return true
	}
	agent := b.agents[k.agent]
	return agent.name != "" && agent.name == s.Agent && !(agent.deleted && allows)
}

// allowed returns the rules that an action of the whitelist stands for.
func (b *Book) allowed(action policy.Rule) (rules []policy.Rule) {
	if action.Pattern != "" {
		return []policy.Rule{action}
	}
	for _, t := range b.targets {
		r := action
		r.Pattern, r.Version = t.pattern, max(action.Version, t.version)
		if r.Pattern != "" && r.Check() == nil {
			rules = append(rules, r)
		}
	}
	return rules
}

// has reports whether there is a rule for a permission type, in force or not.
func (b *Book) has(permission string) (found bool) {
	for _, k := range b.rules {
		found = found || k.rule.Permission == permission
	}
	for _, a := range b.actions {
		found = found || a.rule.Permission == permission
	}
	return found
}

// Change is what an event changed about the rules.
type Change struct {
	Newest bool  // the event is the last one that changed rules
	Broken error // why the changed record is not in force as written; nil if it is
}

// change returns what an event changed about the rules.
func (b *Book) change(e events.Event) Change {
	return Change{e.Seq == b.last, b.broken(e.Subject, e.Seq)}
}

// broken returns why the record that an event changed is not in force as written.
func (b *Book) broken(s events.Subject, seq uint64) error {
	switch k, a := b.rules[s.ID], b.actions[s.ID]; {
	case s.Collection == ToolPermissions && k.rule.Version == seq:
		return k.broken
	case s.Collection == whitelistActions && a.rule.Version == seq:
		return a.broken
	}
	return nil
}

// allowing returns the record of the rule that allows the same as r for the same chat and agent, "" if there is none,
// and whether it is in force at least until a date of a record.
func (b *Book) allowing(r policy.Rule, chat, agent, expires string) (found string, lasts bool) {
	for id, k := range b.rules {
		if k.rule.Permission != r.Permission || k.rule.Pattern != r.Pattern || k.rule.Action != policy.Allow ||
			k.chat != chat || k.project != "" || k.agent != agent {
			continue
		}
		until, _ := record.ParseDate(expires)
		found = id
		lasts = k.active && k.broken == nil && (k.expires.IsZero() || expires != "" && !k.expires.Before(until))
	}
	return found, lasts
}
