package settings

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/a-h/templ"

	"pocketcoder/handlers/model"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/query"
)

const newKeyPath = "/settings/" + model.Keys + "/key"

// createKey stores the key of a provider and tests it.
func (s Settings) createKey(r *http.Request, caller api.Caller) (templ.Component, error) {
	provider, variable := site.Field(r, "known"), ""
	for _, known := range s.Records.ProviderKeys.Known {
		if known.ID == provider {
			variable = known.Variable
		}
	}
	if variable == "" {
		provider, variable = site.Field(r, "provider_id"), site.Field(r, "variable")
	}
	id, err := s.Records.Create(r.Context(), caller, model.Keys, map[string]any{
		"provider_id": provider, "user": caller.Account, "env_vars": map[string]string{variable: site.Field(r, "key")}})
	if err != nil {
		return nil, err
	}
	return s.showKeyTest(r, caller, id)
}

// testKey stores a new key in place of a stored one, unless the form has none, and tests what is stored.
func (s Settings) testKey(r *http.Request, caller api.Caller) (templ.Component, error) {
	found, err := s.API.Find(r.Context(), caller, model.Keys, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	if found.Text("user") != caller.Account {
		return nil, api.NotFound()
	}
	if key := site.Field(r, "key"); key != "" {
		err := s.Records.Update(r.Context(), caller, model.Keys, found.ID(),
			map[string]any{"env_vars": map[string]string{variableOf(found): key}})
		if err != nil {
			return nil, err
		}
	}
	return s.showKeyTest(r, caller, found.ID())
}

func (s Settings) showKeyTest(r *http.Request, caller api.Caller, id string) (templ.Component, error) {
	test, err := s.Records.ProviderKeys.Test(r.Context(), id)
	return keyTestPage(caller, test), err
}

// variableOf returns the name of the only variable of a key, "" if there are several.
func variableOf(r query.Record) string {
	var names map[string]string
	if json.Unmarshal([]byte(fieldText(r, "env_vars")), &names) != nil || len(names) != 1 {
		return ""
	}
	for name := range names {
		return name
	}
	return ""
}

// verdict says what a provider said about a key.
func verdict(t model.KeyTest) string {
	if t.Verdict == model.KeyAccepted || t.Verdict == model.NotTested {
		return fmt.Sprintf(keyVerdicts[t.Verdict], t.Provider)
	}
	return fmt.Sprintf(keyVerdicts[t.Verdict], t.Provider, t.Said)
}

// keyVerdicts say what the test of a key found. All name the provider, and all but two what it said.
var keyVerdicts = map[string]string{
	"accepted":    "%s accepts the key.",
	"refused":     "%s refuses the key (%s). Store another key.",
	"unclear":     "%s did not say whether the key is valid (%s).",
	"unreachable": "%s could not be reached: %s.",
	"untested":    "PocketCoder cannot test keys of %s. Send a message to see whether the key works.",
}
