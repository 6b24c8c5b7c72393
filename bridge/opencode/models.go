package opencode

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/projections/pending"
)

// models returns the models that the running OpenCode can use.
func (b *Bridge) models(ctx context.Context) (client.Models, error) {
	m, err := b.api().Models(ctx, b.Directory)
	if err == nil {
		b.known.Store(&m)
	}
	return m, err
}

// Configured returns the model of chats without a selection, "" until OpenCode has said which one it recommends.
func (b *Bridge) Configured() string {
	known := b.known.Load()
	if b.Default != "" || known == nil {
		return b.Default
	}
	return known.Default
}

// modelFor returns the model that answers a message: the selected one if OpenCode can use it, else the configured one. It is
// part of every prompt, because OpenCode would otherwise take the model of the session's last message, which may be gone.
// A selection that cannot be used is reported in the chat, once for each message.
func (b *Bridge) modelFor(ctx context.Context, m pending.Message) (*client.Model, error) {
	selected, err := b.Records.SelectedModel(ctx, m.Chat, m.ChatUser)
	if err != nil {
		return nil, err
	}
	if selected == "" && b.Default != "" {
		return parseModel(b.Default), nil
	}
	models, err := b.models(ctx)
	if err != nil {
		return nil, err
	}
	configured := cmp.Or(b.Default, models.Default)
	if selected == "" || slices.Contains(models.Usable, selected) {
		return parseModel(cmp.Or(selected, configured)), nil
	}
	notice := fmt.Sprintf("The selected model %s is not available any more. %s answers instead.", selected, configured)
	now, _, err := b.Model.Message(ctx, m.ID) // an earlier try may have reported it
	if err == nil && now.Notice != notice {
		err = b.record(ctx, m.Chat, events.ModelReplaced{Message: m.ID, Selected: selected, Used: configured, Reason: notice})
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
