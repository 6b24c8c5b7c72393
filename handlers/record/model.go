package record

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"pocketcoder/handlers"
)

// ModelProviderCollection is the config collection of the providers of models.
const ModelProviderCollection = "llm_providers"

// ModelSelections is the config collection of selected models. A record without a chat is for all chats of its user,
// and one without a user too for all chats.
const ModelSelections = "model_selection"

// SelectModel chooses the model of a chat, or, without a chat, of all chats of a user that have no selection of their
// own, or, without a user too, of all such chats. An empty Model clears the selection.
type SelectModel struct {
	handlers.Command
	Chat   string `json:"chat,omitempty"`
	User   string `json:"user,omitempty"`   // of the selection; the chat's owner when the chat has one
	Model  string `json:"model,omitempty"`  // "provider/model", or the model alone when one provider has it
	Record string `json:"record,omitempty"` // id of a new record; made here when empty
}

// ListModels asks for the models that can be selected; the answer's result is Models.
type ListModels struct {
	Chat string `json:"chat,omitempty"`
}

// Models are the models that can be used, and the one that a chat uses.
type Models struct {
	Models []string `json:"models"` // "provider/model", sorted
	// the model of chats without a selection; empty while OpenCode starts
	Configured string `json:"configured,omitempty"`
	Selected   string `json:"selected,omitempty"` // the chat's selection, or that of its agent, its owner or all chats
}

// modelProvider is a record of llm_providers.
type modelProvider struct {
	ID        string   `json:"provider_id"`
	Variables []string `json:"env_vars"`
	Models    []string `json:"models"`
	Connected bool     `json:"is_connected"`
}

// modelSelection is a record of model_selection.
type modelSelection struct {
	Model string `json:"model"`
	User  string `json:"user"`
	Chat  string `json:"chat"`
}

// SelectModel returns the id of the record.
func (h *Records) SelectModel(ctx context.Context, c SelectModel) (id string, seq uint64, err error) {
	if c.Chat != "" {
		s, err := h.chat(ctx, c.Chat)
		if err != nil {
			return "", 0, err
		}
		c.User = cmp.Or(s.Owner, c.User)
	}
	if c.Model == "" {
		return h.clearModel(ctx, c)
	}
	providers, err := All[modelProvider](ctx, h, ModelProviderCollection)
	if err != nil {
		return "", 0, err
	}
	model, err := findModel(c.Model, providers)
	if err != nil {
		return "", 0, err
	}
	save := Save{Command: c.Command, Collection: ModelSelections, Record: c.Record, New: true}
	save.Set = Fields(map[string]any{"model": model, "user": c.User, "chat": c.Chat})
	if c.Chat == "" {
		save.Set["chat"] = json.RawMessage("null")
	} else {
		save.unique = []string{"chat"} // a chat has one selection, whichever account made it
	}
	return h.Save(ctx, save)
}

// clearModel deletes the selection that c names. It returns sequence 0 when there is none.
func (h *Records) clearModel(ctx context.Context, c SelectModel) (id string, seq uint64, err error) {
	selections, err := All[modelSelection](ctx, h, ModelSelections)
	if err != nil {
		return "", 0, err
	}
	for _, s := range selections {
		if s.Value.Chat != c.Chat || c.Chat == "" && s.Value.User != c.User {
			continue
		}
		id = s.ID
		if seq, err = h.Delete(ctx, Delete{Command: c.Command, Collection: ModelSelections, Record: id}); err != nil {
			return "", 0, err
		}
	}
	return id, seq, nil
}

// SelectedModel returns the model selected for a chat: the chat's own, else that of its agent, else the one its owner
// selected for all chats, else the one selected for the chats of all accounts, else "".
func (h *Records) SelectedModel(ctx context.Context, chat, owner string, agent Agent) (string, error) {
	selections, err := All[modelSelection](ctx, h, ModelSelections)
	if err != nil {
		return "", err
	}
	ofChat, ofOwner, ofAll := "", "", ""
	for _, s := range selections {
		switch {
		case s.Value.Chat == chat && chat != "":
			ofChat = s.Value.Model
		case s.Value.Chat == "" && s.Value.User == owner && owner != "":
			ofOwner = s.Value.Model
		case s.Value.Chat == "" && s.Value.User == "":
			ofAll = s.Value.Model
		}
	}
	return cmp.Or(ofChat, agent.Model, ofOwner, ofAll), nil
}

// Models lists the models that can be used. For a chat, it also names the model that the chat has selected.
func (h *Records) Models(ctx context.Context, c ListModels) (Models, error) {
	providers, err := All[modelProvider](ctx, h, ModelProviderCollection)
	if err != nil {
		return Models{}, err
	}
	m := Models{Models: usableModels(providers)}
	if h.Configured != nil {
		m.Configured = h.Configured()
	}
	if c.Chat == "" {
		m.Selected, err = h.SelectedModel(ctx, "", "", Agent{})
		return m, err
	}
	s, err := h.chat(ctx, c.Chat)
	if err != nil {
		return Models{}, err
	}
	agent, err := h.Agent(ctx, s.Agent)
	if err != nil {
		return Models{}, err
	}
	m.Selected, err = h.SelectedModel(ctx, c.Chat, s.Owner, agent)
	return m, err
}

// chat returns the state of a chat that exists.
func (h *Records) chat(ctx context.Context, chat string) (s handlers.ChatState, err error) {
	err = handlers.NewFold(&s, handlers.ChatFilter(chat)).Read(ctx, h.Log,
		func(*handlers.ChatState) error { return s.Missing(chat) })
	return s, err
}

// usableModels lists the models of connected providers as "provider/model", sorted.
func usableModels(providers []StoredRecord[modelProvider]) []string {
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
func findModel(name string, providers []StoredRecord[modelProvider]) (string, error) {
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
func unusable(name string, providers []StoredRecord[modelProvider]) string {
	provider, model, _ := strings.Cut(name, "/")
	for _, record := range providers {
		p := record.Value
		if p.ID != provider || !slices.Contains(p.Models, model) || p.Connected {
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
