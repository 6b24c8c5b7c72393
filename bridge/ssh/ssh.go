// Package ssh lets people open the viewer of their chats over SSH. It writes an authorized_keys file with the keys that
// accounts have registered (the collection ssh_keys) and runs an sshd that accepts only these keys.
//
// Promises: the file holds the active, unexpired keys of active accounts, in the order of their registration. It is
// replaced as a whole when a key or an account changes, and when a key expires. Keys that cannot be parsed are left
// out, and so are keys that two accounts have registered. If the file cannot be written, it is removed, because it may
// hold a revoked key. A file that PocketCoder did not write is neither changed nor removed. A key opens one program in
// a terminal: the viewer of the account's own chats. It allows no other command, no forwarding and no files. Accounts
// of the role agent have no access. A connection ends when its key is revoked or its account's rights change. sshd
// runs as the current user, with a host key that the first start creates.
//
// It must not know how the viewer works or what a chat is: the caller passes the viewer's command.
package ssh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/atomicfile"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/sshkey"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// Keys writes authorized_keys files.
type Keys struct {
	Model    *projections.Model
	Accounts *account.Accounts
	Files    []string // paths of the files, all with the same content
	// the program and its arguments that a key, by the id of its record, runs
	Command func(owner account.Account, key string) []string
	// called with the files' lines by fingerprint, each time the lines are computed; may be nil
	Written func(lines map[string]string)
	Logger  *slog.Logger

	leftOut map[string]bool // keys whose omission is logged
}

const (
	keysRetry = time.Second // before a failed write is repeated
	keysWait  = time.Minute // maximal wait for the expiry of a key, because a suspended computer does not count its sleep
)

// Run keeps the files up to date until ctx ends. The read models must have caught up.
func (k *Keys) Run(ctx context.Context) error {
	changes := k.Model.Feed()
	defer changes.Close()
	for {
		next, err := k.write(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			k.Logger.Error("ssh keys", "err", err)
			next = time.Now().Add(keysRetry)
		}
		if err := await(ctx, changes, next); err != nil {
			return err
		}
	}
}

// await waits until a key or an account changes, or until a time unless it is zero.
func await(ctx context.Context, changes *store.Feed, until time.Time) error {
	waiting, cancel := ctx, context.CancelFunc(func() {})
	if !until.IsZero() {
		waiting, cancel = context.WithTimeout(ctx, pause(time.Now(), until))
	}
	defer cancel()
	for {
		changed, _, err := changes.Next(waiting)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if waiting.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for _, c := range changed {
			if c.Table == "users" || strings.HasPrefix(c.ID, collection+"/") {
				return nil
			}
		}
	}
}

func pause(now, until time.Time) time.Duration { return min(until.Sub(now), keysWait) }

// collection is the collection of registered keys.
const collection = sshkey.Collection

// write writes the files, and returns when they will change by themselves, zero for never.
func (k *Keys) write(ctx context.Context) (next time.Time, err error) {
	text, lines, next, failed := k.text(ctx, time.Now())
	err = failed
	var foreign error
	for _, path := range k.Files {
		if conflict := CheckOwn(path); conflict != nil {
			foreign = errors.Join(foreign, conflict)
			continue
		}
		if err == nil {
			err = replace(path, text)
		}
		if err != nil {
			if removal := os.Remove(path); removal != nil && !errors.Is(removal, fs.ErrNotExist) {
				err = errors.Join(err, removal)
			}
		}
	}
	if failed == nil && k.Written != nil { // also after a failed write, because a key may be revoked
		k.Written(lines)
	}
	return next, errors.Join(err, foreign)
}

// header is the first line of our files.
const header = "# Written by pocketcoder from the collection ssh_keys; changes made here are lost.\n"

// CheckOwn returns an error if a file has content that PocketCoder did not write, such as the operator's own keys.
func CheckOwn(path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (len(text) == 0 || strings.HasPrefix(string(text), header)) {
		return nil
	}
	if err == nil {
		err = errors.New("PocketCoder did not write it, and would overwrite its keys")
	}
	return fmt.Errorf("leave %s alone: %w", path, err)
}

// record is a registered key.
type record struct {
	User      string `json:"user"`
	PublicKey string `json:"public_key"`
	ExpiresAt string `json:"expires_at"`
	IsActive  bool   `json:"is_active"`

	sshkey.Key `json:"-"`
	id         string
	expires    time.Time
	owner      account.Account
}

// text returns the content of the file at a time, its lines by fingerprint, and when the content changes by itself.
func (k *Keys) text(ctx context.Context, now time.Time) (text string, lines map[string]string, next time.Time,
	err error) {
	keys, err := k.valid(ctx, now)
	if err != nil {
		return "", nil, time.Time{}, fmt.Errorf("list ssh keys: %w", err)
	}
	holders := map[string]map[string]bool{} // accounts by fingerprint
	for _, key := range keys {
		if holders[key.Fingerprint] == nil {
			holders[key.Fingerprint] = map[string]bool{}
		}
		holders[key.Fingerprint][key.User] = true
	}
	lines = map[string]string{}
	var b strings.Builder
	b.WriteString(header)
	for _, key := range keys {
		if !key.expires.IsZero() && (next.IsZero() || key.expires.Before(next)) {
			next = key.expires
		}
		if len(holders[key.Fingerprint]) > 1 {
			k.warnLeftOut(key.id, fmt.Errorf("%s is registered by more than one account", key.Fingerprint))
			continue
		}
		line, err := k.line(key)
		if err != nil {
			return "", nil, time.Time{}, fmt.Errorf("list ssh keys: %w", err)
		}
		b.WriteString(line)
		lines[strings.TrimRight(key.Fingerprint, "=")] = line // as sshd writes it
	}
	return b.String(), lines, next, nil
}

// valid returns the keys that are valid at a time.
func (k *Keys) valid(ctx context.Context, now time.Time) (keys []record, err error) {
	records, err := k.Model.Config(ctx, collection)
	if err != nil {
		return nil, err
	}
	accounts, err := k.Accounts.List(ctx)
	if err != nil {
		return nil, err
	}
	active := map[string]account.Account{}
	for _, a := range accounts {
		if !a.Disabled && a.Role != account.Agent {
			active[a.ID] = a
		}
	}
	for _, r := range records {
		key, err := readKey(r)
		if err != nil {
			k.warnLeftOut(r.RecordID, err)
			continue
		}
		owner, ok := active[key.User]
		over := !key.expires.IsZero() && !key.expires.After(now)
		if ok && key.IsActive && !over {
			key.owner, key.id = owner, r.RecordID
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func readKey(r projections.Config) (key record, err error) {
	if err = json.Unmarshal([]byte(r.Fields), &key); err != nil {
		return key, err
	}
	if key.Key, err = sshkey.Parse(key.PublicKey); err != nil {
		return key, err
	}
	if key.ExpiresAt != "" {
		if key.expires, err = time.Parse(events.TimeFormat, key.ExpiresAt); err != nil {
			return key, fmt.Errorf("read when it expires: %w", err)
		}
	}
	return key, nil
}

// line returns the line of a key. It omits the key's own comment.
func (k *Keys) line(key record) (string, error) {
	command, err := shellLine(k.Command(key.owner, key.id))
	if err != nil {
		return "", err
	}
	typeAndKey := strings.Join(strings.Fields(key.Line)[:2], " ")
	return `restrict,pty,command="` + strings.ReplaceAll(command, `"`, `\"`) + `" ` + typeAndKey + " " + key.owner.ID +
		"\n", nil
}

// warnLeftOut logs once that a key is left out.
func (k *Keys) warnLeftOut(id string, err error) {
	if k.leftOut == nil {
		k.leftOut = map[string]bool{}
	}
	if !k.leftOut[id] {
		k.leftOut[id] = true
		k.Logger.Warn("an ssh key is left out", "key", id, "err", err)
	}
}

// shellLine quotes words for a POSIX shell, with which sshd runs a command.
func shellLine(words []string) (string, error) {
	quoted := make([]string, len(words))
	for i, w := range words {
		if strings.ContainsAny(w, "\n\r\x00") {
			return "", fmt.Errorf("authorized_keys cannot hold %q", w)
		}
		quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " "), nil
}

// replace writes a file atomically with mode 0600, unless it has this content and mode already.
func replace(path, text string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		if info, err := os.Lstat(path); err == nil && info.Mode() == 0o600 {
			return nil
		}
	}
	if err := atomicfile.Write(path, []byte(text)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
