package record

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record/note"
	"pocketcoder/handlers/record/proposals"
	"pocketcoder/handlers/record/rulebook"
	"pocketcoder/handlers/record/schedules"
	"pocketcoder/handlers/record/sshkey"
)

// constraints are what every saved record of a collection obeys.
type constraints struct {
	unique   []string           // fields whose values together identify one record
	upsert   bool               // a new record with the same unique values changes the existing one
	complete func(change) error // sets fields that follow from others, and refuses fields that contradict each other
}

// constraintsOf are the constraints by collection. Other collections have none.
var constraintsOf = map[string]constraints{
	rulebook.Agents:           {unique: []string{"name"}},
	rulebook.ToolPermissions:  {unique: []string{"agent", "tool", "pattern", "chat"}, complete: completeToolPermission},
	rulebook.WhitelistActions: {complete: completeWhitelistAction},
	rulebook.WhitelistTargets: {complete: completeWhitelistTarget},
	BudgetCollection:          {unique: []string{"name"}, complete: completeBudget},
	proposals.Collection:      {complete: completeProposal},
	proposals.Procedures:      {unique: []string{"name"}, complete: completeSOP},
	MCPServerCollection:       {complete: completeMCPServer},
	"notification_rules":      {unique: []string{"user"}, upsert: true},
	DeviceCollection:          {unique: []string{"user", "push_token"}, upsert: true},
	ProviderKeysCollection:    {unique: []string{"provider_id", "user"}, upsert: true, complete: completeProviderKey},
	// among all accounts: a key identifies one
	SSHKeyCollection:     {unique: []string{"fingerprint"}, complete: completeSSHKey},
	schedules.Collection: {complete: completeSchedule},
	"channels":           {unique: []string{"name"}},
	note.Collection:      {complete: completeNote},
	ModelSelections:      {unique: []string{"user", "chat"}, upsert: true},
}

// change is a Save that is being decided.
type change struct {
	Save
	set, old fields // the fields to set, and the record's fields before; old is nil for a new record
	all      *collection
}

// account returns the account that gives the command. ok is false for a command of the system.
func (c Save) account() (id string, ok bool) { return strings.CutPrefix(c.Actor, events.UserActor("")) }

// Admin reports whether an administrator or the system gives the command.
func (c Save) Admin() bool {
	_, byAccount := c.account()
	return c.Role == account.Admin || !byAccount
}

// stamp sets a field to the account that gives the command.
func (c change) stamp(field string) {
	if id, ok := c.account(); ok {
		c.put(field, id)
	}
}

func (c change) put(field, value string) { maps.Copy(c.set, Fields(map[string]any{field: value})) }

// text returns a text of the record after the change, "" for any other value.
func (c change) text(field string) string { return c.old.with(c.set).text(field) }

// changes reports whether one of the fields gets another value.
func (c change) changes(names ...string) bool {
	return c.old.differs(c.old.with(c.set), names)
}

func invalid(field, format string, args ...any) error {
	return handlers.RefuseField(handlers.Invalid, field, format, args...)
}

// maxFields is the largest size of the fields in one command of an account that is no administrator: the log stores
// every version for ever.
const maxFields = 64 << 10

// CheckSize refuses more than maxFields.
func (c Save) CheckSize() error {
	size := 0
	for name, value := range c.Set {
		size += len(name) + len(value)
	}
	if size > maxFields && !c.Admin() {
		return handlers.Refuse(handlers.Invalid, "The fields of this record have %d KiB, but only administrators may store more than %d KiB.",
			(size+1023)>>10, maxFields>>10)
	}
	return nil
}

// complete returns the fields that a command sets, with those that follow from them. It refuses what the account may
// not set.
func (s *collection) complete(c Save, set fields) (fields, error) {
	ch := change{Save: c, set: maps.Clone(set), all: s}
	if !c.New {
		ch.old = s.records[c.Record].fields
	}
	if err := c.CheckSize(); err != nil {
		return nil, err
	}
	if _, byAccount := c.account(); byAccount && !c.New && ch.changes("user") {
		return nil, invalid("user", "The owner of a record cannot change.")
	}
	if complete := constraintsOf[c.Collection].complete; complete != nil {
		return ch.set, complete(ch)
	}
	return ch.set, nil
}

// completeSOP stores the hash of the content, so that a reader can check that the content is the approved one. It also
// stores which account changed it.
func completeSOP(c change) error {
	delete(c.set, "signature")
	if _, given := c.set["content"]; given {
		c.put("signature", fmt.Sprintf("%x", sha256.Sum256([]byte(c.set.text("content")))))
		if id, byAccount := c.account(); byAccount {
			c.put("sealed_by", id)
			c.put("sealed_at", FormatTime(time.Now()))
		}
	}
	return nil
}

// completeProposal lets only administrators decide, about the definition that was shown. The author of an agent's
// proposal is poco.
func completeProposal(c change) error {
	if c.Role == account.Agent {
		c.put("authored_by", "poco")
	}
	if !c.Admin() {
		delete(c.set, "approved_at")
		if c.changes("status") && c.text("status") != proposals.Draft {
			return invalid("status", "Must be draft: an administrator approves.")
		}
	}
	_, byAccount := c.account()
	if byAccount {
		c.put("problem", "")
	}
	old, now := proposals.Of(c.old.text), proposals.Of(c.text)
	if err := old.CheckChange(now); err != nil && (byAccount && c.changes("status") || c.changes(proposals.Shown...)) {
		return err
	}
	shown := c.set.text(ShownDefinition)
	delete(c.set, ShownDefinition)
	isPending := old.Effect == proposals.Pending && !c.changes("status")
	if byAccount && isPending && c.changes(slices.Collect(maps.Keys(c.set))...) {
		return handlers.Refuse(handlers.Conflict,
			"This proposal is approved and takes effect soon. Take the approval back first.")
	}
	approves := c.changes("status") && now.Status == proposals.Approved
	// Clients that know only procedures send no definition. They cannot show what an agent or a prompt would change.
	mustShow := shown != "" || approves && !proposals.IsProcedure(now.Kind)
	if err := c.checkShown("proposal", shown); err != nil && mustShow {
		return err
	}
	if approves {
		c.put("approved_at", cmp.Or(c.set.text("approved_at"), FormatTime(time.Now())))
		c.put("effect", proposals.Pending)
	} else if c.changes("status") && old.Effect != "" {
		c.put("effect", "")
	}
	c.put("definition", now.Definition())
	return nil
}

// completeToolPermission stores the author of a rule. Only administrators move a rule to another chat.
func completeToolPermission(c change) error {
	if c.New {
		c.stamp("author")
	} else if c.changes("chat") && !c.Admin() {
		return invalid("chat", "Only administrators move a rule to another chat.")
	}
	if c.changes("expires_at") {
		if at, err := rulebook.ParseDate(c.text("expires_at")); err != nil || !at.IsZero() && !at.After(time.Now()) {
			return invalid("expires_at", "Must be in the future.")
		}
	}
	r := Rule{Permission: c.text("tool"), Pattern: c.text("pattern"), Action: Action(c.text("action"))}
	return c.checkRule(r.OfTool(), "tool", "pattern", "action")
}

// completeWhitelistAction checks an action with a value. An action without one allows its permission on the targets.
func completeWhitelistAction(c change) error {
	value := c.text("value")
	if i := strings.IndexByte(value, '*'); i >= 0 && c.text("kind") == "strict" {
		return invalid("value", "column %d: a strict value is compared literally and cannot contain *",
			len([]rune(value[:i]))+1)
	}
	if value == "" {
		return nil
	}
	return c.checkRule(Rule{Permission: c.text("permission"), Pattern: value}, "permission", "value", "kind")
}

// completeWhitelistTarget checks a target, which is a path or a URL.
func completeWhitelistTarget(c change) error {
	r := Rule{Permission: "write", Pattern: c.text("pattern")}
	if strings.Contains(r.Pattern, "://") {
		r.Permission = "webfetch"
	}
	return c.checkRule(r, "name", "pattern")
}

// checkRule refuses a rule with a mistake if one of its fields changes. Otherwise it accepts an old rule with a
// mistake, so that the rule can be paused. others are further fields of the rule.
func (c change) checkRule(r Rule, permission, pattern string, others ...string) error {
	if !c.changes(append(others, permission, pattern)...) {
		return nil
	}
	err := CheckRule(r)
	if refused := (handlers.Refused{}); errors.As(err, &refused) {
		refused.Field = map[string]string{"permission": permission, "pattern": pattern}[refused.Field]
		return refused
	}
	return err
}

// completeSchedule refuses a schedule that could not run. A new one is enabled unless the command says otherwise.
func completeSchedule(c change) error {
	if _, given := c.set["enabled"]; c.New && !given {
		c.set["enabled"] = json.RawMessage("true")
	}
	if c.Role == account.Agent {
		if err := completeAssistantsSchedule(c); err != nil {
			return err
		}
	}
	return schedules.CheckChange(c.old.with(c.set), c.New, c.changes(schedules.Timing...))
}

// completeAssistantsSchedule limits the schedules of assistants: their number, how often one is due, and what a run
// costs.
func completeAssistantsSchedule(c change) error {
	s, err := schedules.Read(c.old.with(c.set))
	if err != nil {
		return err
	}
	if c.New && c.all.count("user", s.User) >= schedules.MaxByAssistants {
		return handlers.Refuse(handlers.Conflict, "There are %d scheduled tasks, which is the limit. Cancel others first.",
			schedules.MaxByAssistants)
	}
	if s.MaxCost <= 0 && (c.New || c.changes("max_cost")) {
		maps.Copy(c.set, Fields(map[string]any{"max_cost": schedules.AssistantsMaxCost}))
	}
	if !c.New && !c.changes(schedules.Timing...) {
		return nil
	}
	return s.CheckInterval()
}

// count returns the number of records whose field has a value.
func (s *collection) count(field, value string) (n int) {
	for _, r := range s.records {
		if !r.deleted && r.fields.text(field) == value {
			n++
		}
	}
	return n
}

// completeNote refuses a note that cannot be a file, and a note under another id than its own: its name and its agent
// stay as they are.
func completeNote(c change) error {
	n := note.Note{Agent: c.text("agent"), Name: c.text("name"), Content: c.text("content")}
	others := 0
	for id, r := range c.all.records {
		if id != c.Record && !r.deleted && r.fields.text("agent") == n.Agent {
			others++
		}
	}
	if err := n.Check(others); err != nil {
		return err
	}
	if c.Record != n.ID() {
		return invalid("name", "The agent and the name of a note cannot change. Write a new note, and delete this one.")
	}
	return nil
}

// completeBudget refuses a budget that limits nothing.
func completeBudget(c change) error {
	number := func(field string) (v float64) {
		_ = json.Unmarshal(c.old.with(c.set)[field], &v) // anything else is no number
		return v
	}
	return CheckBudget(c.text("name"), c.text("scope"), number("cost"), number("tokens"))
}

// completeSSHKey normalizes the key and computes the fields that describe it. Values of the client for these fields are
// ignored. The fingerprint is padded base64, because the phone app compares it.
func completeSSHKey(c change) error {
	if _, given := c.set["public_key"]; !given {
		delete(c.set, "fingerprint")
		return nil
	}
	key, err := sshkey.Parse(c.set.text("public_key"))
	if err != nil {
		reason := strings.TrimPrefix(err.Error(), "parse ssh key: ")
		return invalid("public_key", "Must be one public key on one line, as in a .pub file, without options: %s.", reason)
	}
	comment, given := c.set["comment"]
	maps.Copy(c.set, keyFields(key))
	if given {
		c.set["comment"] = comment
	}
	return nil
}
