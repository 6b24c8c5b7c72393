// Package provider describes the provider of the model that answers: the user's keys and logins, the part of
// OpenCode's configuration about it, the list of models of a model server, and which keys OpenCode gets only as
// placeholders.
package provider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"pocketcoder/bridge/opencode/client"
)

// Provider says which model answers. The zero value leaves it to OpenCode, which without a key knows no model that
// works offline.
type Provider struct {
	Model string // "provider/model"; OpenCode chooses when empty
	// of an OpenAI-compatible server, the provider that Model names; empty for one OpenCode knows
	BaseURL string
	APIKey  string // for BaseURL; empty for a server without one
	Context int    // tokens that BaseURL's model can read; DefaultContext when 0
	// tokens that BaseURL's model may write in one answer; a quarter of the context, at most 32,000, when 0
	Output int
	Price  Price             // of BaseURL's model
	Keys   map[string]string // environment variables by which OpenCode finds the keys of providers it knows
	Auth   string            // content of OpenCode's auth.json: what its own login stored

	Catalogue []byte // the providers and models that OpenCode knows; nil for its own, which is as old as OpenCode
}

// maxCatalogue bounds the file of ReadCatalogue, in bytes. That of models.dev had 2 MB in 2026.
const maxCatalogue = 64 << 20

// ReadCatalogue reads the file with the providers and models that OpenCode knows, in the format of
// https://models.dev/api.json. It returns nil for an empty path. OpenCode checks what the entries say.
func ReadCatalogue(path string) ([]byte, error) {
	if path == "" {
		return nil, nil
	}
	b, err := readUpTo(path, maxCatalogue)
	if err != nil {
		return nil, fmt.Errorf("--model-catalogue: %w", err)
	}
	var entries map[string]struct{ Models map[string]json.RawMessage }
	if err := json.Unmarshal(b, &entries); err != nil {
		return nil, fmt.Errorf("--model-catalogue %s: want a JSON object with an entry for each provider, as at https://models.dev/api.json: %w", path, err)
	}
	return b, nil
}

func readUpTo(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%s has more than %d MiB", path, most>>20)
	}
	return b, err
}

// Price is the price of a million tokens, in US dollars.
type Price struct {
	Input, Output float64
}

// DefaultContext is the context of a model whose server does not say how many tokens it can read.
const DefaultContext = 32_768

// maxOutput is the most that OpenCode lets a model write in one answer.
const maxOutput = 32_000

// limits returns the context and the output limit of BaseURL's model.
func (p Provider) limits() (context, output int) {
	context = cmp.Or(p.Context, DefaultContext)
	return context, cmp.Or(p.Output, min(context/4, maxOutput))
}

// usesZen reports whether the operator chose OpenCode's own provider. Its free models need no key, so OpenCode always
// offers them. A chat could then use a remote provider that the operator did not choose.
func (p Provider) usesZen() bool {
	var logins map[string]json.RawMessage
	_ = json.Unmarshal([]byte(p.Auth), &logins) // OfUser wrote it
	return p.Keys["OPENCODE_API_KEY"] != "" || strings.HasPrefix(p.Model, client.Zen+"/") || logins[client.Zen] != nil
}

// OfUser returns what the user has set up for OpenCode on this machine: provider keys in the environment, and logins in
// OpenCode's auth.json. found is false if there is neither.
func OfUser(getenv func(string) string) (p Provider, found bool, err error) {
	p.Keys = map[string]string{}
	for _, k := range keys {
		for _, name := range k.variables {
			if value := getenv(name); value != "" {
				p.Keys[name] = value
			}
		}
	}
	data := cmp.Or(getenv("XDG_DATA_HOME"), filepath.Join(getenv("HOME"), ".local", "share"))
	path := filepath.Join(data, "opencode", "auth.json")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, len(p.Keys) > 0, nil
	}
	if err != nil {
		return p, false, fmt.Errorf("read opencode's logins: %w", err)
	}
	logins := map[string]json.RawMessage{}
	if err := json.Unmarshal(b, &logins); err != nil {
		return p, false, fmt.Errorf("read opencode's logins in %s: %w", path, err)
	}
	for name, login := range logins {
		var l struct{ Type string }
		if json.Unmarshal(login, &l) != nil || l.Type == "wellknown" {
			delete(logins, name) // OpenCode would fetch its configuration from there
		}
	}
	if len(logins) > 0 {
		b, err = json.Marshal(logins)
		p.Auth = string(b)
	}
	return p, len(p.Keys) > 0 || len(logins) > 0, err
}

// Secrets returns what must never be stored: the keys, and every text of the logins.
func (p Provider) Secrets() []string {
	secrets := []string{p.APIKey}
	for _, key := range p.Keys {
		secrets = append(secrets, key)
	}
	var logins any
	_ = json.Unmarshal([]byte(p.Auth), &logins) // OfUser wrote it
	return append(secrets, textsIn(logins)...)
}

// textsIn returns every text in nested JSON objects but those that name a type.
func textsIn(value any) (texts []string) {
	switch value := value.(type) {
	case string:
		texts = []string{value}
	case map[string]any:
		for name, v := range value {
			if name != "type" {
				texts = append(texts, textsIn(v)...)
			}
		}
	}
	return texts
}

// Config returns the part of OpenCode's configuration about models.
func (p Provider) Config() (map[string]any, error) {
	config := map[string]any{}
	if !p.usesZen() {
		config["disabled_providers"] = []string{client.Zen}
	}
	if p.Model == "" {
		if p.BaseURL != "" {
			return nil, fmt.Errorf("provider at %s: no model named", p.BaseURL)
		}
		return config, nil
	}
	provider, model, ok := strings.Cut(p.Model, "/")
	if !ok || provider == "" || model == "" {
		return nil, fmt.Errorf("model %q: want provider/model", p.Model)
	}
	config["model"] = p.Model // for titles, OpenCode uses a small model of the provider that a chat uses
	if p.BaseURL != "" {
		options := map[string]any{"baseURL": p.BaseURL}
		if p.APIKey != "" {
			options["apiKey"] = p.APIKey
		}
		context, output := p.limits()
		config["provider"] = map[string]any{provider: map[string]any{
			"npm":     "@ai-sdk/openai-compatible", // bundled in OpenCode
			"name":    provider,
			"options": options,
			"models": map[string]any{model: map[string]any{
				"name": model, "reasoning": true, "tool_call": true,
				"limit": map[string]int{"context": context, "output": output},
				"cost":  map[string]float64{"input": p.Price.Input, "output": p.Price.Output},
			}},
		}}
	}
	return config, nil
}
