package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/pocketbase/dbx"

	"pocketcoder/web/query"
)

// anyRecord is what a record is described as; query writes records itself.
type anyRecord struct {
	ID             string         `json:"id"`
	CollectionID   string         `json:"collectionId"`
	CollectionName string         `json:"collectionName"`
	Created        string         `json:"created"` // 2006-01-02 15:04:05.000Z
	Updated        string         `json:"updated"` // moves forward with every change
	Expand         map[string]any `json:"expand,omitempty"`
}

// collectionNamed returns the collection with a name, an alias or an id.
func (s *Server) collectionNamed(name string) (query.Collection, error) {
	c, ok := s.Catalogue.Get(name)
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

// view gives one record as the caller may see it, with what the query asks for.
func (s *Server) view(r *http.Request, who caller, c query.Collection, id string) (found query.Record, err error) {
	q, err := queryOf(r)
	if err != nil {
		return found, err
	}
	err = s.question(r.Context(), who, q, func(db dbx.Builder, _ uint64) error {
		found, err = query.View(r.Context(), db, s.Catalogue, c, id, who.request(r, nil), q)
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
	c, _ := s.Catalogue.Get(collection)
	err = s.Model.View(ctx, func(db dbx.Builder, _ uint64) error {
		found, err = query.View(ctx, db, s.Catalogue, c, id, who.request(r, nil), query.Query{})
		return err
	})
	if errors.Is(err, query.ErrNotFound) {
		err = notFound()
	}
	return found, err
}

// changeable returns a record that the caller may view and that a rule lets them change. What they may not change is not
// found, as PocketBase has it. body is what the rule may ask about the request's body.
func (s *Server) changeable(r *http.Request, who caller, c query.Collection, id string, rule *string, body map[string]any) (found query.Record, err error) {
	if rule == nil && !who.superuser() {
		return found, forbidden("Only superusers can perform this action.")
	}
	ctx, request := r.Context(), who.request(r, body)
	err = s.Model.View(ctx, func(db dbx.Builder, _ uint64) (err error) {
		if found, err = query.View(ctx, db, s.Catalogue, c, id, request, query.Query{}); err != nil {
			return err
		}
		allowed, err := query.Allowed(ctx, db, s.Catalogue, c, id, rule, request)
		if err == nil && !allowed {
			err = notFound()
		}
		return err
	})
	return found, err
}

// mayWrite returns a problem if the caller may not do with a chat what its owner may.
func (s *Server) mayWrite(r *http.Request, who caller, chat string) error {
	c, _ := s.Catalogue.Get("chats")
	_, err := s.changeable(r, who, c, chat, c.Delete, nil)
	return err
}

// personOf lets in who may do with a chat what its owner may, but no agent.
func (s *Server) personOf(r *http.Request, who caller, chat string) error {
	if err := s.mayWrite(r, who, chat); err != nil {
		return err
	}
	if who.is("agent") {
		return forbidden("This is for people to do.")
	}
	return nil
}

// answerWritten answers with the record once the read models hold its event.
func (s *Server) answerWritten(w http.ResponseWriter, r *http.Request, who caller, c query.Collection, id string, seq uint64) error {
	if err := s.Model.Wait(r.Context(), seq); err != nil {
		return err
	}
	found, err := s.view(r, who, c, id)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, found)
}
