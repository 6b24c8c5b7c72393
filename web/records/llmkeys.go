package records

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"

	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
)

// Limits of what an account keeps for models' providers; lengths are in bytes.
const (
	maxKeys       = 50
	maxProviderID = 100
	maxVariables  = 20
	maxVariable   = 4 << 10
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// saveLLMKey saves a record with the names of the variables, and then their values among the secrets. A refused
// record leaves the values unchanged. After a crash in between, the record names variables with their old values or
// none; the client got no answer and repeats the request. In the other order, a crash could leave values that no
// record names.
func saveLLMKey(s *Records, ctx context.Context, w change) (string, uint64, error) {
	values, given, err := checkLLMKey(w)
	if err != nil {
		return "", 0, err
	}
	s.llmKeys.Lock()
	defer s.llmKeys.Unlock()
	user := w.oldText("user")
	if w.isNew {
		user = textOf(w.set["user"])
		if err := s.checkRoomForKey(ctx, user, textOf(w.set["provider_id"])); err != nil {
			return "", 0, err
		}
	}
	id, seq, err := saveRecord(s, ctx, w)
	if err != nil {
		return id, seq, err
	}
	if given {
		if err := s.ProviderKeys.Keep(context.WithoutCancel(ctx), user, id, values, w.who.Is(account.Admin)); err != nil {
			return "", 0, err
		}
	}
	return id, seq, s.API.Model.Wait(ctx, seq) // so that the next one is counted with this one
}

func removeLLMKey(s *Records, ctx context.Context, w change) (string, uint64, error) {
	s.llmKeys.Lock()
	defer s.llmKeys.Unlock()
	id, seq, err := removeRecord(s, ctx, w)
	if err != nil {
		return id, seq, err
	}
	return id, seq, s.ProviderKeys.Keep(context.WithoutCancel(ctx), w.oldText("user"), w.id, nil, true)
}

// checkLLMKey returns the values of the variables, and leaves only their names in the record. An empty value means
// the stored one, because records show values as empty.
func checkLLMKey(w change) (values map[string]string, given bool, err error) {
	if raw, given := w.set["provider_id"]; given {
		id := textOf(raw)
		if len(id) > maxProviderID || strings.ContainsFunc(id, unicode.IsControl) {
			return nil, false, api.BadField("provider_id", "validation_invalid_value", "Must be at most %d bytes without control characters.", maxProviderID)
		}
	}
	raw, given := w.set["env_vars"]
	if !given {
		return nil, false, nil
	}
	wrong := func(format string, args ...any) (map[string]string, bool, error) {
		return nil, false, api.BadField("env_vars", "validation_invalid_value", format, args...)
	}
	if json.Unmarshal(raw, &values) != nil {
		return wrong("Must be an object of texts.")
	}
	if len(values) > maxVariables {
		return wrong("Must be at most %d variables.", maxVariables)
	}
	named := map[string]string{}
	for name, value := range values {
		if !variableName.MatchString(name) {
			return wrong("%q is no name of a variable.", api.Shortened(name, maxProviderID))
		}
		if len(value) > maxVariable || strings.ContainsRune(value, 0) {
			return wrong("%s must be at most %d bytes without NUL.", name, maxVariable)
		}
		named[name] = ""
	}
	w.set["env_vars"] = api.MustJSON(named)
	return values, true, nil
}

// checkRoomForKey refuses a new key if the account has the largest number of keys. A key for a provider that has one
// replaces it.
func (s *Records) checkRoomForKey(ctx context.Context, user, provider string) error {
	var n int
	err := s.API.Model.View(ctx, func(db dbx.Builder, _ uint64) error {
		return db.NewQuery(`SELECT count(*) FROM config WHERE collection = {:collection} AND NOT removed
			AND json_extract(fields, '$.user') = {:user} AND json_extract(fields, '$.provider_id') <> {:provider}`).
			Bind(dbx.Params{"collection": record.ProviderKeysCollection, "user": user, "provider": provider}).WithContext(ctx).Row(&n)
	})
	if err != nil {
		return fmt.Errorf("count keys: %w", err)
	}
	if n >= maxKeys {
		return api.BadField("provider_id", "validation_length_out_of_range", "There are %d keys already.", maxKeys)
	}
	return nil
}
