package record

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record/sshkey"
)

// SSHKeyCollection is the config collection of the keys with which accounts open the viewer over SSH.
const SSHKeyCollection = "ssh_keys"

// keyFields returns what a record says about the key itself.
func keyFields(k sshkey.Key) map[string]json.RawMessage {
	return Fields(map[string]any{"public_key": k.Line, "fingerprint": k.Fingerprint, "algorithm": k.Algorithm,
		"key_size": k.Bits, "comment": k.Comment})
}

// AddSSHKey registers a public key for an account.
type AddSSHKey struct {
	handlers.Command
	User    string    `json:"user"` // id of the account
	Name    string    `json:"name"` // of the device that holds the private key
	Line    string    `json:"line"` // as in a .pub file
	Expires time.Time `json:"expires,omitzero"`
}

// AddSSHKey refuses a key that is registered already, because a key belongs to one account.
func (h *Records) AddSSHKey(ctx context.Context, c AddSSHKey) (id string, seq uint64, err error) {
	key, err := sshkey.Parse(c.Line)
	if err != nil {
		return "", 0, handlers.RefuseField(handlers.Invalid, "line", "%v", err)
	}
	if _, err := events.ParseID(c.User); err != nil {
		return "", 0, handlers.RefuseField(handlers.Invalid, "user", "user: %v", err)
	}
	set := Fields(map[string]any{
		"public_key": c.Line, "user": c.User, "device_name": cmp.Or(c.Name, key.Comment), "is_active": true, "expires_at": FormatTime(c.Expires),
	})
	id, seq, err = h.Save(ctx, Save{Command: c.Command, Collection: SSHKeyCollection, Set: set, New: true})
	if r := (handlers.Refused{}); errors.As(err, &r) && r.Code == handlers.Conflict && r.Field == "fingerprint" {
		return "", 0, handlers.RefuseField(handlers.Conflict, "line",
			"The key %s is registered already; a key belongs to one account.", key.Fingerprint)
	}
	return id, seq, err
}

// UseSSHKey records that a key has logged in.
type UseSSHKey struct {
	handlers.Command
	Key string `json:"key"` // id of its record
}

// keyUsePrecision is how exact last_used is: an event for each login of a script would fill the log.
const keyUsePrecision = time.Minute

// UseSSHKey records a login at most once a minute.
func (h *Records) UseSSHKey(ctx context.Context, c UseSSHKey) (uint64, error) {
	keys, err := All[RegisteredKey](ctx, h, SSHKeyCollection)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(keys, func(k StoredRecord[RegisteredKey]) bool { return k.ID == c.Key })
	if i < 0 {
		return 0, handlers.Refuse(handlers.NotFound, "There is no SSH key %s.", c.Key)
	}
	now := time.Now()
	if used, err := time.Parse(events.TimeFormat, keys[i].Value.LastUsed); err == nil &&
		now.Sub(used) < keyUsePrecision && !used.After(now) {
		return keys[i].Seq, nil
	}
	_, seq, err := h.Save(ctx, Save{
		Command: c.Command, Collection: SSHKeyCollection, Record: c.Key, Set: Fields(map[string]any{"last_used": FormatTime(now)}),
	})
	return seq, err
}

// RegisteredKey is a registered SSH key as commands list it.
type RegisteredKey struct {
	ID          string `json:"id"`
	User        string `json:"user"`
	Name        string `json:"device_name"`
	Fingerprint string `json:"fingerprint"`
	Algorithm   string `json:"algorithm"`
	ExpiresAt   string `json:"expires_at"` // 2006-01-02 15:04:05.000Z, or empty
	LastUsed    string `json:"last_used"`  // the same
	Active      bool   `json:"is_active"`
}

// SSHKeys lists the registered keys in the order of their ids.
func (h *Records) SSHKeys(ctx context.Context) ([]RegisteredKey, error) {
	list, err := List(ctx, h, SSHKeyCollection, func(r StoredRecord[RegisteredKey]) RegisteredKey {
		r.Value.ID = r.ID
		return r.Value
	})
	slices.SortFunc(list, func(a, b RegisteredKey) int { return cmp.Compare(a.ID, b.ID) })
	return list, err
}
