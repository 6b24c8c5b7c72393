package client

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Configuration is the part of OpenCode's effective configuration that decides what runs unasked.
type Configuration struct {
	Shell      string
	Permission map[string]any
	Plugin     []any
	MCP        map[string]struct{ URL string }
}

func (c *Client) Configuration(ctx context.Context, directory string) (out Configuration, err error) {
	err = c.do(ctx, call{op: "get opencode's configuration", path: "/config", query: inDirectory(directory), out: &out})
	return out, err
}

// Agent is an agent that OpenCode knows. The last of its rules that matches a request decides.
type Agent struct {
	Name       string
	Permission []AgentRule
}

// AgentRule is a rule about what an agent may do. The action is "allow", "ask" or "deny".
type AgentRule struct{ Permission, Pattern, Action string }

// Agents lists the agents that OpenCode knows in a directory.
func (c *Client) Agents(ctx context.Context, directory string) (all []Agent, err error) {
	err = c.do(ctx, call{op: "list opencode's agents", path: "/agent", query: inDirectory(directory), out: &all})
	return all, err
}

func (c *Client) ProjectID(ctx context.Context, directory string) (string, error) {
	var out struct{ ID string }
	err := c.do(ctx, call{op: "get opencode's project", path: "/project/current", query: inDirectory(directory),
		out: &out})
	return out.ID, err
}

// connectTimeout is longer than OpenCode's own: 30 s for each of two ways to reach a server.
const connectTimeout = 90 * time.Second

// ConnectTools waits until OpenCode has tried to connect to its MCP servers in a directory. Without this call, OpenCode
// connects during the first turn in the directory. If that turn is aborted meanwhile, OpenCode 1.18 aborts every later
// turn in the directory.
func (c *Client) ConnectTools(ctx context.Context, directory string) error {
	ctx = context.WithoutCancel(ctx) // an interrupted connection has the same effect
	return c.do(ctx, call{op: "connect to the MCP servers in " + directory, path: "/mcp", query: inDirectory(directory),
		timeout: connectTimeout})
}

// Diff returns the files that the turn of a person's message changed: a list of {file, patch, additions, deletions,
// status} in OpenCode's form.
func (c *Client) Diff(ctx context.Context, session, message string) (list json.RawMessage, err error) {
	err = c.do(ctx, call{op: "get diff of " + message, path: sessionPath(session, "/diff"),
		query: url.Values{"messageID": {message}}, out: &list})
	return list, err
}

// Todo returns the assistant's to-do list of a session: {content, status, priority} in OpenCode's form.
func (c *Client) Todo(ctx context.Context, session string) (list json.RawMessage, err error) {
	err = c.do(ctx, call{op: "get todo list of session " + session, path: sessionPath(session, "/todo"), out: &list})
	return list, err
}

// Zen is OpenCode's own provider. It has free models that need no key.
const Zen = "opencode"

// Models are the models that an OpenCode can use.
type Models struct {
	Usable    []string        // "provider/model", sorted
	Default   string          // the model that OpenCode recommends for the first provider; empty if there is no provider
	Providers []ModelProvider // theirs, by id
	Addresses []string        // host:port of every server of their providers, sorted
}

// Models lists the models of the providers that OpenCode can use in a directory. It asks OpenCode once for each
// directory: the answer cannot change while OpenCode runs, because OpenCode reads keys at its start.
func (c *Client) Models(ctx context.Context, directory string) (Models, error) {
	if known, ok := c.models.Load(directory); ok {
		return known.(Models), nil
	}
	var out struct {
		Providers []usableProvider
		Default   map[string]string
	}
	err := c.do(ctx, call{op: "list models", path: "/config/providers", query: inDirectory(directory), out: &out})
	var m Models
	for _, p := range out.Providers {
		m.Providers = append(m.Providers, ModelProvider{p.ID, p.Name, p.Env, slices.Sorted(maps.Keys(p.Models)),
			readsOf(p.Models), true})
		for model := range p.Models {
			m.Usable = append(m.Usable, p.ID+"/"+model)
		}
		if model := out.Default[p.ID]; model != "" && (m.Default == "" || strings.HasPrefix(m.Default, Zen+"/")) {
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

type ModelProvider struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Env       []string `json:"env"`       // environment variables that hold its key
	Models    []string `json:"models"`    // ids, sorted
	Reads     Reads    `json:"reads"`     // what its models can read, for a provider that OpenCode can use
	Connected bool     `json:"connected"` // OpenCode has what it needs to use it
}

// Reads are the kinds of content that models can read (text, image, pdf, audio, video), sorted, by the id of the model.
type Reads map[string][]string

// knownModel is what OpenCode says about a model.
type knownModel struct {
	API          struct{ URL string }
	Capabilities struct{ Input map[string]bool }
}

func readsOf(models map[string]knownModel) Reads {
	reads := Reads{}
	for id, m := range models {
		for kind, can := range m.Capabilities.Input {
			if can {
				reads[id] = append(reads[id], kind)
			}
		}
		slices.Sort(reads[id])
	}
	return reads
}

// Providers lists the model providers known in a directory, by id.
func (c *Client) Providers(ctx context.Context, directory string) ([]ModelProvider, error) {
	var out struct {
		All []struct {
			ID, Name string
			Env      []string
			Models   map[string]knownModel
		}
		Connected []string
	}
	err := c.do(ctx, call{op: "list providers", path: "/provider", query: inDirectory(directory), out: &out})
	all := make([]ModelProvider, 0, len(out.All))
	for _, p := range out.All {
		one := ModelProvider{p.ID, p.Name, p.Env, slices.Sorted(maps.Keys(p.Models)), nil,
			slices.Contains(out.Connected, p.ID)}
		if one.Connected { // of the thousands of other models nothing is shown
			one.Reads = readsOf(p.Models)
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b ModelProvider) int { return cmp.Compare(a.ID, b.ID) })
	return all, err
}

// defaultHosts are the hosts of providers that OpenCode lists without a URL, because the URL is built into their SDK.
// The hosts of OpenCode's logins are included.
var defaultHosts = map[string][]string{
	"anthropic":      {"api.anthropic.com", "console.anthropic.com"},
	"cerebras":       {"api.cerebras.ai"},
	"cohere":         {"api.cohere.com"},
	"deepinfra":      {"api.deepinfra.com"},
	"github-copilot": {"api.githubcopilot.com", "api.github.com", "github.com"},
	"google":         {"generativelanguage.googleapis.com"},
	"groq":           {"api.groq.com"},
	"mistral":        {"api.mistral.ai"},
	"openai":         {"api.openai.com", "auth.openai.com", "chatgpt.com"},
	"openrouter":     {"openrouter.ai"},
	"perplexity":     {"api.perplexity.ai"},
	"togetherai":     {"api.together.xyz"},
	"xai":            {"api.x.ai"},
}

// usableProvider is a provider that OpenCode can use.
type usableProvider struct {
	ID, Name string
	Env      []string
	Options  struct{ BaseURL string }
	Models   map[string]knownModel
}

// providerAddresses returns host:port of every server of the providers, sorted.
func providerAddresses(providers []usableProvider) []string {
	addresses := map[string]bool{}
	for _, p := range providers {
		for _, host := range defaultHosts[p.ID] {
			addresses[net.JoinHostPort(host, "443")] = true
		}
		urls := []string{p.Options.BaseURL}
		for _, m := range p.Models {
			urls = append(urls, m.API.URL)
		}
		for _, text := range urls {
			if address, ok := AddressOf(text); ok {
				addresses[address] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(addresses))
}

// AddressOf returns host:port of an HTTP URL.
func AddressOf(text string) (string, bool) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", false
	}
	return net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])),
		true
}

// Model names a model of a provider, both as OpenCode spells them.
type Model struct {
	Provider, ID string
}
