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
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
)

// Secrets stores the values of the names in the environment of MCP servers, as one JSON object for each server.
type Secrets struct {
	Records *record.Records
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

// Set refuses a name that is not in the environment of the server, and a value that is too weak to be redacted or part
// of the path of a file of a project.
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
		return record.Invalid("name", "The environment of the MCP server %s has no %q. It has: %s.",
			c.Server, c.Name, strings.Join(all[i].Environment, ", "))
	case len(c.Value) > maxValue || strings.ContainsAny(c.Value, "\x00\r\n"):
		return record.Invalid("value", "The value must be one line of at most %d bytes.",
			maxValue)
	}
	values, err := m.Values(ctx, all[i])
	if err != nil {
		return err
	}
	if c.Value != "" {
		one := credential(c.Value)
		directories, err := project.Directories(ctx, m.Records)
		if err != nil {
			return err
		}
		if err := handlers.RefuseWeak("value", cmp.Or(secret.Check(one), checkNames(directories, one))); err != nil {
			return err
		}
	}
	values[c.Name] = c.Value
	maps.DeleteFunc(values, func(_, value string) bool { return value == "" })
	body, err := json.Marshal(values)
	if err != nil {
		return err
	}
	return m.Records.PutSecret(ctx, Collection, all[i].ID, body)
}

// storage says where the values are, and what of them is redacted in all events.
var storage = record.SecretStorage{Prefix: SecretPrefix, Source: secret.MCP, Later: true,
	Texts: func(body []byte) (all []string) {
		var values map[string]string
		_ = json.Unmarshal(body, &values) // Set wrote it, or there is none
		for _, name := range slices.Sorted(maps.Keys(values)) {
			all = append(all, credential(values[name]))
		}
		return all
	}}

// credential returns the secret part of a value: all of it, or what follows the scheme of an Authorization header.
func credential(value string) string {
	for _, scheme := range []string{"Bearer ", "Basic ", "token "} {
		if len(value) > len(scheme) && strings.EqualFold(value[:len(scheme)], scheme) {
			return value[len(scheme):]
		}
	}
	return value
}

// Values returns the values of the names in the environment of a server, as far as they are stored. From then on they
// are redacted in events.
func (m Secrets) Values(ctx context.Context, s Stored) (values map[string]string, err error) {
	body, err := m.Records.Secret(ctx, Collection, s.ID)
	if err != nil {
		return nil, err
	}
	_ = json.Unmarshal([]byte(body), &values) // Set wrote it, or there is none
	if values == nil {
		values = map[string]string{}
	}
	maps.DeleteFunc(values, func(name, _ string) bool { return !slices.Contains(s.Environment, name) })
	return values, nil
}
