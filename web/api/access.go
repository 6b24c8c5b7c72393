package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers/project"
	"pocketcoder/web/query"
)

// Collection returns the collection with a name, an alias or an id.
func (s *Server) Collection(name string) (query.Collection, error) {
	c, ok := s.Catalogue.Get(name)
	if !ok {
		return c, Problem{Status: http.StatusNotFound, Message: "Missing or invalid collection context."}
	}
	return c, nil
}

// QueryOf reads the parameters of a list or a view.
func QueryOf(r *http.Request) (q query.Query, err error) {
	v := r.URL.Query()
	q = query.Query{Filter: v.Get("filter"), Sort: v.Get("sort"), Expand: v.Get("expand"), Fields: v.Get("fields")}
	for name, into := range map[string]*int{"page": &q.Page, "perPage": &q.PerPage} {
		if text := v.Get(name); text != "" {
			if *into, err = strconv.Atoi(text); err != nil || *into < 0 {
				return q, BadField(name, "validation_invalid_type", "want a number, got %q", Truncate(text, 40))
			}
		}
	}
	if text := v.Get("skipTotal"); text != "" {
		if q.SkipTotal, err = strconv.ParseBool(text); err != nil {
			return q, BadField("skipTotal", "validation_invalid_type", "want true or false, got %q", Truncate(text, 40))
		}
	}
	return q, nil
}

// View returns one record as the caller may view it, with the expansions and fields that the request names.
func (s *Server) View(r *http.Request, caller Caller, c query.Collection, id string) (found query.Record, err error) {
	read := func(db dbx.Builder, _ uint64) (err error) {
		found, err = s.ViewIn(db, r, caller, c, id)
		return err
	}
	if !r.URL.Query().Has("expand") {
		err = s.Model.View(r.Context(), read)
	} else { // an expansion can be slow
		err = s.SlowView(r.Context(), caller.Key(), read)
	}
	return found, err
}

// ViewIn is View with read models that are open already.
func (s *Server) ViewIn(db dbx.Builder, r *http.Request, caller Caller, c query.Collection,
	id string) (query.Record, error) {
	q, err := QueryOf(r)
	if err != nil {
		return query.Record{}, err
	}
	return query.View(r.Context(), db, s.Catalogue, c, id, caller.Request(), q)
}

// MayView returns a Problem if the caller may not view a record.
func (s *Server) MayView(ctx context.Context, caller Caller, collection, id string) error {
	_, err := s.Find(ctx, caller, collection, id)
	return err
}

// Find returns a record that the caller may view, with every field.
func (s *Server) Find(ctx context.Context, caller Caller, collection, id string) (found query.Record, err error) {
	c, _ := s.Catalogue.Get(collection)
	err = s.Model.View(ctx, func(db dbx.Builder, _ uint64) error {
		found, err = query.View(ctx, db, s.Catalogue, c, id, caller.Request(), query.Query{})
		return err
	})
	if errors.Is(err, query.ErrNotFound) {
		err = NotFound()
	}
	return found, err
}

// FindChangeable returns a record that the caller may view and that a rule lets them change. Otherwise the error is
// that the record is not found, as in PocketBase.
func (s *Server) FindChangeable(ctx context.Context, caller Caller, c query.Collection, id string,
	rule *string) (found query.Record, err error) {
	if rule == nil && !caller.Superuser() {
		return found, Forbidden("Only superusers can perform this action.")
	}
	request := caller.Request()
	err = s.Model.View(ctx, func(db dbx.Builder, _ uint64) (err error) {
		if found, err = query.View(ctx, db, s.Catalogue, c, id, request, query.Query{}); err != nil {
			return err
		}
		allowed, err := query.Allowed(ctx, db, s.Catalogue, c, id, rule, request)
		if err == nil && !allowed {
			err = NotFound()
		}
		return err
	})
	if errors.Is(err, query.ErrNotFound) {
		err = NotFound()
	}
	return found, err
}

// MayWrite returns a Problem if the caller may not do what the owner of a chat may do.
func (s *Server) MayWrite(r *http.Request, caller Caller, chat string) error {
	c, _ := s.Catalogue.Get("chats")
	_, err := s.FindChangeable(r.Context(), caller, c, chat, c.Delete)
	return err
}

// PersonMayWrite returns a Problem if MayWrite does, or if the caller is an agent.
func (s *Server) PersonMayWrite(r *http.Request, caller Caller, chat string) error {
	if err := s.MayWrite(r, caller, chat); err != nil {
		return err
	}
	if caller.Is("agent") {
		return Forbidden("Agent accounts may not do this.")
	}
	return nil
}

// SeesProject returns a Problem if the caller has no access to a project.
func (s *Server) SeesProject(ctx context.Context, caller Caller, id string) error {
	return s.MayView(ctx, caller, project.Collection, id)
}

// AnswerWritten answers with a record, once the read models hold the event with the sequence seq.
func (s *Server) AnswerWritten(w http.ResponseWriter, r *http.Request, caller Caller, c query.Collection, id string,
	seq uint64) error {
	if err := s.Model.Wait(r.Context(), seq); err != nil {
		return err
	}
	found, err := s.View(r, caller, c, id)
	if err != nil {
		return err
	}
	return WriteJSON(w, http.StatusOK, found)
}

// WhileAllowed returns the context of a long answer about a chat. The context ends with the login, and when may
// returns a Problem. may succeeded at the sequence since; it is called again when the chat may have a new owner, and
// when projects or their members change.
func (s *Server) WhileAllowed(r *http.Request, caller Caller, chat string, since uint64,
	may func() error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	for _, filter := range []string{events.ChatFilter(chat), events.ConfigSubject(project.Collection, "*", "*"),
		events.ConfigSubject(project.Members, "*", "*")} {
		go func() {
			defer cancel()
			s.followWhileAllowed(ctx, filter, since, may)
		}()
	}
	go func() {
		select {
		case <-s.Accounts.Ended(caller.Session):
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// allowedTries is how often in a row the log may be unreadable, a second apart. Then the answer ends, because it is
// unknown whether it is still allowed.
const allowedTries = 10

func (s *Server) followWhileAllowed(ctx context.Context, filter string, since uint64, may func() error) {
	for try := 0; try < allowedTries; try++ {
		err := s.Tail.Follow(ctx, since, filter, func(e events.Event) error {
			if err := s.StillAllowed(ctx, e, may); err != nil {
				return err
			}
			since, try = e.Seq, 0
			return nil
		}, func(uint64) error { return nil })
		if err == nil {
			return
		}
		if sleep.For(ctx, time.Second) != nil {
			return
		}
	}
}

// StillAllowed calls may again after an event that can change its answer. It returns events.ErrStop when the access
// has ended.
func (s *Server) StillAllowed(ctx context.Context, e events.Event, may func() error) error {
	if e.Subject.Scope != events.ScopeConfig && e.Subject.Kind != (events.ChatUpdated{}).Kind() &&
		e.Subject.Kind != (events.Deleted{}).Kind() {
		return nil
	}
	if err := s.Model.Wait(ctx, e.Seq); err != nil {
		return err
	}
	err := may()
	if errors.As(err, new(Problem)) {
		return events.ErrStop
	}
	return err
}
