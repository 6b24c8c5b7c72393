package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
)

// Limits of what an account keeps for models' providers; lengths are in bytes.
const (
	maxKeys        = 50
	maxProviderID  = 100
	maxVariables   = 20
	maxVariable    = 4 << 10
	minConcealed   = 16 // what is shorter may be an ordinary word, and stands in what others say
	maxConcealed   = 1 << 10
	llmKeys        = "llm_keys"
	llmKeysSecrets = "llm" // the prefix of all their keys among the secrets
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// llmKeySecret is where the values of a record's variables are kept, as a JSON object.
func llmKeySecret(user, record string) string { return llmKeysSecrets + "." + user + "." + record }

// saveLLMKey saves a record with the names of the variables, and their values among the secrets. The record is first: what
// is refused leaves the values as they are. A crash in between leaves names whose values are those before, or none: the
// client got no answer, and the same request again makes it whole. The other way around there would be values that nothing
// names, and that nobody knows of.
func saveLLMKey(s *Server, ctx context.Context, w change) (string, uint64, error) {
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
		if err := s.keepValues(context.WithoutCancel(ctx), llmKeySecret(user, id), values); err != nil {
			return "", 0, err
		}
	}
	return id, seq, s.Model.Wait(ctx, seq) // so that the next one is counted with this one
}

func removeLLMKey(s *Server, ctx context.Context, w change) (string, uint64, error) {
	s.llmKeys.Lock()
	defer s.llmKeys.Unlock()
	id, seq, err := removeRecord(s, ctx, w)
	if err != nil {
		return id, seq, err
	}
	return id, seq, s.keepValues(context.WithoutCancel(ctx), llmKeySecret(w.oldText("user"), w.id), nil)
}

// checkLLMKey gives the values of the variables, and leaves their names alone in the record. An empty value stands for the
// one that is kept: so it is shown.
func checkLLMKey(w change) (values map[string]string, given bool, err error) {
	if raw, given := w.set["provider_id"]; given {
		id := textOf(raw)
		if len(id) > maxProviderID || strings.ContainsFunc(id, unicode.IsControl) {
			return nil, false, badField("provider_id", "validation_invalid_value", "Must be at most %d bytes without control characters.", maxProviderID)
		}
	}
	raw, given := w.set["env_vars"]
	if !given {
		return nil, false, nil
	}
	wrong := func(format string, args ...any) (map[string]string, bool, error) {
		return nil, false, badField("env_vars", "validation_invalid_value", format, args...)
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
			return wrong("%q is no name of a variable.", shortened(name, maxProviderID))
		}
		if len(value) > maxVariable || strings.ContainsRune(value, 0) {
			return wrong("%s must be at most %d bytes without NUL.", name, maxVariable)
		}
		named[name] = ""
	}
	w.set["env_vars"] = mustJSON(named)
	return values, true, nil
}

// checkRoomForKey refuses one key more than an account may have. One for the same provider changes the one there is.
func (s *Server) checkRoomForKey(ctx context.Context, user, provider string) error {
	var n int
	err := s.Model.View(ctx, func(db dbx.Builder, _ uint64) error {
		return db.NewQuery(`SELECT count(*) FROM config WHERE collection = {:collection} AND NOT removed
			AND json_extract(fields, '$.user') = {:user} AND json_extract(fields, '$.provider_id') <> {:provider}`).
			Bind(dbx.Params{"collection": llmKeys, "user": user, "provider": provider}).WithContext(ctx).Row(&n)
	})
	if err != nil {
		return fmt.Errorf("count keys: %w", err)
	}
	if n >= maxKeys {
		return badField("provider_id", "validation_length_out_of_range", "There are %d keys already.", maxKeys)
	}
	return nil
}

// keepValues keeps these values in place of those that are kept, and takes them out of every event from now on. Of a
// variable with an empty value the one that is kept stays.
func (s *Server) keepValues(ctx context.Context, key string, values map[string]string) error {
	raw, found, err := s.Secrets.Get(ctx, key)
	if err != nil {
		return err
	}
	var kept map[string]string
	_ = json.Unmarshal(raw, &kept) // written here, or there is none
	now := map[string]string{}
	for name, value := range values {
		if value == "" {
			value = kept[name]
		}
		if value != "" {
			now[name] = value
		}
	}
	if left := conceal(s.Log, key, now); left > 0 {
		s.Logger.Warn("there are too many secrets to take them all out of events", "key", key, "left", left)
	}
	switch {
	case maps.Equal(kept, now):
		return nil
	case len(now) > 0:
		return s.Secrets.Put(ctx, key, mustJSON(now))
	case found:
		return s.Secrets.Delete(ctx, key)
	}
	return nil
}

// conceal takes the values under a key out of events, in place of those before. It takes what can only be a secret: anybody
// may say that a word is one.
func conceal(log *events.Log, key string, values map[string]string) (left int) {
	var secrets []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if isSecret(values[name]) {
			secrets = append(secrets, values[name])
		}
	}
	return log.Conceal(key, secrets...)
}

func isSecret(s string) bool {
	return len(s) >= minConcealed && len(s) <= maxConcealed && !strings.ContainsFunc(s, unicode.IsSpace) &&
		strings.ContainsFunc(s, unicode.IsLetter) && strings.ContainsFunc(s, unicode.IsDigit)
}

// ConcealKeys takes the values of all providers' variables, as many as Log.Conceal admits, out of every event from now on.
// Values without a record are removed: the process ended before it could, or their account was deleted.
func ConcealKeys(ctx context.Context, log *events.Log, secrets *events.Secrets) error {
	named, err := namedSecrets(ctx, log)
	if err != nil {
		return err
	}
	keys, err := secrets.Keys(ctx, llmKeysSecrets)
	if err != nil {
		return err
	}
	slices.Sort(keys)
	for _, key := range keys {
		if !named[key] {
			if err := secrets.Delete(ctx, key); err != nil {
				return err
			}
			continue
		}
		raw, _, err := secrets.Get(ctx, key)
		if err != nil {
			return err
		}
		var values map[string]string
		_ = json.Unmarshal(raw, &values) // written by keepValues
		conceal(log, key, values)
	}
	return nil
}

// namedSecrets are the keys of the values that living records of living accounts name.
func namedSecrets(ctx context.Context, log *events.Log) (map[string]bool, error) {
	gone := map[string]bool{}
	_, err := log.Fold(ctx, events.UserSubject("*", events.Deleted{}.Kind()), 0, func(e events.Event) error {
		gone[e.Subject.ID] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	by := map[string]string{} // the key by record
	_, err = log.Fold(ctx, events.ConfigSubject(llmKeys, "*", "*"), 0, func(e events.Event) error {
		delete(by, e.Subject.ID)
		var fields struct {
			User string `json:"user"`
		}
		d, err := events.Decode(e)
		if saved, ok := d.(events.Saved); err == nil && ok && json.Unmarshal(saved.Fields, &fields) == nil && !gone[fields.User] {
			by[e.Subject.ID] = llmKeySecret(fields.User, e.Subject.ID)
		}
		return nil
	})
	named := map[string]bool{}
	for key := range maps.Values(by) {
		named[key] = true
	}
	return named, err
}
