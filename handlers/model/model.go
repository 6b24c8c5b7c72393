// Package model knows the models that can be used: the providers of models with their keys, and which model a chat has
// selected. Providers and selections are configuration records. The values of keys are secrets.
//
// Promises: no value of a key is stored in an event. Of these values, those that administrators stored are redacted in
// all events.
//
// It must not know how OpenCode gets a key or a model.
package model

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
)

// The config collections of the providers of models, of their keys, and of selected models. A selection without a chat
// is for all chats of its user, and one without a user too for all chats. A key names the variables that an account has
// for a provider.
const (
	Providers  = "llm_providers"
	Keys       = "llm_keys"
	Selections = "model_selection"
)

// Types are the types of the records of models.
var Types = []record.Type{
	{Name: Providers, Command: "provider", Title: "Providers", About: "servers of models that OpenCode knows",
		Access: record.Rules(record.Accounts, record.Accounts, record.Never, record.Never, record.Never),
		Fields: []record.Field{
			{Name: "provider_id", Kind: record.Text, Label: "Provider", ReadOnly: true},
			{Name: "name", Kind: record.Text, Label: "Name", ReadOnly: true},
			{Name: "env_vars", Kind: record.JSON, Label: "Environment variables", ReadOnly: true},
			{Name: "models", Kind: record.JSON, Label: "Models", ReadOnly: true},
			{Name: "reads", Kind: record.JSON, Label: "Files that each model reads", ReadOnly: true},
			{Name: "is_connected", Kind: record.Bool, Label: "Can be used", ReadOnly: true},
			{Name: "key_error", Kind: record.Text, Label: "Problem with the key", ReadOnly: true},
		}},
	{Name: Keys, Command: "provider-key", Title: "Provider keys", About: "stored as secrets and never shown",
		Access: record.Rules(record.OwnOrAdmin, record.OwnOrAdmin, record.Own, record.Own, record.OwnOrAdmin),
		Unique: []string{"provider_id", "user"}, Upsert: true, Complete: completeKey,
		Fields: []record.Field{
			{Name: "provider_id", Kind: record.Text, Label: "Provider", Required: true},
			{Name: "env_vars", Kind: record.JSON, Label: "Variables and keys, as lines NAME=KEY", Pairs: true},
			{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", Required: true},
		}},
	{Name: Selections, Command: "model", Title: "Selected models", About: "the models that chats and accounts use",
		Access: record.Rules(record.OwnInProjectOrStaff, record.OwnInProjectOrStaff, ownSelection, record.OwnInProjectOrAdmin, record.OwnInProjectOrAdmin),
		Unique: []string{"user", "chat"}, Upsert: true,
		Fields: []record.Field{
			{Name: "model", Kind: record.Text, Label: "Model", Required: true},
			{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", Required: true},
			{Name: "chat", Kind: record.Relation, Label: "Chat", Relation: "chats", Nullable: true},
		}},
}

// ownSelection admits accounts to a selection for themselves, or for a chat of theirs.
var ownSelection = record.Rule(`user = @request.auth.id && (chat = "" || ` +
	record.OwnsChat("chat.") + ` || ` + record.IsAdmin + `)`)

// Select chooses the model of a chat, or, without a chat, of all chats of a user that have no selection of their
// own, or, without a user too, of all such chats. An empty Model clears the selection.
type Select struct {
	handlers.Command
	Chat   string `json:"chat,omitempty"`
	User   string `json:"user,omitempty"`   // of the selection; the chat's owner when the chat has one
	Model  string `json:"model,omitempty"`  // "provider/model", or the model alone when one provider has it
	Record string `json:"record,omitempty"` // id of a new record; made here when empty
}

// List asks for the models that can be selected; the answer's result is Models.
type List struct {
	Chat string `json:"chat,omitempty"`
}

// Models are the models that can be used, and the one that a chat uses.
type Models struct {
	Models []string `json:"models"` // "provider/model", sorted
	// the model of chats without a selection; empty while OpenCode starts
	Configured string `json:"configured,omitempty"`
	// the chat's selection, or that of its agent, its owner, its project or all chats
	Selected string `json:"selected,omitempty"`
}

// provider is a record of llm_providers.
type provider struct {
	ID        string   `json:"provider_id"`
	Variables []string `json:"env_vars"`
	Models    []string `json:"models"`
	Connected bool     `json:"is_connected"`
}

// selection is a record of model_selection.
type selection struct {
	Model string `json:"model"`
	User  string `json:"user"`
	Chat  string `json:"chat"`
}

// Choose carries out Select. It returns the id of the record.
func Choose(ctx context.Context, h *record.Records, c Select) (id string, seq uint64, err error) {
	if c.Chat != "" {
		s, err := chatState(ctx, h, c.Chat)
		if err != nil {
			return "", 0, err
		}
		c.User = cmp.Or(s.Owner, c.User)
	}
	if c.Model == "" {
		return clearSelection(ctx, h, c)
	}
	providers, err := record.All[provider](ctx, h, Providers)
	if err != nil {
		return "", 0, err
	}
	model, err := findModel(c.Model, providers)
	if err != nil {
		return "", 0, err
	}
	save := record.Save{Command: c.Command, Collection: Selections, Record: c.Record, New: true, Trusted: true}
	save.Set = record.Fields(map[string]any{"model": model, "user": c.User, "chat": c.Chat})
	if c.Chat == "" {
		save.Set["chat"] = json.RawMessage("null")
	} else {
		save.Unique = []string{"chat"} // a chat has one selection, whichever account made it
	}
	return h.Save(ctx, save)
}

// clearSelection deletes the selection that c names. It returns sequence 0 when there is none.
func clearSelection(ctx context.Context, h *record.Records, c Select) (id string, seq uint64, err error) {
	selections, err := record.All[selection](ctx, h, Selections)
	if err != nil {
		return "", 0, err
	}
	for _, s := range selections {
		if s.Value.Chat != c.Chat || c.Chat == "" && s.Value.User != c.User {
			continue
		}
		id = s.ID
		if seq, err = h.Delete(ctx, record.Delete{Command: c.Command, Collection: Selections, Record: id}); err != nil {
			return "", 0, err
		}
	}
	return id, seq, nil
}

// Scope is a chat as far as a selection concerns it.
type Scope struct{ Chat, Owner, Project string }

// Selected returns the model selected for a chat: the chat's own, else that of its agent, else the one its owner
// selected for all chats, else that of its project, else the one selected for the chats of all accounts, else "".
func Selected(ctx context.Context, h *record.Records, s Scope, of agent.Agent) (string, error) {
	selections, err := record.All[selection](ctx, h, Selections)
	if err != nil {
		return "", err
	}
	ofChat, ofOwner, ofAll := "", "", ""
	for _, one := range selections {
		switch v := one.Value; {
		case v.Chat == s.Chat && s.Chat != "":
			ofChat = v.Model
		case v.Chat == "" && v.User == s.Owner && s.Owner != "":
			ofOwner = v.Model
		case v.Chat == "" && v.User == "":
			ofAll = v.Model
		}
	}
	in, _, err := record.One[project.Project](ctx, h, project.Collection, s.Project)
	return cmp.Or(ofChat, of.Model, ofOwner, in.Model, ofAll), err
}

// Usable lists the models that can be used. For a chat, it also names the model that the chat has selected. configured
// returns the model of chats without a selection; nil when there is no OpenCode.
func Usable(ctx context.Context, h *record.Records, c List, configured func() string) (Models, error) {
	providers, err := record.All[provider](ctx, h, Providers)
	if err != nil {
		return Models{}, err
	}
	m := Models{Models: usableModels(providers)}
	if configured != nil {
		m.Configured = configured()
	}
	if c.Chat == "" {
		m.Selected, err = Selected(ctx, h, Scope{}, agent.Agent{})
		return m, err
	}
	s, err := chatState(ctx, h, c.Chat)
	if err != nil {
		return Models{}, err
	}
	of, err := agent.One(ctx, h, s.Agent)
	if err != nil {
		return Models{}, err
	}
	m.Selected, err = Selected(ctx, h, Scope{c.Chat, s.Owner, s.Project}, of)
	return m, err
}

// chatState returns the state of a chat that exists.
func chatState(ctx context.Context, h *record.Records, chat string) (s handlers.ChatState, err error) {
	err = handlers.NewFold(&s, handlers.ChatFilter(chat)).Read(ctx, h.Log,
		func(*handlers.ChatState) error { return s.Missing(chat) })
	return s, err
}

// usableModels lists the models of connected providers as "provider/model", sorted.
func usableModels(providers []record.StoredRecord[provider]) []string {
	models := []string{}
	for _, p := range providers {
		if !p.Value.Connected {
			continue
		}
		for _, model := range p.Value.Models {
			models = append(models, p.Value.ID+"/"+model)
		}
	}
	slices.Sort(models)
	return models
}

// findModel returns the usable model that name means, as "provider/model".
func findModel(name string, providers []record.StoredRecord[provider]) (string, error) {
	usable := usableModels(providers)
	if slices.Contains(usable, name) {
		return name, nil
	}
	if len(usable) == 0 {
		return "", handlers.RefuseField(handlers.Conflict, "model",
			"OpenCode is still starting and has not listed its models. Try again in a moment.")
	}
	var same []string
	for _, model := range usable {
		if _, bare, _ := strings.Cut(model, "/"); bare == name {
			same = append(same, model)
		}
	}
	switch len(same) {
	case 0:
		return "", handlers.RefuseField(handlers.Invalid, "model", "%s Available: %s.", unusable(name, providers),
			ListOfModels(usable))
	case 1:
		return same[0], nil
	}
	return "", handlers.RefuseField(handlers.Invalid, "model", "Several providers have a model %q. Choose one of %s.",
		name, ListOfModels(same))
}

// unusable returns a sentence that says why a model cannot be used.
func unusable(name string, providers []record.StoredRecord[provider]) string {
	of, model, _ := strings.Cut(name, "/")
	for _, stored := range providers {
		p := stored.Value
		if p.ID != of || !slices.Contains(p.Models, model) || p.Connected {
			continue
		}
		if len(p.Variables) > 0 {
			return fmt.Sprintf("Provider %s has no key: set %s and start again.", p.ID, strings.Join(p.Variables, " or "))
		}
		return fmt.Sprintf("Provider %s is not set up.", p.ID)
	}
	return fmt.Sprintf("There is no model %q.", name)
}

// maxListed is how many models a sentence names.
const maxListed = 40

// ListOfModels is a list for a sentence, shortened when it is long.
func ListOfModels(models []string) string {
	if len(models) <= maxListed {
		return strings.Join(models, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(models[:maxListed], ", "), len(models)-maxListed)
}
