package records

import (
	"net/http"

	"github.com/pocketbase/dbx"

	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

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
