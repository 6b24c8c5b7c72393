package opencode

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// zen is OpenCode's own provider. It has free models that need no key.
const zen = "opencode"

// Models are the models that an OpenCode can use.
type Models struct {
	Usable    []string        // "provider/model", sorted
	Default   string          // the model that OpenCode recommends for the first provider; empty if there is no provider
	Providers []ModelProvider // theirs, by id
	Addresses []string        // host:port of every server of their providers, sorted
}

// Models lists the models of the providers that OpenCode can use in a directory. It asks OpenCode once for each directory:
// the answer cannot change while OpenCode runs, because OpenCode reads keys at its start.
func (c *Client) Models(ctx context.Context, directory string) (Models, error) {
	if known, ok := c.models.Load(directory); ok {
		return known.(Models), nil
	}
	var out struct {
		Providers []usableProvider
		Default   map[string]string
	}
	_, err := c.do(ctx, call{op: "list models", path: "/config/providers", query: inDirectory(directory), out: &out})
	var m Models
	for _, p := range out.Providers {
		m.Providers = append(m.Providers, ModelProvider{p.ID, p.Name, p.Env, slices.Sorted(maps.Keys(p.Models)), true})
		for model := range p.Models {
			m.Usable = append(m.Usable, p.ID+"/"+model)
		}
		if model := out.Default[p.ID]; model != "" && (m.Default == "" || strings.HasPrefix(m.Default, zen+"/")) {
			m.Default = p.ID + "/" + model
		}
	}
	slices.Sort(m.Usable)
	slices.SortFunc(m.Providers, func(a, b ModelProvider) int { return cmp.Compare(a.ID, b.ID) })
	m.Addresses = providerAddresses(out.Providers)
	if err == nil {
		c.models.Store(directory, m)
	}
	return m, err
}

// models returns the models that the running OpenCode can use.
func (b *Bridge) models(ctx context.Context) (Models, error) {
	m, err := b.client().Models(ctx, b.Directory)
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
func (b *Bridge) modelFor(ctx context.Context, m projections.OutboxMessage) (*Model, error) {
	selected, err := b.Handlers.SelectedModel(ctx, m.Chat, m.ChatUser)
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
func parseModel(name string) *Model {
	provider, model, found := strings.Cut(name, "/")
	if !found {
		return nil
	}
	return &Model{Provider: provider, ID: model}
}
