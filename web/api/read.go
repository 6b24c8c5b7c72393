package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/pocketbase/dbx"

	"pocketcoder/web/query"
)

// What lists and single records are described as; records writes them itself.
type (
	page struct {
		Page       int         `json:"page"`
		PerPage    int         `json:"perPage"`
		TotalItems int         `json:"totalItems"` // -1 when they were not counted
		TotalPages int         `json:"totalPages"`
		Items      []anyRecord `json:"items"`
	}
	anyRecord struct {
		ID             string         `json:"id"`
		CollectionID   string         `json:"collectionId"`
		CollectionName string         `json:"collectionName"`
		Created        string         `json:"created"` // 2006-01-02 15:04:05.000Z
		Updated        string         `json:"updated"` // moves forward with every change
		Expand         map[string]any `json:"expand,omitempty"`
	}
)

// collectionOf finds the collection that a path names. The superusers are accounts like others.
func collectionOf(r *http.Request) (query.Collection, error) {
	return collectionNamed(r.PathValue("collection"))
}

func collectionNamed(name string) (query.Collection, error) {
	c, ok := catalogue.Get(name)
	if !ok {
		return c, problem{Status: http.StatusNotFound, Message: "Missing or invalid collection context."}
	}
	return c, nil
}

// queryOf reads the parameters of a list or a view.
func queryOf(r *http.Request) (q query.Query, err error) {
	v := r.URL.Query()
	q = query.Query{Filter: v.Get("filter"), Sort: v.Get("sort"), Expand: v.Get("expand"), Fields: v.Get("fields")}
	for name, into := range map[string]*int{"page": &q.Page, "perPage": &q.PerPage} {
		if text := v.Get(name); text != "" {
			if *into, err = strconv.Atoi(text); err != nil || *into < 0 {
				return q, badField(name, "validation_invalid_type", "want a number, got %q", shortened(text, 40))
			}
		}
	}
	if text := v.Get("skipTotal"); text != "" {
		if q.SkipTotal, err = strconv.ParseBool(text); err != nil {
			return q, badField("skipTotal", "validation_invalid_type", "want true or false, got %q", shortened(text, 40))
		}
	}
	return q, nil
}

func (s *Server) listRecords(w http.ResponseWriter, r *http.Request, who caller) error {
	c, err := collectionOf(r)
	if err != nil {
		return err
	}
	q, err := queryOf(r)
	if err != nil {
		return err
	}
	var found query.Page
	err = s.question(r.Context(), who, q, func(db dbx.Builder, _ uint64) error {
		found, err = query.List(r.Context(), db, catalogue, c, who.request(r, nil), q)
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, found)
}

func (s *Server) viewRecord(w http.ResponseWriter, r *http.Request, who caller) error {
	c, err := collectionOf(r)
	if err != nil {
		return err
	}
	found, err := s.view(r, who, c, r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, found)
}

// view gives one record as the caller may see it, with what the query asks for.
func (s *Server) view(r *http.Request, who caller, c query.Collection, id string) (found query.Record, err error) {
	q, err := queryOf(r)
	if err != nil {
		return found, err
	}
	err = s.question(r.Context(), who, q, func(db dbx.Builder, _ uint64) error {
		found, err = query.View(r.Context(), db, catalogue, c, id, who.request(r, nil), q)
		return err
	})
	return found, err
}

// question views the read models for a query. One in the client's own words can take long: it is of the account's share.
func (s *Server) question(ctx context.Context, who caller, q query.Query, fn func(db dbx.Builder, seq uint64) error) error {
	if q.Filter == "" && q.Sort == "" && q.Expand == "" {
		return s.Model.View(ctx, fn)
	}
	return s.ask(ctx, who.key(), fn)
}

// see says whether the caller may view a record: nil, or a problem.
func (s *Server) see(ctx context.Context, who caller, r *http.Request, collection, id string) error {
	_, err := s.seen(ctx, who, r, collection, id)
	return err
}

// seen gives a record the caller may view, with every field.
func (s *Server) seen(ctx context.Context, who caller, r *http.Request, collection, id string) (found query.Record, err error) {
	c, _ := catalogue.Get(collection)
	err = s.Model.View(ctx, func(db dbx.Builder, _ uint64) error {
		found, err = query.View(ctx, db, catalogue, c, id, who.request(r, nil), query.Query{})
		return err
	})
	if errors.Is(err, query.ErrNotFound) {
		err = notFound()
	}
	return found, err
}
