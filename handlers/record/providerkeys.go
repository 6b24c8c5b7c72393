package record

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"unicode"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers/account"
)

// ProviderKeysCollection holds which variables an account has for a provider of models. Their values are not in events.
const ProviderKeysCollection = "llm_keys"

// The length of values that are redacted, in bytes. A shorter one may be an ordinary word that other people write.
const (
	minRedacted = 20
	maxRedacted = 1 << 10
)

// ProviderKeys keeps the values of the variables for providers of models. Each record of ProviderKeysCollection has one secret
// with them, a JSON object. The values that administrators stored are redacted in all events from then on, as many as
// Log.Conceal admits. OpenCode is not started with the values of other accounts, so those need no redaction, and an account
// could hide any text of other chats with one.
type ProviderKeys struct {
	Log     *log.Log
	Secrets *secret.Store
	Logger  *slog.Logger
	Paths   []string // a value that is part of one of these is not redacted
}

const providerKeysPrefix = "llm" // of all their keys among the secrets

func providerKey(user, record string) string { return providerKeysPrefix + "." + user + "." + record }

// Keep stores these values of a record in place of the stored ones. A variable with an empty value keeps its stored value.
func (k ProviderKeys) Keep(ctx context.Context, user, record string, values map[string]string, byAdmin bool) error {
	key := providerKey(user, record)
	raw, found, err := k.Secrets.Get(ctx, key)
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
	if byAdmin {
		k.redact(key, now)
	}
	switch {
	case maps.Equal(kept, now):
		return nil
	case len(now) > 0:
		body, err := json.Marshal(now)
		if err != nil {
			return err
		}
		return k.Secrets.Put(ctx, key, body)
	case found:
		return k.Secrets.Delete(ctx, key)
	}
	return nil
}

// redact redacts the values under a key in place of the values before. Redaction concerns every chat, so it skips a value that
// is not clearly a secret or that is part of one of the paths.
func (k ProviderKeys) redact(key string, values map[string]string) {
	var secrets []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if k.isSecret(values[name]) {
			secrets = append(secrets, values[name])
		}
	}
	if left := k.Log.Conceal(key, secrets...); left > 0 {
		k.Logger.Warn("there are too many secrets to take them all out of events", "key", key, "left", left)
	}
}

func (k ProviderKeys) isSecret(s string) bool {
	return len(s) >= minRedacted && len(s) <= maxRedacted && !strings.Contains(s, "/") && !strings.ContainsFunc(s, unicode.IsSpace) &&
		strings.ContainsFunc(s, unicode.IsLetter) && strings.ContainsFunc(s, unicode.IsDigit) &&
		!slices.ContainsFunc(k.Paths, func(path string) bool { return strings.Contains(path, s) })
}

// Restore redacts, after a start, what is stored. It deletes values without a record: the process ended before it could, or
// their account was deleted.
func (k ProviderKeys) Restore(ctx context.Context) error {
	byAdmin, err := k.named(ctx)
	if err != nil {
		return err
	}
	keys, err := k.Secrets.Keys(ctx, providerKeysPrefix)
	if err != nil {
		return err
	}
	slices.Sort(keys)
	for _, key := range keys {
		if _, found := byAdmin[key]; !found {
			if err := k.Secrets.Delete(ctx, key); err != nil {
				return err
			}
		}
		if !byAdmin[key] {
			continue
		}
		raw, _, err := k.Secrets.Get(ctx, key)
		if err != nil {
			return err
		}
		var values map[string]string
		_ = json.Unmarshal(raw, &values) // written by Keep
		k.redact(key, values)
	}
	return nil
}

// named returns the secrets that records of existing accounts name, and whether the account is an administrator.
func (k ProviderKeys) named(ctx context.Context) (byAdmin map[string]bool, err error) {
	gone, roles := map[string]bool{}, map[string]string{}
	_, err = k.Log.Fold(ctx, events.UserSubject("*", "account.*"), 0, func(e events.Event) error {
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
	_, err = k.Log.Fold(ctx, events.UserSubject("*", events.Deleted{}.Kind()), 0, func(e events.Event) error {
		gone[e.Subject.ID] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	users := map[string]string{} // by record
	_, err = k.Log.Fold(ctx, events.ConfigSubject(ProviderKeysCollection, "*", "*"), 0, func(e events.Event) error {
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
	byAdmin = map[string]bool{}
	for record, user := range users {
		byAdmin[providerKey(user, record)] = roles[user] == account.Admin
	}
	return byAdmin, err
}
