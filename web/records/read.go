package records

import (
	"net/http"
	"slices"

	"github.com/pocketbase/dbx"

	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// page describes a list in the OpenAPI description. Package query encodes lists itself.
type page struct {
	Page       int             `json:"page"`
	PerPage    int             `json:"perPage"`
	TotalItems int             `json:"totalItems"` // -1 when they were not counted
	TotalPages int             `json:"totalPages"`
	Items      []api.AnyRecord `json:"items"`
}

// collectionOf returns the collection that a path names.
func (s *Records) collectionOf(r *http.Request) (collection, error) {
	return s.collectionNamed(r.PathValue("collection"))
}

// collectionNamed returns the collection with a name, an alias or an id.
func (s *Records) collectionNamed(name string) (c collection, err error) {
	shown, err := s.API.Collection(name)
	if err != nil {
		return c, err
	}
	c = s.Collections[slices.IndexFunc(s.Collections, func(c collection) bool { return c.ID == shown.ID })]
	c.Collection = shown // with the alias as its name, if the caller uses it
	return c, nil
}

func (s *Records) listRecords(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	c, err := s.collectionOf(r)
	if err != nil {
		return err
	}
	q, err := api.QueryOf(r)
	if err != nil {
		return err
	}
	return s.API.AnswerSlowQuery(w, r, caller, func() (any, error) {
		var found query.Page
		err := s.API.Model.View(r.Context(), func(db dbx.Builder, _ uint64) error {
			found, err = query.List(r.Context(), db, s.API.Catalogue, c.Collection, caller.Request(), q)
			return err
		})
		return found, err
	})
}

func (s *Records) viewRecord(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	c, err := s.collectionOf(r)
	if err != nil {
		return err
	}
	found, err := s.API.View(r, caller, c.Collection, r.PathValue("id"))
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, found)
}
