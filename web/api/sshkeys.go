package api

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"unicode"

	"golang.org/x/crypto/ssh"
)

// maxSSHKey is more than any key takes, in bytes: an RSA key of 16,384 bits is a line of 2,800.
const maxSSHKey = 16 << 10

// completeSSHKey keeps one key as a line of ours: the parser passes over lines it cannot read, and who serves them all would
// serve those too. It computes the fingerprint itself: a client's word about its key is worth nothing. That is padded
// base64, as the phone app looks for it.
func completeSSHKey(_ *Server, _ context.Context, w change) error {
	line, given := w.text("public_key")
	if !given {
		delete(w.set, "fingerprint")
		return nil
	}
	wrong := badField("public_key", "validation_invalid_value", "Must be one public key on one line, as in a .pub file, without options.")
	if len(line) > maxSSHKey || strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) {
		return wrong
	}
	key, comment, options, rest, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil || len(rest) > 0 || len(options) > 0 {
		return wrong
	}
	comment = strings.Join(strings.Fields(comment), " ")
	sum := sha256.Sum256(key.Marshal())
	w.set["public_key"] = mustJSON(strings.TrimSpace(strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))) + " " + comment))
	w.set["fingerprint"] = mustJSON("SHA256:" + base64.StdEncoding.EncodeToString(sum[:]))
	w.set["algorithm"] = mustJSON(key.Type())
	if _, given := w.set["comment"]; !given {
		w.set["comment"] = mustJSON(comment)
	}
	return nil
}
