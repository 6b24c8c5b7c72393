package record

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
)

// SecretStorage says where the secret of a record is: in the bucket SECRETS, and never in the record or in an event. It
// is redacted in all events.
type SecretStorage struct {
	Field  string        // with which a command sets it, such as token
	Prefix string        // of its key, before a dot and the id of the record; empty for a type without secrets
	Source secret.Source // of the budget for redaction
	Made   bool          // PocketCoder makes it for a new record, and again for Renew
	// Changed is the read-only field that changes after the secret: a date, or a random text. Renewed limits it to Renew.
	Changed string
	Renewed bool
	// Texts are the texts of a secret that are redacted; nil for the whole secret.
	Texts func(value []byte) []string
	// Later says that Clean deletes the secret of a deleted record. A transaction may still fail.
	Later bool
}

// texts are the texts of secrets that are redacted.
func (s SecretStorage) texts(values ...[]byte) (all []string) {
	for _, value := range values {
		texts := []string{string(value)}
		if s.Texts != nil {
			texts = s.Texts(value)
		}
		for _, one := range texts {
			if !slices.Contains(all, one) {
				all = append(all, one)
			}
		}
	}
	return all
}

func (s SecretStorage) key(id string) string { return s.Prefix + "." + id }

// newToken returns a random secret of 32 bytes.
func newToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// takeSecret takes the secret of a command out of the fields that it sets. It makes that of a new record.
func (t Type) takeSecret(c Save, set Values) (text string, err error) {
	text = set.Text(t.Secret.Field)
	delete(set, t.Secret.Field)
	switch {
	case t.Secret.Prefix == "":
		return "", nil
	case t.Secret.Made && c.New:
		return newToken(), nil
	case text != "":
		err = handlers.RefuseWeak(t.Secret.Field, secret.Check(text))
	}
	return text, err
}

// storeSecret stores a secret once save has saved what it belongs to. It redacts the secret first, and refuses it if
// the number of redacted secrets is used up. The secret before stays redacted until the new one is stored. If that
// fails, both are redacted, because either may be the stored one.
func (h *Records) storeSecret(ctx context.Context, t Type, id string, now []byte, save func() error) error {
	if h.Secrets == nil {
		return errors.New("store a secret: the records have no bucket for secrets")
	}
	key := t.Secret.key(id)
	before, _, err := h.Secrets.Get(ctx, key)
	if err != nil {
		return err
	}
	if h.conceal(t, key, now, before) != nil { // the budget may have room for one of them
		err = h.conceal(t, key, now)
	}
	if err == nil {
		err = save()
	}
	if err != nil {
		_ = h.conceal(t, key, before)
		return err
	}
	if err = h.Secrets.Put(ctx, key, now); err == nil {
		err = h.conceal(t, key, now)
	}
	return err
}

// PutSecret stores a secret of a record that exists.
func (h *Records) PutSecret(ctx context.Context, name, id string, value []byte) error {
	t, err := h.typeOf(name)
	if err != nil {
		return err
	}
	return h.storeSecret(ctx, t, id, value, func() error { return nil })
}

// conceal redacts the secrets of a key in place of those before; no secrets end the redaction.
func (h *Records) conceal(t Type, key string, values ...[]byte) error {
	if h.Log.Conceal(t.Secret.Source, key, t.Secret.texts(values...)...) > 0 {
		return handlers.RefuseFull(t.Secret.Source, t.Secret.Source.Budget())
	}
	return nil
}

// announce changes the field of a record that changes after its secret, so that a running connection learns of it.
func (h *Records) announce(ctx context.Context, t Type, by handlers.Command, id string) (uint64, error) {
	f, _ := t.Field(t.Secret.Changed)
	value := events.FormatTime(time.Now())
	if f.Kind == Text {
		value = events.NewID()
	}
	_, seq, err := h.Save(ctx, Save{Command: by, Collection: t.Name, Record: id, Trusted: true,
		Set: Fields(map[string]any{f.Name: value})})
	return seq, err
}

// Touch changes the field of a record that changes after its secret, although the secret stays.
func (h *Records) Touch(ctx context.Context, by handlers.Command, name, id string) (uint64, error) {
	t, err := h.typeOf(name)
	if err != nil {
		return 0, err
	}
	return h.announce(ctx, t, by, id)
}

// Renew replaces the secret of a record, and returns the new one. The one before is not valid any more.
func (h *Records) Renew(ctx context.Context, by handlers.Command, name, id string) (token string, seq uint64,
	err error) {
	t, err := h.typeOf(name)
	if err != nil {
		return "", 0, err
	}
	_, found, err := One[struct{}](ctx, h, name, id)
	if err == nil && (!found || !t.Secret.Made) {
		err = handlers.Refuse(handlers.NotFound, "there is no record %s in %s", id, name)
	}
	if err != nil {
		return "", 0, err
	}
	token = newToken()
	if err = h.storeSecret(ctx, t, id, []byte(token), func() error { return nil }); err == nil {
		seq, err = h.announce(ctx, t, by, id) // after the secret is stored, because a connection reads it
	}
	return token, seq, err
}

// Secret returns the secret of a record, "" if there is none. From then on it is redacted in events.
func (h *Records) Secret(ctx context.Context, name, id string) (text string, err error) {
	t, err := h.typeOf(name)
	if err != nil {
		return "", err
	}
	value, _, err := h.Secrets.Get(ctx, t.Secret.key(id))
	if err == nil {
		_ = h.conceal(t, t.Secret.key(id), value) // if it does not fit, the health of the log says so
	}
	return string(value), err
}

// deleteSecret deletes the secret of a record, which is then no longer redacted.
func (h *Records) deleteSecret(ctx context.Context, t Type, id string) error {
	if t.Secret.Prefix == "" || h.Secrets == nil {
		return nil
	}
	err := h.Secrets.Delete(ctx, t.Secret.key(id))
	if err == nil {
		err = h.conceal(t, t.Secret.key(id))
	}
	return err
}

// Follow redacts the stored secrets, and those that any process stores later, until ctx ends. It ends the redaction of
// those that are deleted, and deletes those whose record was deleted.
func (h *Records) Follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	types := slices.DeleteFunc(slices.Clone(h.types), func(t Type) bool { return t.Secret.Prefix == "" })
	for _, t := range types {
		if err := h.clean(ctx, t); err != nil {
			return err
		}
	}
	ended := make(chan error, len(types))
	for _, t := range types {
		go func() {
			defer cancel()
			ended <- h.Secrets.Watch(ctx, t.Secret.Prefix, func(key string, value []byte) error {
				if key != "" {
					_ = h.conceal(t, key, value) // if it does not fit, the health of the log says so
				}
				return nil
			})
		}()
	}
	var first error
	for range types {
		first = cmp.Or(first, <-ended)
	}
	return first
}

// Clean deletes the secrets of deleted records of a collection.
func (h *Records) Clean(ctx context.Context, name string) error {
	t, err := h.typeOf(name)
	if err != nil {
		return err
	}
	return h.clean(ctx, t)
}

// clean deletes the secrets of deleted records. Such a secret is left if the process ended, or lost the log, between
// the deletions of the two. The log must have the deletion, because a replica may not have the record of a new secret.
func (h *Records) clean(ctx context.Context, t Type) error {
	keys, err := h.Secrets.Keys(ctx, t.Secret.Prefix)
	if err != nil || len(keys) == 0 {
		return err
	}
	deleted, err := h.Deleted(ctx, t.Name)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if id := strings.TrimPrefix(key, t.Secret.Prefix+"."); deleted[id] {
			if err := h.deleteSecret(ctx, t, id); err != nil {
				return err
			}
		}
	}
	return nil
}
