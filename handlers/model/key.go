package model

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"

	"pocketcoder/handlers/record"
)

// Limits of the keys of an account; lengths are in bytes.
const (
	maxKeys       = 50
	maxProviderID = 100
	maxVariables  = 20
	maxVariable   = 4 << 10
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// completeKey checks a key. It refuses values, because events would hold them.
func completeKey(c record.Change) error {
	if id := c.Text("provider_id"); len(id) > maxProviderID || strings.ContainsFunc(id, unicode.IsControl) {
		return record.Invalid("provider_id", "Must be at most %d bytes without control characters.", maxProviderID)
	}
	values, err := variables(c.Set)
	if err != nil {
		return err
	}
	for name, value := range values {
		if value != "" {
			return record.Invalid("env_vars", "The value of %s is a secret, which this command does not take. Set it over the web API.", name)
		}
	}
	if !c.New {
		return nil
	}
	count := 0
	for _, other := range c.Others() { // a key for a provider that has one replaces it
		if other.Text("user") == c.Set.Text("user") && other.Text("provider_id") != c.Set.Text("provider_id") {
			count++
		}
	}
	if count >= maxKeys {
		return record.Invalid("provider_id", "This account has %d keys, which is the limit. Delete one first.", maxKeys)
	}
	return nil
}

// variables returns the variables that a command sets, nil if it sets none.
func variables(set map[string]json.RawMessage) (values map[string]string, err error) {
	raw, given := set["env_vars"]
	switch {
	case !given:
		return nil, nil
	case json.Unmarshal(raw, &values) != nil:
		return nil, record.Invalid("env_vars", "Must be an object of texts.")
	case len(values) > maxVariables:
		return nil, record.Invalid("env_vars", "Must be at most %d variables.", maxVariables)
	}
	if values == nil { // null
		values = map[string]string{}
	}
	for name, value := range values {
		if !variableName.MatchString(name) {
			return nil, record.Invalid("env_vars", "%q is no name of a variable.",
				strings.ToValidUTF8(name[:min(len(name), maxProviderID)], ""))
		}
		if len(value) > maxVariable || strings.ContainsRune(value, 0) {
			return nil, record.Invalid("env_vars", "%s must be at most %d bytes without NUL.", name, maxVariable)
		}
	}
	return values, nil
}
