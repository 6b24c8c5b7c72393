// Package sshkey registers the public keys with which accounts open the viewer over SSH.
//
// Promises: a key belongs to one account. Only keys of strong kinds are registered, on one line without options.
//
// It must not know who logs in.
package sshkey

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
)

// Collection is the config collection of the keys.
const Collection = "ssh_keys"

// Type is the type of the records of keys. A fingerprint is unique among all accounts: a key identifies one.
var Type = record.Type{Name: Collection, Command: "key", Title: "SSH keys",
	About:  "public keys that give people access to the sandbox",
	Access: record.Rules(record.OwnOrAdmin, record.OwnOrAdmin, record.Own, record.OwnOrAdmin, record.OwnOrAdmin),
	Unique: []string{"fingerprint"}, Complete: complete, Taken: handlers.RefuseField(handlers.Conflict, "public_key",
		"This key is registered already, by you or by another account. A key belongs to one account."),
	Fields: []record.Field{
		{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users"},
		{Name: "public_key", Kind: record.Text, Label: "Public key", Required: true, Lines: true},
		{Name: "device_name", Kind: record.Text, Label: "Device"},
		{Name: "fingerprint", Kind: record.Text, Label: "Fingerprint", Computed: true, Required: true},
		{Name: "algorithm", Kind: record.Text, Label: "Algorithm", Shown: true},
		{Name: "key_size", Kind: record.Number, Label: "Bits", Shown: true},
		{Name: "comment", Kind: record.Text, Label: "Comment", Detail: true},
		{Name: "expires_at", Kind: record.Date, Label: "Expires"},
		{Name: "last_used", Kind: record.Date, Label: "Last used", Computed: true},
		{Name: "is_active", Kind: record.Bool, Label: "Enabled", Switch: true},
	}}

// complete normalizes the key and computes the fields that describe it. Values of the client for these fields are
// ignored. The fingerprint is padded base64, because the phone app compares it.
func complete(c record.Change) error {
	if _, given := c.Set["public_key"]; !given {
		delete(c.Set, "fingerprint")
		return nil
	}
	key, err := Parse(c.Set.Text("public_key"))
	if err != nil {
		reason := strings.TrimPrefix(err.Error(), "parse ssh key: ")
		return record.Invalid("public_key", "Must be one public key on one line, as in a .pub file, without options: %s.", reason)
	}
	comment, given := c.Set["comment"]
	maps.Copy(c.Set, record.Fields(map[string]any{"public_key": key.Line, "fingerprint": key.Fingerprint,
		"algorithm": key.Algorithm, "key_size": key.Bits, "comment": key.Comment}))
	if given {
		c.Set["comment"] = comment
	}
	return nil
}

// Use records that a key has logged in.
type Use struct {
	handlers.Command
	Key string `json:"key"` // id of its record
}

// keyUsePrecision is how exact last_used is: an event for each login of a script would fill the log.
const keyUsePrecision = time.Minute

// Execute records a login at most once a minute.
func (c Use) Execute(ctx context.Context, h *record.Records) (uint64, error) {
	keys, err := record.All[Registered](ctx, h, Collection)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(keys, func(k record.StoredRecord[Registered]) bool { return k.ID == c.Key })
	if i < 0 {
		return 0, handlers.Refuse(handlers.NotFound, "There is no SSH key %s.", c.Key)
	}
	now := time.Now()
	if used, err := time.Parse(events.TimeFormat, keys[i].Value.LastUsed); err == nil &&
		now.Sub(used) < keyUsePrecision && !used.After(now) {
		return keys[i].Seq, nil
	}
	_, seq, err := h.Save(ctx, record.Save{
		Command: c.Command, Collection: Collection, Record: c.Key, Set: record.Fields(map[string]any{"last_used": events.FormatTime(now)}),
	})
	return seq, err
}

// Registered is a registered SSH key as commands list it.
type Registered struct {
	ID          string `json:"id"`
	User        string `json:"user"`
	Name        string `json:"device_name"`
	Fingerprint string `json:"fingerprint"`
	Algorithm   string `json:"algorithm"`
	ExpiresAt   string `json:"expires_at"` // 2006-01-02 15:04:05.000Z, or empty
	LastUsed    string `json:"last_used"`  // the same
	Active      bool   `json:"is_active"`
}

// All lists the registered keys in the order of their ids.
func All(ctx context.Context, h *record.Records) ([]Registered, error) {
	list, err := record.List(ctx, h, Collection, func(r record.StoredRecord[Registered]) Registered {
		r.Value.ID = r.ID
		return r.Value
	})
	slices.SortFunc(list, func(a, b Registered) int { return cmp.Compare(a.ID, b.ID) })
	return list, err
}
