package record

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"regexp"
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

// ProviderKeys keeps the values of the variables for providers of models. Each record of ProviderKeysCollection has
// one secret with them, a JSON object. The values that administrators stored are redacted in all events from then on,
// as many as Log.Conceal admits. OpenCode is not started with the values of other accounts, so those need no
// redaction, and an account could hide any text of other chats with one.
type ProviderKeys struct {
	Log     *log.Log
	Secrets *secret.Store
	Logger  *slog.Logger
	Paths   []string // a value that is part of one of these is not redacted
}

// Limits of the keys of an account; lengths are in bytes.
const (
	maxKeys       = 50
	maxProviderID = 100
	maxVariables  = 20
	maxVariable   = 4 << 10
)

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,99}$`)

// completeProviderKey checks a key. It refuses values, because events would hold them.
func completeProviderKey(c change) error {
	if id := c.text("provider_id"); len(id) > maxProviderID || strings.ContainsFunc(id, unicode.IsControl) {
		return invalid("provider_id", "Must be at most %d bytes without control characters.", maxProviderID)
	}
	values, err := variables(c.set)
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

// variables returns the variables that a command sets, nil if it sets none.
func variables(set fields) (values map[string]string, err error) {
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
		if len(value) > maxVariable || strings.ContainsRune(value, 0) {
			return nil, invalid("env_vars", "%s must be at most %d bytes without NUL.", name, maxVariable)
		}
	}
	return values, nil
}

// Save saves a record with the names of the variables, and then their values among the secrets. A refused record
// leaves the values unchanged. After a crash in between, the record names variables with their old values or none; the
// client got no answer and repeats the request. In the other order, a crash could leave values that no record names.
func (k ProviderKeys) Save(ctx context.Context, h *Records, c Save) (id string, seq uint64, err error) {
	values, err := variables(c.Set)
	if err == nil {
		err = c.checkSize()
	}
	if err != nil {
		return "", 0, err
	}
	if values != nil {
		names := map[string]string{}
		for name := range values {
			names[name] = ""
		}
		c.Set = fields(c.Set).with(Fields(map[string]any{"env_vars": names}))
	}
	h.keys.Lock()
	defer h.keys.Unlock()
	if id, seq, err = h.Save(ctx, c); err != nil || values == nil {
		return id, seq, err
	}
	user, err := h.keyOwner(ctx, id)
	if err != nil {
		return "", 0, err
	}
	return id, seq, k.Store(context.WithoutCancel(ctx), user, id, values, c.admin())
}

// Delete deletes a record, and then its values.
func (k ProviderKeys) Delete(ctx context.Context, h *Records, c Delete) (seq uint64, err error) {
	h.keys.Lock()
	defer h.keys.Unlock()
	user, err := h.keyOwner(ctx, c.Record)
	if err != nil {
		return 0, err
	}
	if seq, err = h.Delete(ctx, c); err != nil || user == "" {
		return seq, err
	}
	return seq, k.Store(context.WithoutCancel(ctx), user, c.Record, nil, true)
}

// keyOwner returns the account that a key belongs to, "" for a key that does not exist.
func (h *Records) keyOwner(ctx context.Context, key string) (user string, err error) {
	err = h.collection(ctx, ProviderKeysCollection).Read(ctx, h.Log, func(s *collection) error {
		user = s.records[key].fields.text("user")
		return nil
	})
	return user, err
}

const providerKeysPrefix = "llm" // of all their keys among the secrets

func providerKey(user, record string) string { return providerKeysPrefix + "." + user + "." + record }

// Store stores these values of a record in place of the stored ones. A variable with an empty value keeps its stored
// value.
func (k ProviderKeys) Store(ctx context.Context, user, record string, values map[string]string, byAdmin bool) error {
	key := providerKey(user, record)
	raw, found, err := k.Secrets.Get(ctx, key)
	if err != nil {
		return err
	}
	var kept map[string]string
	_ = json.Unmarshal(raw, &kept) // written here, or there is none
	now := map[string]string{}
	for name, value := range values {
		value = cmp.Or(value, kept[name])
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

// redact redacts the values under a key in place of the values before. Redaction concerns every chat, so it skips a
// value that is not clearly a secret or that is part of one of the paths.
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
	return len(s) >= minRedacted && len(s) <= maxRedacted && !strings.Contains(s, "/") &&
		!strings.ContainsFunc(s, unicode.IsSpace) &&
		strings.ContainsFunc(s, unicode.IsLetter) && strings.ContainsFunc(s, unicode.IsDigit) &&
		!slices.ContainsFunc(k.Paths, func(path string) bool { return strings.Contains(path, s) })
}

// Restore redacts the stored values after a start. It deletes values without a record. Such values are left if the
// process ended too early, or if their account was deleted.
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

// Follow redacts what other processes store, until ctx ends.
func (k ProviderKeys) Follow(ctx context.Context) error {
	return k.Secrets.Watch(ctx, providerKeysPrefix, func(key string, value []byte) error {
		if value == nil {
			return nil // what was redacted stays so until the next start
		}
		byAdmin, err := k.named(ctx)
		if err != nil || !byAdmin[key] {
			return err
		}
		var values map[string]string
		_ = json.Unmarshal(value, &values) // written by Keep
		k.redact(key, values)
		return nil
	})
}

// Values returns the variables that administrators have stored. Of several values of a variable it is the one whose
// record changed last.
func (k ProviderKeys) Values(ctx context.Context) (map[string]string, error) {
	byAdmin, err := k.named(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := All[struct{ User string }](ctx, &Records{Log: k.Log}, ProviderKeysCollection)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, r := range keys {
		key := providerKey(r.Value.User, r.ID)
		if !byAdmin[key] {
			continue
		}
		raw, _, err := k.Secrets.Get(ctx, key)
		if err != nil {
			return nil, err
		}
		var values map[string]string
		_ = json.Unmarshal(raw, &values) // written by Store, or there is none
		maps.Copy(all, values)
	}
	return all, nil
}

// Watch calls changed after each change of stored values until ctx ends, and once at the start.
func (k ProviderKeys) Watch(ctx context.Context, changed func()) error {
	started := false
	return k.Secrets.Watch(ctx, providerKeysPrefix, func(key string, _ []byte) error {
		if started = started || key == ""; started {
			changed()
		}
		return nil
	})
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
	keys, err := All[struct{ User string }](ctx, &Records{Log: k.Log}, ProviderKeysCollection)
	byAdmin = map[string]bool{}
	for _, key := range keys {
		if user := key.Value.User; !gone[user] {
			byAdmin[providerKey(user, key.ID)] = roles[user] == account.Admin
		}
	}
	return byAdmin, err
}
