package sshkey

import (
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"golang.org/x/crypto/ssh"
)

// Key is a public key with which a person may log in.
type Key struct {
	Line        string // type, key and comment, as in a .pub file
	Fingerprint string // SHA256: and padded base64
	Algorithm   string
	Bits        int
	Comment     string // one line
}

// maxKey is more than any key takes, in bytes: an RSA key of 16,384 bits is a line of 2,800.
const maxKey = 16 << 10

// minRSABits is what NIST SP 800-131A asks for since 2014.
const minRSABits = 2048

// keyBits are the allowed kinds of keys, and their sizes. DSA, which OpenSSH has abandoned, and certificates are not
// allowed.
var keyBits = map[string]int{
	ssh.KeyAlgoED25519: 256, ssh.KeyAlgoECDSA256: 256, ssh.KeyAlgoECDSA384: 384, ssh.KeyAlgoECDSA521: 521,
	ssh.KeyAlgoSKED25519: 256, ssh.KeyAlgoSKECDSA256: 256, ssh.KeyAlgoRSA: 0, // its own
}

// Parse reads one public key on one line, without options. The parser skips lines that it cannot read, and a
// server of the stored line would serve those too. So Parse writes the line anew.
func Parse(line string) (Key, error) {
	fail := func(reason string) (Key, error) { return Key{}, errors.New("parse ssh key: " + reason) }
	line = strings.TrimSpace(line)
	if len(line) > maxKey || strings.ContainsFunc(line, func(r rune) bool {
		return unicode.IsControl(r) && r != '\t'
	}) {
		return fail("it is not one line as in a .pub file")
	}
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(rest) > 0 || len(options) > 0 {
		return fail("it is not one public key as in a .pub file, without options")
	}
	bits, known := keyBits[key.Type()]
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
	return Key{
		Line:        strings.TrimSpace(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + comment),
		Fingerprint: "SHA256:" + base64.StdEncoding.EncodeToString(sum[:]), Algorithm: key.Type(), Bits: bits, Comment: comment,
	}, nil
}
