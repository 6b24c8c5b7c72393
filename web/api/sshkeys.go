package api

import (
	"context"
	"strings"

	"pocketcoder/handlers"
)

// completeSSHKey keeps one key as a line of ours. What it says about the key we compute ourselves: a client's word about its
// key is worth nothing. The fingerprint is padded base64, as the phone app looks for it.
func completeSSHKey(_ *Server, _ context.Context, w change) error {
	line, given := w.text("public_key")
	if !given {
		delete(w.set, "fingerprint")
		return nil
	}
	key, err := handlers.ParseSSHKey(line)
	if err != nil {
		return badField("public_key", "validation_invalid_value", "Must be one public key on one line, as in a .pub file, without options: %s.",
			strings.TrimPrefix(err.Error(), "parse ssh key: "))
	}
	w.set["public_key"] = mustJSON(key.Line)
	w.set["fingerprint"] = mustJSON(key.Fingerprint)
	w.set["algorithm"] = mustJSON(key.Algorithm)
	w.set["key_size"] = mustJSON(key.Bits)
	if _, given := w.set["comment"]; !given {
		w.set["comment"] = mustJSON(key.Comment)
	}
	return nil
}
