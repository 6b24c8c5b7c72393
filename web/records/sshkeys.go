package records

import (
	"context"
	"errors"
	"net/http"

	"github.com/pocketbase/dbx"

	"pocketcoder/handlers"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// saveSSHKey reports a duplicate fingerprint as an error of public_key.
func saveSSHKey(s *Records, ctx context.Context, w change) (string, uint64, error) {
	id, seq, err := saveRecord(s, ctx, w)
	if r := (handlers.Refused{}); errors.As(err, &r) && r.Code == handlers.Conflict && r.Field == "fingerprint" {
		return "", 0, api.BadField("public_key", "validation_not_unique",
			"This key is registered already, by you or by another account. A key belongs to one account.")
	}
	return id, seq, err
}

// listSSHKeys answers with the active keys of the caller in the format of authorized_keys.
func (s *Records) listSSHKeys(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	c, _ := s.API.Collection("ssh_keys")
	var text []byte
	err := s.API.SlowView(r.Context(), caller.Key(), func(db dbx.Builder, _ uint64) error {
		q := query.Query{Filter: `is_active = true && (expires_at = "" || expires_at > @now)`, Sort: "created",
			PerPage: 1000, SkipTotal: true}
		found, err := query.List(r.Context(), db, s.API.Catalogue, c, caller.Request(), q)
		for _, key := range found.Items {
			text = append(append(text, key.Text("public_key")...), '\n')
		}
		return err
	})
	if err != nil {
		return err
	}
	return api.Write(w, http.StatusOK, "text/plain; charset=utf-8", text)
}
