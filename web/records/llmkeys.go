package records

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
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/account"
	"pocketcoder/web/api"
)

// Limits of what an account keeps for models' providers; lengths are in bytes.
const (
	maxKeys        = 50
	maxProviderID  = 100
	maxVariables   = 20
	maxVariable    = 4 << 10
	minConcealed   = 20 // a shorter value may be an ordinary word that other people write
	maxConcealed   = 1 << 10
	llmKeys        = "llm_keys"
	llmKeysSecrets = "llm" // the prefix of all their keys among the secrets
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// llmKeySecret is the key of the secret with the values of a record's variables, a JSON object.
func llmKeySecret(user, record string) string { return llmKeysSecrets + "." + user + "." + record }

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
		if err := s.keepValues(context.WithoutCancel(ctx), llmKeySecret(user, id), values, w.who.Is(account.Admin)); err != nil {
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
	return id, seq, s.keepValues(context.WithoutCancel(ctx), llmKeySecret(w.oldText("user"), w.id), nil, true)
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
			Bind(dbx.Params{"collection": llmKeys, "user": user, "provider": provider}).WithContext(ctx).Row(&n)
	})
	if err != nil {
		return fmt.Errorf("count keys: %w", err)
	}
	if n >= maxKeys {
		return api.BadField("provider_id", "validation_length_out_of_range", "There are %d keys already.", maxKeys)
	}
	return nil
}

// keepValues stores these values in place of the stored ones. A variable with an empty value keeps its stored value. Values of
// an administrator are redacted from then on.
func (s *Records) keepValues(ctx context.Context, key string, values map[string]string, byAdmin bool) error {
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
	var left int
	if byAdmin {
		left = conceal(s.Log, key, now, s.Workspace, s.Data)
	}
	if left > 0 {
		s.API.Logger.Warn("there are too many secrets to take them all out of events", "key", key, "left", left)
	}
	switch {
	case maps.Equal(kept, now):
		return nil
	case len(now) > 0:
		return s.Secrets.Put(ctx, key, api.MustJSON(now))
	case found:
		return s.Secrets.Delete(ctx, key)
	}
	return nil
}

// conceal redacts the values under a key in all events from now on, in place of the values before. Redaction concerns every chat,
// so it skips a value that is not clearly a secret or that is part of one of the paths.
func conceal(log *log.Log, key string, values map[string]string, paths ...string) (left int) {
	var secrets []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if isSecret(values[name], paths) {
			secrets = append(secrets, values[name])
		}
	}
	return log.Conceal(key, secrets...)
}

func isSecret(s string, paths []string) bool {
	return len(s) >= minConcealed && len(s) <= maxConcealed && !strings.Contains(s, "/") && !strings.ContainsFunc(s, unicode.IsSpace) &&
		strings.ContainsFunc(s, unicode.IsLetter) && strings.ContainsFunc(s, unicode.IsDigit) &&
		!slices.ContainsFunc(paths, func(path string) bool { return strings.Contains(path, s) })
}

// ConcealKeys redacts the values that administrators stored, as many as Log.Conceal admits, in all events from now on. OpenCode is
// not started with these values, so those of other accounts need no redaction, and an account could hide any text of other chats
// with one. ConcealKeys deletes values without a record: the process ended before it could, or their account was deleted.
func ConcealKeys(ctx context.Context, log *log.Log, secrets *secret.Store, paths ...string) error {
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
		byAdmin, found := named[key]
		if !found {
			if err := secrets.Delete(ctx, key); err != nil {
				return err
			}
			continue
		}
		if !byAdmin {
			continue
		}
		raw, _, err := secrets.Get(ctx, key)
		if err != nil {
			return err
		}
		var values map[string]string
		_ = json.Unmarshal(raw, &values) // written by keepValues
		conceal(log, key, values, paths...)
	}
	return nil
}

// namedSecrets returns the secrets that records of existing accounts name, and whether the account is an
// administrator.
func namedSecrets(ctx context.Context, log *log.Log) (map[string]bool, error) {
	gone, roles := map[string]bool{}, map[string]string{}
	_, err := log.Fold(ctx, events.UserSubject("*", "account.*"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		if err != nil {
			return nil
		}
		switch d := d.(type) {
		case events.AccountCreated:
			roles[e.Subject.ID] = d.Role
		case events.AccountUpdated:
			if d.Role != nil {
				roles[e.Subject.ID] = *d.Role
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	_, err = log.Fold(ctx, events.UserSubject("*", events.Deleted{}.Kind()), 0, func(e events.Event) error {
		gone[e.Subject.ID] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	users := map[string]string{} // by record
	_, err = log.Fold(ctx, events.ConfigSubject(llmKeys, "*", "*"), 0, func(e events.Event) error {
		delete(users, e.Subject.ID)
		var fields struct {
			User string `json:"user"`
		}
		d, err := events.Decode(e)
		if saved, ok := d.(events.Saved); err == nil && ok && json.Unmarshal(saved.Fields, &fields) == nil && !gone[fields.User] {
			users[e.Subject.ID] = fields.User
		}
		return nil
	})
	named := map[string]bool{}
	for record, user := range users {
		named[llmKeySecret(user, record)] = roles[user] == account.Admin
	}
	return named, err
}
