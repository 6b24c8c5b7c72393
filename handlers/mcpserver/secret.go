package mcpserver

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
)

// Secrets stores the values of the names in the environment of MCP servers. They are redacted in all
// events.
type Secrets struct {
	Records *record.Records
	Secrets *secret.Store

	Workspace string // a value that is part of the path of one of its files is refused
}

// SetSecret stores the value of a name in the environment of an MCP server. An empty value deletes it.
type SetSecret struct {
	handlers.Command
	Server string `json:"server"` // name
	Name   string `json:"name"`
	Value  string `json:"value"`
}

// maxValue is the length of the longest value, in bytes.
const maxValue = 4 << 10

// SecretPrefix is the prefix of the secrets of MCP servers. The record follows.
const SecretPrefix = "mcp"

// Set refuses a name that is not in the environment of the server, and a value that is too weak to be redacted.
func (m Secrets) Set(ctx context.Context, c SetSecret) error {
	all, err := All(ctx, m.Records)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s Stored) bool { return s.Runs() && s.Name == c.Server })
	switch {
	case i < 0:
		return handlers.RefuseField(handlers.NotFound, "server", "No MCP server has the name %q.", c.Server)
	case !slices.Contains(all[i].Environment, c.Name):
		return handlers.RefuseField(handlers.Invalid, "name", "The environment of the MCP server %s has no %q. It has: %s.",
			c.Server, c.Name, strings.Join(all[i].Environment, ", "))
	case len(c.Value) > maxValue || strings.ContainsAny(c.Value, "\x00\r\n"):
		return handlers.RefuseField(handlers.Invalid, "value", "The value must be one line of at most %d bytes.",
			maxValue)
	}
	values, err := m.Values(ctx, all[i])
	if err != nil {
		return err
	}
	if c.Value != "" {
		one := credential(c.Value)
		if err := handlers.RefuseWeak("value", cmp.Or(secret.Check(one), checkNames(m.Workspace, one))); err != nil {
			return err
		}
	}
	before := maps.Clone(values)
	values[c.Name] = c.Value
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	body, err := json.Marshal(values)
	if err != nil {
		return err
	}
	if m.conceal(secretOf(all[i]), values) > 0 {
		m.conceal(secretOf(all[i]), before)
		return handlers.RefuseFull(secret.MCP, secret.MCP.Budget())
	}
	m.conceal(secretOf(all[i]), values, before) // if it fails, either may be stored
	if err := m.Secrets.Put(ctx, secretOf(all[i]), body); err != nil {
		return err
	}
	m.conceal(secretOf(all[i]), values)
	return nil
}

// conceal redacts the values of a server in place of those before. It returns how many do not fit.
func (m Secrets) conceal(key string, sets ...map[string]string) (left int) {
	var secrets []string
	for _, values := range sets {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if one := credential(values[name]); !slices.Contains(secrets, one) {
				secrets = append(secrets, one)
			}
		}
	}
	return m.Records.Log.Conceal(secret.MCP, key, secrets...)
}

// credential returns the secret part of a value: all of it, or what follows the scheme of an Authorization header.
func credential(value string) string {
	for _, scheme := range []string{"Bearer ", "Basic ", "token "} {
		if len(value) > len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
			return value[len(scheme):]
		}
	}
	return value
}

// Follow redacts the stored values, and those that any process stores later, until ctx ends. It ends the redaction of
// those that are deleted.
func (m Secrets) Follow(ctx context.Context) error {
	return m.Secrets.Watch(ctx, SecretPrefix, func(key string, body []byte) error {
		var values map[string]string
		_ = json.Unmarshal(body, &values) // Set wrote it, or it was deleted
		if key != "" {
			m.conceal(key, values)
		}
		return nil
	})
}

// Clean deletes the values of servers whose deletion is in the log. It keeps those of a server that cannot be read.
func (m Secrets) Clean(ctx context.Context) error {
	keys, err := m.Secrets.Keys(ctx, SecretPrefix)
	if err != nil || len(keys) == 0 {
		return err
	}
	deleted, err := m.Records.Deleted(ctx, Collection)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if !deleted[strings.TrimPrefix(key, SecretPrefix+".")] {
			continue
		}
		if err := m.Secrets.Delete(ctx, key); err != nil {
			return err
		}
		m.conceal(key)
	}
	return nil
}

func secretOf(s Stored) string { return SecretPrefix + "." + s.ID }

// Values returns the values of the names in the environment of a server, as far as they are stored. From then on they
// are redacted in events.
func (m Secrets) Values(ctx context.Context, s Stored) (values map[string]string, err error) {
	raw, _, err := m.Secrets.Get(ctx, secretOf(s))
	if err != nil {
		return nil, err
	}
	_ = json.Unmarshal(raw, &values) // Set wrote it, or there is none
	if values == nil {
		values = map[string]string{}
	}
	maps.DeleteFunc(values, func(name, _ string) bool { return !slices.Contains(s.Environment, name) })
	m.conceal(secretOf(s), values)
	return values, nil
}
