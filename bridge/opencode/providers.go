package opencode

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
)

// ModelProvider is a model provider OpenCode knows.
type ModelProvider struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Env       []string `json:"env"`       // environment variables that hold its key
	Models    []string `json:"models"`    // ids, sorted
	Connected bool     `json:"connected"` // OpenCode has what it needs to use it
}

// Providers lists the model providers by id, once OpenCode is there to say.
func (b *Bridge) Providers(ctx context.Context) ([]ModelProvider, error) {
	if err := b.live.wait(ctx); err != nil {
		return nil, fmt.Errorf("list providers: %w", err)
	}
	if _, err := b.models(ctx); err != nil { // so that Configured knows the one that OpenCode recommends
		return nil, err
	}
	return b.client().Providers(ctx, b.Directory)
}

// Providers lists the model providers known in a directory, by id.
func (c *Client) Providers(ctx context.Context, directory string) ([]ModelProvider, error) {
	var out struct {
		All []struct {
			ID, Name string
			Env      []string
			Models   map[string]struct{}
		}
		Connected []string
	}
	_, err := c.do(ctx, call{op: "list providers", path: "/provider", query: inDirectory(directory), out: &out})
	all := make([]ModelProvider, 0, len(out.All))
	for _, p := range out.All {
		all = append(all, ModelProvider{p.ID, p.Name, p.Env, slices.Sorted(maps.Keys(p.Models)), slices.Contains(out.Connected, p.ID)})
	}
	slices.SortFunc(all, func(a, b ModelProvider) int { return cmp.Compare(a.ID, b.ID) })
	return all, err
}
