package records

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

const sshKeys = record.SSHKeyCollection

// saveSSHKey refuses a key that another record has, of any account: a login with it would not identify the account.
func saveSSHKey(s *Records, ctx context.Context, w change) (string, uint64, error) {
	if err := completeSSHKey(w); err != nil {
		return "", 0, err
	}
	id, seq, err := saveRecord(s, ctx, w)
	if refused := (handlers.Refused{}); errors.As(err, &refused) && refused.Code == handlers.Conflict && refused.Field == "fingerprint" {
		return "", 0, api.BadField("public_key", "validation_not_unique", "This key is registered already, by you or by another account; a key belongs to one.")
	}
	return id, seq, err
}

// completeSSHKey normalizes the key and computes the fields that describe it. Values of the client for these fields
// are ignored. The fingerprint is padded base64, because the phone app compares it.
func completeSSHKey(w change) error {
	line, given := w.text("public_key")
	if !given {
		delete(w.set, "fingerprint")
		return nil
	}
	key, err := record.ParseSSHKey(line)
	if err != nil {
		return api.BadField("public_key", "validation_invalid_value", "Must be one public key on one line, as in a .pub file, without options: %s.",
			strings.TrimPrefix(err.Error(), "parse ssh key: "))
	}
	comment, given := w.set["comment"]
	maps.Copy(w.set, key.Fields())
	if given {
		w.set["comment"] = comment
	}
	return nil
}

// listSSHKeys answers with the active keys of the caller in the format of authorized_keys.
func (s *Records) listSSHKeys(w http.ResponseWriter, r *http.Request, who api.Caller) error {
	c, _ := s.API.Collection("ssh_keys")
	var text []byte
	err := s.API.Ask(r.Context(), who.Key(), func(db dbx.Builder, _ uint64) error {
		q := query.Query{Filter: `is_active = true && (expires_at = "" || expires_at > @now)`, Sort: "created", PerPage: 1000, SkipTotal: true}
		found, err := query.List(r.Context(), db, Catalogue, c, who.Request(), q)
		for _, key := range found.Items {
			line, _ := key.Get("public_key").(string)
			text = append(append(text, line...), '\n')
		}
		return err
	})
	if err != nil {
		return err
	}
	return api.Write(w, http.StatusOK, "text/plain; charset=utf-8", text)
}
