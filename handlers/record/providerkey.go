package record

import (
	"encoding/json"
	"regexp"
	"strings"
	"unicode"
)

// ProviderKeysCollection holds which variables an account has for a provider of models. Their values are not in events.
const ProviderKeysCollection = "llm_keys"

// Limits of the keys of an account; lengths are in bytes.
const (
	maxKeys       = 50
	maxProviderID = 100
	maxVariables  = 20
	MaxVariable   = 4 << 10
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// completeProviderKey checks a key. It refuses values, because events would hold them.
func completeProviderKey(c change) error {
	if id := c.text("provider_id"); len(id) > maxProviderID || strings.ContainsFunc(id, unicode.IsControl) {
		return invalid("provider_id", "Must be at most %d bytes without control characters.", maxProviderID)
	}
	values, err := Variables(c.set)
	if err != nil {
		return err
	}
	for name, value := range values {
		if value != "" {
			return invalid("env_vars", "The value of %s is a secret, which this command does not take. Set it over the web API.", name)
		}
	}
	if !c.New {
		return nil
	}
	count := 0
	for _, r := range c.all.records { // a key for a provider that has one replaces it
		if !r.deleted && !r.fields.differs(c.set, []string{"user"}) && r.fields.differs(c.set, []string{"provider_id"}) {
			count++
		}
	}
	if count >= maxKeys {
		return invalid("provider_id", "This account has %d keys, which is the limit. Delete one first.", maxKeys)
	}
	return nil
}

// Variables returns the variables that a command sets, nil if it sets none.
func Variables(set map[string]json.RawMessage) (values map[string]string, err error) {
	raw, given := set["env_vars"]
	switch {
	case !given:
		return nil, nil
	case json.Unmarshal(raw, &values) != nil:
		return nil, invalid("env_vars", "Must be an object of texts.")
	case len(values) > maxVariables:
		return nil, invalid("env_vars", "Must be at most %d variables.", maxVariables)
	}
	if values == nil { // null
		values = map[string]string{}
	}
	for name, value := range values {
		if !variableName.MatchString(name) {
			return nil, invalid("env_vars", "%q is no name of a variable.",
				strings.ToValidUTF8(name[:min(len(name), maxProviderID)], ""))
		}
		if len(value) > MaxVariable || strings.ContainsRune(value, 0) {
			return nil, invalid("env_vars", "%s must be at most %d bytes without NUL.", name, MaxVariable)
		}
	}
	return values, nil
}
