package model

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/record"
)

// maxRedacted is the length of the longest value that is redacted, in bytes.
const maxRedacted = 1 << 10

// ProviderKeys stores the values of the variables for providers of models. The values of administrators are redacted in
// all later events, as many as Log.Conceal accepts. The values of other accounts are not redacted: OpenCode does not
// get them, and such an account could hide any text in other chats by storing it as a value.
type ProviderKeys struct {
	Records *record.Records
	Secrets *secret.Store
	Logger  *slog.Logger
	Paths   []string // a value that is part of one of these, or of a project's directory, is not redacted

	Known []KnownProvider // sorted by name
	// tests the values of the variables of a provider; needed by Test
	Try func(ctx context.Context, provider string, values map[string]string) (verdict, said string)

	saving sync.Mutex // held while a record and its values change
}

// Save saves a record with the names of the variables, and then their values among the secrets. A refused record
// leaves the values unchanged. After a crash in between, the record names variables with their old values or none; the
// client got no answer and repeats the request. In the other order, a crash could leave values that no record names.
func (k *ProviderKeys) Save(ctx context.Context, c record.Save) (id string, seq uint64, err error) {
	values, err := variables(c.Set)
	if err == nil {
		err = c.CheckSize()
	}
	if err != nil {
		return "", 0, err
	}
	if values != nil {
		names := map[string]string{}
		for name := range values {
			names[name] = ""
		}
		c.Set = maps.Clone(c.Set)
		maps.Copy(c.Set, record.Fields(map[string]any{"env_vars": names}))
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	if c.Admin() {
		if err := k.refuseTooMany(values); err != nil {
			return "", 0, err
		}
	}
	if id, seq, err = k.Records.Save(ctx, c); err != nil || values == nil {
		return id, seq, err
	}
	user, err := k.owner(ctx, id)
	if err != nil {
		return "", 0, err
	}
	return id, seq, k.store(context.WithoutCancel(ctx), user, id, values, c.Admin())
}

// Delete deletes a record, and then its values.
func (k *ProviderKeys) Delete(ctx context.Context, c record.Delete) (seq uint64, err error) {
	k.saving.Lock()
	defer k.saving.Unlock()
	user, err := k.owner(ctx, c.Record)
	if err != nil {
		return 0, err
	}
	if seq, err = k.Records.Delete(ctx, c); err != nil || user == "" {
		return seq, err
	}
	return seq, k.store(context.WithoutCancel(ctx), user, c.Record, nil, true)
}

// owner returns the account that a key belongs to, "" for a key that does not exist.
func (k *ProviderKeys) owner(ctx context.Context, key string) (user string, err error) {
	r, _, err := record.One[struct{ User string }](ctx, k.Records, Keys, key)
	return r.User, err
}

const providerKeysPrefix = "llm" // of all their keys among the secrets

func providerKey(user, id string) string { return providerKeysPrefix + "." + user + "." + id }

// store stores these values of a record in place of the stored ones. A variable with an empty value keeps its stored
// value.
func (k *ProviderKeys) store(ctx context.Context, user, id string, values map[string]string, byAdmin bool) error {
	key := providerKey(user, id)
	raw, found, err := k.Secrets.Get(ctx, key)
	if err != nil {
		return err
	}
	var kept map[string]string
	_ = json.Unmarshal(raw, &kept) // store wrote it, or there is none
	now := map[string]string{}
	for name, value := range values {
		value = cmp.Or(value, kept[name])
		if value != "" {
			now[name] = value
		}
	}
	if byAdmin {
		k.redact(key, now, kept) // if the change fails, either may be stored
	}
	switch {
	case maps.Equal(kept, now):
	case len(now) > 0:
		body, err := json.Marshal(now)
		if err == nil {
			err = k.Secrets.Put(ctx, key, body)
		}
		if err != nil {
			return err
		}
	case found:
		if err := k.Secrets.Delete(ctx, key); err != nil {
			return err
		}
	}
	if byAdmin {
		k.redact(key, now)
	}
	return nil
}

// redact redacts the values under a key in place of the values before.
func (k *ProviderKeys) redact(key string, sets ...map[string]string) {
	if left := k.Records.Log.Conceal(secret.ProviderKeys, key, k.secretsOf(sets...)...); left > 0 {
		k.Logger.Warn("there are too many secrets to take them all out of events", "key", key, "left", left)
	}
}

// secretsOf returns the values that are to be redacted. Redaction concerns every chat, so it leaves out a value that is
// part of one of the paths. Log.Conceal skips a value that is not clearly a secret, such as a region.
func (k *ProviderKeys) secretsOf(sets ...map[string]string) (secrets []string) {
	directories, err := project.Directories(context.Background(), k.Records)
	if err != nil {
		k.Logger.Error("look up the directories of the projects", "err", err)
	}
	paths := slices.Concat(k.Paths, directories)
	for _, values := range sets {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			value := values[name]
			isPart := func(path string) bool { return strings.Contains(path, value) }
			if len(value) <= maxRedacted && !slices.ContainsFunc(paths, isPart) && !slices.Contains(secrets, value) {
				secrets = append(secrets, value)
			}
		}
	}
	return secrets
}

// refuseTooMany refuses values that cannot be redacted besides all others. k.saving must be held.
func (k *ProviderKeys) refuseTooMany(values map[string]string) error {
	const group = providerKeysPrefix + ".new"
	left := k.Records.Log.Conceal(secret.ProviderKeys, group, k.secretsOf(values)...)
	k.Records.Log.Conceal(secret.ProviderKeys, group)
	if left > 0 {
		return handlers.RefuseFull(secret.ProviderKeys, secret.ProviderKeys.Budget())
	}
	return nil
}

// Restore redacts the stored values after a start. It deletes the values of deleted records and accounts, which are
// left if the process ended too early. It keeps those of a record that cannot be read.
func (k *ProviderKeys) Restore(ctx context.Context) error {
	keys, err := k.Secrets.Keys(ctx, providerKeysPrefix)
	if err != nil {
		return err
	}
	deleted, err := k.Records.Deleted(ctx, Keys)
	if err != nil {
		return err
	}
	gone, roles, err := k.accounts(ctx)
	if err != nil {
		return err
	}
	slices.Sort(keys)
	for _, key := range keys {
		user, id, isKey := strings.Cut(strings.TrimPrefix(key, providerKeysPrefix+"."), ".")
		if !isKey || gone[user] || deleted[id] {
			if err := k.Secrets.Delete(ctx, key); err != nil {
				return err
			}
			continue
		}
		if roles[user] != account.Admin {
			continue
		}
		raw, _, err := k.Secrets.Get(ctx, key)
		if err != nil {
			return err
		}
		var values map[string]string
		_ = json.Unmarshal(raw, &values) // store wrote it
		k.redact(key, values)
	}
	return nil
}

// Follow redacts what other processes store, until ctx ends.
func (k *ProviderKeys) Follow(ctx context.Context) error {
	return k.Secrets.Watch(ctx, providerKeysPrefix, func(key string, value []byte) error {
		if value == nil {
			k.redact(key, nil)
			return nil
		}
		byAdmin, err := k.named(ctx)
		if err != nil || !byAdmin[key] {
			return err
		}
		var values map[string]string
		_ = json.Unmarshal(value, &values) // store wrote it
		k.redact(key, values)
		return nil
	})
}

// Values returns the variables that administrators have stored. Of several values of a variable it is the one whose
// record changed last.
func (k *ProviderKeys) Values(ctx context.Context) (map[string]string, error) {
	byAdmin, err := k.named(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := record.All[struct{ User string }](ctx, k.Records, Keys)
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
		_ = json.Unmarshal(raw, &values) // store wrote it, or there is none
		maps.Copy(all, values)
	}
	return all, nil
}

// Watch calls changed after each change of stored values until ctx ends, and once at the start.
func (k *ProviderKeys) Watch(ctx context.Context, changed func()) error {
	started := false
	return k.Secrets.Watch(ctx, providerKeysPrefix, func(key string, _ []byte) error {
		if started = started || key == ""; started {
			changed()
		}
		return nil
	})
}

// accounts returns the deleted accounts, and the roles of all.
func (k *ProviderKeys) accounts(ctx context.Context) (gone map[string]bool, roles map[string]string, err error) {
	gone, roles = map[string]bool{}, map[string]string{}
	_, err = k.Records.Log.Fold(ctx, events.UserSubject("*", "account.*"), 0, func(e events.Event) error {
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
		return nil, nil, err
	}
	_, err = k.Records.Log.Fold(ctx, events.UserSubject("*", events.Deleted{}.Kind()), 0, func(e events.Event) error {
		gone[e.Subject.ID] = true
		return nil
	})
	return gone, roles, err
}

// named returns the secrets that records of existing accounts name, and whether the account is an administrator.
func (k *ProviderKeys) named(ctx context.Context) (byAdmin map[string]bool, err error) {
	gone, roles, err := k.accounts(ctx)
	if err != nil {
		return nil, err
	}
	keys, err := record.All[struct{ User string }](ctx, k.Records, Keys)
	byAdmin = map[string]bool{}
	for _, key := range keys {
		if user := key.Value.User; !gone[user] {
			byAdmin[providerKey(user, key.ID)] = roles[user] == account.Admin
		}
	}
	return byAdmin, err
}
