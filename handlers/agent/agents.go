package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
)

// Agents lists, exports and imports agents.
type Agents struct{ Records *record.Records }

type Listed struct {
	ID          string `json:"id"` // of its record
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Model       string `json:"model,omitempty"` // "provider/model"
	Rules       int    `json:"rules"`           // of its own, in force in every chat
}

// Export requests the file of an agent, by its name or its record id.
type Export struct {
	Name string `json:"name"`
}

// Exported is an agent as a Markdown file.
type Exported struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Import creates an agent from a file, or changes the agent that has its name.
type Import struct {
	handlers.Command
	Text  string  `json:"text"`
	Name  string  `json:"name,omitempty"`  // of the agent, if the file has no key name
	Base  *string `json:"base,omitempty"`  // the import is refused if the agent's file is another one by now
	Check bool    `json:"check,omitempty"` // return the changes without making them
}

type Imported struct {
	Name   string `json:"name"`
	Record string `json:"record,omitempty"` // empty for an agent that does not exist
	New    bool   `json:"new"`              // the agent did not exist before
	Before string `json:"before"`           // its file before; empty for a new agent
	Diff   string `json:"diff"`             // unified; empty if nothing changes
	// what the agent may do after the import and may not do now
	Rights []string `json:"rights,omitempty"`
	Notes  []string `json:"notes,omitempty"` // as of Parse
	Seq    uint64   `json:"seq,omitempty"`   // of the last change
}

// agentFields is a record of ai_agents.
type agentFields struct {
	Name, Description, Mode string
	Prompt, Model           string // records
	Temperature             *float64
	TopP                    *float64 `json:"top_p"`
}

// ruleFields is a record of tool_permissions.
type ruleFields struct {
	Agent, Chat, Project, Tool, Pattern string
	Action                              policy.Action
	Active                              bool
	Expires                             string `json:"expires_at"`
}

// rule returns the rule of a record, as policy reads it.
func (r ruleFields) rule() policy.Rule {
	return policy.Rule{Permission: r.Tool, Pattern: r.Pattern, Action: r.Action}.OfTool()
}

// lasting reports whether the rule is active in every chat, and never expires.
func (r ruleFields) lasting() bool {
	return r.Active && r.Chat == "" && r.Project == "" && r.Expires == ""
}

// List lists the agents by name.
func (h Agents) List(ctx context.Context) (list []Listed, err error) {
	list = []Listed{}
	all, err := record.All[agentFields](ctx, h.Records, Collection)
	if err != nil {
		return nil, err
	}
	for _, a := range all {
		f, err := h.file(ctx, a)
		if err != nil {
			return nil, err
		}
		list = append(list, Listed{a.ID, f.Name, f.Description, f.Model, len(f.Rules)})
	}
	slices.SortFunc(list, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

func (h Agents) Export(ctx context.Context, c Export) (Exported, error) {
	all, err := record.All[agentFields](ctx, h.Records, Collection)
	if err != nil {
		return Exported{}, err
	}
	var names []string
	for _, a := range all {
		if a.ID == c.Name || a.Value.Name == c.Name {
			f, err := h.file(ctx, a)
			return Exported{f.Name, f.markdown()}, err
		}
		names = append(names, a.Value.Name)
	}
	known := "No agent is stored."
	if slices.Sort(names); len(names) > 0 {
		known = "The agents are: " + strings.Join(names, ", ") + "."
	}
	return Exported{}, handlers.RefuseField(handlers.NotFound, "name", "There is no agent %q. %s", c.Name, known)
}

func (h Agents) file(ctx context.Context, a record.StoredRecord[agentFields]) (f File, err error) {
	whole, err := One(ctx, h.Records, a.ID)
	if err != nil {
		return f, err
	}
	v := a.Value
	f = File{Name: v.Name, Description: v.Description, Mode: recordMode(v.Mode), Model: whole.Model, Prompt: whole.Prompt,
		Temperature: v.Temperature, TopP: v.TopP}
	rules, err := record.All[ruleFields](ctx, h.Records, rule.ToolPermissions)
	if err != nil {
		return f, err
	}
	left := 0
	for _, r := range rules {
		switch {
		case r.Value.Agent != a.ID:
		case r.Value.lasting():
			f.Rules = append(f.Rules, r.Value.rule())
		default:
			left++
		}
	}
	if left > 0 {
		f.Comments = []string{fmt.Sprintf("Rules of the agent that are not in this file, because they are paused, expire or are for one chat: %d.", left)}
	}
	return f, nil
}

// Import replaces the rules of the agent with those of the file. Rules that are paused, that expire, or that are for
// one chat stay.
func (h Agents) Import(ctx context.Context, c Import) (i Imported, err error) {
	f, notes, err := Parse(c.Text, c.Name)
	if err != nil {
		return i, err
	}
	agents, err := record.All[agentFields](ctx, h.Records, Collection)
	if err != nil {
		return i, err
	}
	now, old := record.StoredRecord[agentFields]{}, File{}
	at := slices.IndexFunc(agents, func(a record.StoredRecord[agentFields]) bool { return a.Value.Name == f.Name })
	i = Imported{Name: f.Name, Notes: notes, New: at < 0}
	if at >= 0 {
		now = agents[at]
		if old, err = h.file(ctx, now); err != nil {
			return i, err
		}
		i.Record, i.Before, f.Comments = now.ID, old.markdown(), old.Comments
	}
	if c.Base != nil && *c.Base != i.Before {
		return i, handlers.Refuse(handlers.Conflict,
			"The agent %s has changed since its file was read. Read it again, and repeat your change.", f.Name)
	}
	i.Diff, i.Rights = udiff.Unified("stored", "file", i.Before, f.markdown()), rightsGained(old.Rules, f.Rules)
	if c.Check || i.Diff == "" {
		return i, nil
	}
	i.Record, i.Seq, err = h.save(ctx, c.Command, f, now, agents)
	return i, err
}

// rightsGained says what rules allow, and what they no longer deny or ask about.
func rightsGained(before, after []policy.Rule) (rights []string) {
	for _, r := range after {
		if r.Action != policy.Deny && r.Action != policy.AskPerson && !slices.Contains(before, r) {
			rights = append(rights, "allows "+r.String())
		}
	}
	for _, r := range before {
		lost := !slices.Contains(after, r)
		if r.Action == policy.Deny && lost {
			rights = append(rights, "no longer denies "+strings.TrimPrefix(r.String(), "deny "))
		}
		if r.Action == policy.AskPerson && lost {
			rights = append(rights, "no longer asks about "+strings.TrimPrefix(r.String(), "ask "))
		}
	}
	return rights
}

// save stores a file in the record now, which is empty for a new agent.
func (h Agents) save(ctx context.Context, by handlers.Command, f File, now record.StoredRecord[agentFields],
	agents []record.StoredRecord[agentFields]) (id string, seq uint64, err error) {
	s := saver{h.Records, handlers.Command{Actor: by.Actor, Cause: by.Cause}, 0}
	fields := map[string]any{"name": f.Name, "description": f.Description, "mode": modes[f.Mode],
		"temperature": f.Temperature, "top_p": f.TopP, "prompt": "", "model": ""}
	if f.Prompt != "" {
		shared := slices.ContainsFunc(agents, func(a record.StoredRecord[agentFields]) bool {
			return a.ID != now.ID && a.Value.Prompt == now.Value.Prompt
		})
		prompt := now.Value.Prompt
		if shared {
			prompt = ""
		}
		values := map[string]any{"name": f.Name, "body": f.Prompt}
		if fields["prompt"], err = s.save(ctx, Prompts, prompt, values); err != nil {
			return "", 0, err
		}
	}
	if f.Model != "" {
		if fields["model"], err = s.model(ctx, f.Model); err != nil {
			return "", 0, err
		}
	}
	if id = now.ID; id == "" {
		id = events.NewID()
	}
	if err = s.addRules(ctx, id, f.Rules); err != nil {
		return "", 0, err
	}
	if err = s.deleteRules(ctx, id, f.Rules); err != nil {
		return "", 0, err
	}
	err = s.put(ctx, Collection, id, now.ID == "", fields) // last: a new agent has its rules
	return id, s.seq, err
}

// saver stores the records of an agent.
type saver struct {
	*record.Records
	by  handlers.Command
	seq uint64 // of the last change
}

// save changes a record, or creates it if it has no id. It returns the id.
func (s *saver) save(ctx context.Context, collection, id string, values map[string]any) (string, error) {
	if id != "" {
		return id, s.put(ctx, collection, id, false, values)
	}
	id = events.NewID()
	return id, s.put(ctx, collection, id, true, values)
}

func (s *saver) put(ctx context.Context, collection, id string, isNew bool, values map[string]any) error {
	set := map[string]json.RawMessage{}
	for name, value := range values {
		set[name], _ = json.Marshal(value) // a text, a number or a truth value
	}
	_, seq, err := s.Save(ctx, record.Save{Command: s.by, Collection: collection, Record: id, New: isNew, Set: set,
		Upsert: collection == rule.ToolPermissions})
	s.seq = max(s.seq, seq)
	return err
}

// model returns the record of a model, which it creates if there is none.
func (s *saver) model(ctx context.Context, identifier string) (string, error) {
	all, err := record.All[struct{ Identifier string }](ctx, s.Records, models)
	if err != nil {
		return "", err
	}
	for _, m := range all {
		if m.Value.Identifier == identifier {
			return m.ID, nil
		}
	}
	return s.save(ctx, models, "", map[string]any{"name": identifier, "identifier": identifier})
}

// addRules stores the rules of a file that the agent does not have. It comes before deleteRules and before the agent
// itself, so that the agent is never without a rule that denies.
func (s *saver) addRules(ctx context.Context, agent string, rules []policy.Rule) error {
	all, err := record.All[ruleFields](ctx, s.Records, rule.ToolPermissions)
	if err != nil {
		return err
	}
	for _, r := range rules {
		stored := slices.ContainsFunc(all, func(have record.StoredRecord[ruleFields]) bool {
			return have.Value.Agent == agent && have.Value.lasting() && have.Value.rule() == r
		})
		if stored {
			continue
		}
		_, err := s.save(ctx, rule.ToolPermissions, "", map[string]any{"agent": agent, "chat": "", "project": "",
			"tool": r.Permission, "pattern": r.Pattern, "action": r.Action, "active": true, "expires_at": "",
			"note": "from the agent's file"})
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteRules deletes the lasting rules of an agent that are not in its file.
func (s *saver) deleteRules(ctx context.Context, agent string, rules []policy.Rule) error {
	all, err := record.All[ruleFields](ctx, s.Records, rule.ToolPermissions)
	if err != nil {
		return err
	}
	for _, have := range all {
		if have.Value.Agent != agent || !have.Value.lasting() || slices.Contains(rules, have.Value.rule()) {
			continue
		}
		seq, err := s.Delete(ctx, record.Delete{Command: s.by, Collection: rule.ToolPermissions, Record: have.ID})
		if err != nil {
			return err
		}
		s.seq = max(s.seq, seq)
	}
	return nil
}
