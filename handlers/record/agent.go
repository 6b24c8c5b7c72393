package record

import (
	"context"

	"pocketcoder/handlers"
	"pocketcoder/handlers/record/rulebook"
)

const (
	aiPrompts = "ai_prompts"
	aiModels  = "ai_models"
)

// Agent is an agent of ai_agents, with its prompt and its model.
type Agent struct {
	ID, Name    string
	Prompt      string   // of ai_prompts; empty for none
	Model       string   // "provider/model" of ai_models; empty for none
	Temperature *float64 // nil if OpenCode chooses
	TopP        *float64 `json:"top_p"`
}

// Agent returns the agent of a record. It is empty if there is no such record: in a chat that was opened in OpenCode's
// own interface, the agent is one of OpenCode. An agent that was deleted is refused, because its rules would not hold.
func (h *Records) Agent(ctx context.Context, id string) (a Agent, err error) {
	if id == "" {
		return a, nil
	}
	a, found, err := One[Agent](ctx, h, rulebook.Agents, id)
	if err == nil && !found {
		err = h.collection(ctx, rulebook.Agents).Read(ctx, h.Log, func(s *collection) error {
			if s.records[id].deleted {
				return handlers.Refuse(handlers.Conflict, "The agent of this chat was deleted. Choose another agent, or none.")
			}
			return nil
		})
	}
	if err != nil || !found {
		return a, err
	}
	prompt, _, err := One[struct{ Body string }](ctx, h, aiPrompts, a.Prompt)
	if err != nil {
		return a, err
	}
	model, _, err := One[struct{ Identifier string }](ctx, h, aiModels, a.Model)
	a.ID, a.Prompt, a.Model = id, prompt.Body, model.Identifier
	return a, err
}

// One returns a record that is not deleted, and whether there is one.
func One[T any](ctx context.Context, h *Records, name, id string) (value T, found bool, err error) {
	all, err := All[T](ctx, h, name)
	for _, r := range all {
		if r.ID == id {
			return r.Value, true, err
		}
	}
	return value, false, err
}

// AgentNames returns the names of the agents by record.
func (h *Records) AgentNames(ctx context.Context) (names map[string]string, err error) {
	all, err := All[struct{ Name string }](ctx, h, rulebook.Agents)
	names = map[string]string{}
	for _, a := range all {
		names[a.ID] = a.Value.Name
	}
	return names, err
}
