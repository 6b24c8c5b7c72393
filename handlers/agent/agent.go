// Package agent stores agents, with their prompts and models, as configuration records. It exports an agent as a
// Markdown file with front matter, in the format of OpenCode's own agents, and imports such files. A file holds the
// agent, its prompt, the name of its model, and its rules. The package also carries out the commands on the notes of
// agents, and lists the versions of a note.
//
// Promises: an exported file that is imported again changes nothing. If an agent cannot hold a part of a file, Parse
// names that part, or refuses the file. A rule that denies is never left out. A failed import can be repeated.
// Each version of a note is an event, and stays. A restored version is a new one with the old content.
//
// It must not know how files are read or shown, the files of notes included.
package agent

import (
	"context"

	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
)

// The collections of agents, and of the prompts and models that they name.
const (
	Collection = rule.Agents
	Prompts    = "ai_prompts"
	models     = "ai_models"
)

// Types are the types of the records of agents.
var Types = []record.Type{
	{Name: Prompts, Command: "prompt", Title: "Prompts", About: "texts for agents",
		Access: record.Rules(record.Accounts, record.Accounts, record.Admins, record.Admins, record.Admins),
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "body", Kind: record.Text, Label: "Text", Required: true, Lines: true},
		}},
	{Name: models, Command: "agent-model", Title: "Models of agents", About: "names and identifiers",
		Access: record.Rules(record.Accounts, record.Accounts, record.Admins, record.Admins, record.Admins),
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "identifier", Kind: record.Text, Label: "Identifier, as PROVIDER/MODEL", Required: true},
		}},
	{Name: Collection, Command: "agent", Title: "Agents", About: "their descriptions, prompts and models",
		Access: record.Rules(record.Accounts, record.Accounts, record.Admins, record.Admins, record.Admins), Unique: []string{"name"},
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "description", Kind: record.Text, Label: "Description", Lines: true},
			{Name: "mode", Kind: record.Select, Label: "Mode", Values: []string{"primary", "sandbox_agent"}},
			{Name: "temperature", Kind: record.Number, Label: "Temperature"},
			{Name: "top_p", Kind: record.Number, Label: "Top P"},
			{Name: "is_init", Kind: record.Bool, Label: "Initial agent"},
			{Name: "prompt", Kind: record.Relation, Label: "Prompt", Relation: "ai_prompts"},
			{Name: "model", Kind: record.Relation, Label: "Model", Relation: "ai_models"},
		}},
}

// Agent is an agent of ai_agents, with its prompt and its model.
type Agent struct {
	ID, Name    string
	Prompt      string   // of ai_prompts; empty for none
	Model       string   // "provider/model" of ai_models; empty for none
	Temperature *float64 // nil if OpenCode chooses
	TopP        *float64 `json:"top_p"`
}

// One returns the agent of a record. It is empty if there is no such record: in a chat that was opened in OpenCode's
// own interface, the agent is one of OpenCode. An agent that was deleted is refused, because its rules would not hold.
func One(ctx context.Context, h *record.Records, id string) (a Agent, err error) {
	if id == "" {
		return a, nil
	}
	a, found, err := record.One[Agent](ctx, h, Collection, id)
	if err == nil && !found {
		var deleted map[string]bool
		if deleted, err = h.Deleted(ctx, Collection); deleted[id] {
			err = handlers.Refuse(handlers.Conflict, "The agent of this chat was deleted. Choose another agent, or none.")
		}
	}
	if err != nil || !found {
		return a, err
	}
	prompt, _, err := record.One[struct{ Body string }](ctx, h, Prompts, a.Prompt)
	if err != nil {
		return a, err
	}
	model, _, err := record.One[struct{ Identifier string }](ctx, h, models, a.Model)
	a.ID, a.Prompt, a.Model = id, prompt.Body, model.Identifier
	return a, err
}

// Names returns the names of the agents by record.
func Names(ctx context.Context, h *record.Records) (names map[string]string, err error) {
	all, err := record.All[struct{ Name string }](ctx, h, Collection)
	names = map[string]string{}
	for _, a := range all {
		names[a.ID] = a.Value.Name
	}
	return names, err
}
