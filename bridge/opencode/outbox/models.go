package outbox

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/model"
	"pocketcoder/projections"
)

// models returns the models that the running OpenCode can use.
func (o *Outbox) models(ctx context.Context) (client.Models, error) {
	m, err := o.Ingest.Current().Models(ctx, o.Directory)
	if err == nil {
		o.known.Store(&m)
	}
	return m, err
}

// Configured returns the model of chats without a selection, "" until OpenCode has reported the model that it
// recommends.
func (o *Outbox) Configured() string {
	known := o.known.Load()
	if o.Default != "" || known == nil {
		return o.Default
	}
	return known.Default
}

// modelFor returns the model that answers a message: the selected one if OpenCode can use it, else the configured one.
// It is part of every prompt, because OpenCode would otherwise take the model of the session's last message, which may
// be gone. A selection that cannot be used is reported in the chat, once for each message.
func (o *Outbox) modelFor(ctx context.Context, m projections.PendingMessage, agent agent.Agent) (
	*client.Model, error) {
	project, err := o.Chats.ProjectOf(ctx, m.Chat)
	if err != nil {
		return nil, err
	}
	selected, err := model.Selected(ctx, o.Records, model.Scope{Chat: m.Chat, Owner: m.ChatUser, Project: project}, agent)
	if err != nil {
		return nil, err
	}
	if selected == "" && o.Default != "" {
		return parseModel(o.Default), nil
	}
	models, err := o.models(ctx)
	if err != nil {
		return nil, err
	}
	configured := cmp.Or(o.Default, models.Default)
	if selected == "" || slices.Contains(models.Usable, selected) {
		return parseModel(cmp.Or(selected, configured)), nil
	}
	notice := fmt.Sprintf("The selected model %s is not available any more. %s answers instead.", selected, configured)
	now, _, err := o.Model.Message(ctx, m.ID) // an earlier try may have reported it
	if err == nil && now.Notice != notice {
		err = o.record(ctx, m.Chat, events.ModelReplaced{Message: m.ID, Selected: selected, Used: configured, Reason: notice})
	}
	return parseModel(configured), err
}

// parseModel reads "provider/model". It returns nil, which leaves the choice to OpenCode, when name is empty.
func parseModel(name string) *client.Model {
	provider, model, found := strings.Cut(name, "/")
	if !found {
		return nil
	}
	return &client.Model{Provider: provider, ID: model}
}
