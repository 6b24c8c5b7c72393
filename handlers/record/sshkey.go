package record

import (
	"cmp"
	"context"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/crypto/ssh"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// SSHKey is a public key with which a person may log in.
type SSHKey struct {
	Line        string // type, key and comment, as in a .pub file
	Fingerprint string // SHA256: and padded base64
	Algorithm   string
	Bits        int
	Comment     string // one line
}

// maxSSHKey is more than any key takes, in bytes: an RSA key of 16,384 bits is a line of 2,800.
const maxSSHKey = 16 << 10

// minRSABits is what NIST SP 800-131A asks for since 2014.
const minRSABits = 2048

// sshKeyBits are the allowed kinds of keys, and their sizes. DSA, which OpenSSH has abandoned, and certificates are not
// allowed.
var sshKeyBits = map[string]int{
	ssh.KeyAlgoED25519: 256, ssh.KeyAlgoECDSA256: 256, ssh.KeyAlgoECDSA384: 384, ssh.KeyAlgoECDSA521: 521,
	ssh.KeyAlgoSKED25519: 256, ssh.KeyAlgoSKECDSA256: 256, ssh.KeyAlgoRSA: 0, // its own
}

// ParseSSHKey reads one public key on one line, without options. The parser skips lines that it cannot read, and a
// server of the stored line would serve those too. So ParseSSHKey writes the line anew.
func ParseSSHKey(line string) (SSHKey, error) {
	fail := func(reason string) (SSHKey, error) { return SSHKey{}, errors.New("parse ssh key: " + reason) }
	line = strings.TrimSpace(line)
	if len(line) > maxSSHKey || strings.ContainsFunc(line, func(r rune) bool {
		return unicode.IsControl(r) && r != '\t'
	}) {
		return fail("it is not one line as in a .pub file")
	}
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(rest) > 0 || len(options) > 0 {
		return fail("it is not one public key as in a .pub file, without options")
	}
	bits, known := sshKeyBits[key.Type()]
	if !known {
		return fail(fmt.Sprintf("keys of type %s are not taken; make one with: ssh-keygen -t ed25519", key.Type()))
	}
	if bits == 0 {
		public, ok := key.(ssh.CryptoPublicKey).CryptoPublicKey().(*rsa.PublicKey)
		if !ok || public.N.BitLen() < minRSABits {
			return fail(fmt.Sprintf("an RSA key must have %d bits; make another with: ssh-keygen -t ed25519", minRSABits))
		}
		bits = public.N.BitLen()
	}
	comment = strings.Join(strings.Fields(comment), " ")
	sum := sha256.Sum256(key.Marshal())
	return SSHKey{
		Line:        strings.TrimSpace(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + comment),
		Fingerprint: "SHA256:" + base64.StdEncoding.EncodeToString(sum[:]), Algorithm: key.Type(), Bits: bits, Comment: comment,
	}, nil
}

// SSHKeyCollection is the config collection of the keys with which accounts open the viewer over SSH.
const SSHKeyCollection = "ssh_keys"

// Fields returns what a record says about the key itself.
func (k SSHKey) Fields() map[string]json.RawMessage {
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

// AddSSHKey carries out the command. A key that is registered already is refused: it belongs to one account.
func (h *Records) AddSSHKey(ctx context.Context, c AddSSHKey) (id string, seq uint64, err error) {
	key, err := ParseSSHKey(c.Line)
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

// UseSSHKey carries out the command. It records a login at most once a minute.
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
	all, err := All[RegisteredKey](ctx, h, SSHKeyCollection)
	list := []RegisteredKey{}
	for _, k := range all {
		k.Value.ID = k.ID
		list = append(list, k.Value)
	}
	slices.SortFunc(list, func(a, b RegisteredKey) int { return cmp.Compare(a.ID, b.ID) })
	return list, err
}
