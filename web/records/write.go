package records

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// change is a create, an update or a delete that the rules allow, with checked fields.
type change struct {
	handlers.Command
	caller        api.Caller
	c             collection
	id            string
	set           map[string]json.RawMessage // the writable fields of the body, normalized
	isNew         bool
	old           query.Record   // the stored record
	createdFields map[string]any // in place of old, for a record that the same batch created
	token         *string        // receives the token that the system makes for a new record; nil in a batch
}

func (s *Records) createRecord(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var token string
	return s.writeRecord(w, r, caller, &token, func(c collection, body map[string]json.RawMessage) (string, uint64,
		error) {
		return s.create(r.Context(), caller, c, body, nil, &token)
	})
}

func (s *Records) updateRecord(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	return s.writeRecord(w, r, caller, new(string), func(c collection, body map[string]json.RawMessage) (string, uint64,
		error) {
		return s.update(r.Context(), caller, c, r.PathValue("id"), body, nil)
	})
}

// writeRecord answers with the record that write has created or updated. If write sets token, the answer has it.
func (s *Records) writeRecord(
	w http.ResponseWriter, r *http.Request, caller api.Caller, token *string,
	write func(collection, map[string]json.RawMessage) (string, uint64, error),
) error {
	c, err := s.collectionOf(r)
	if err != nil {
		return err
	}
	if err := s.checkQuery(r, caller, c); err != nil {
		return err
	}
	body, err := api.ReadObject(r)
	if err != nil {
		return err
	}
	id, seq, err := write(c, body)
	if err != nil {
		return err
	}
	if *token == "" {
		return s.API.AnswerWritten(w, r, caller, c.Collection, id, seq)
	}
	if err := s.API.Model.Wait(r.Context(), seq); err != nil {
		return err
	}
	found, err := s.API.View(r, caller, c.Collection, id)
	if err != nil {
		return err
	}
	var answer map[string]any
	if err := json.Unmarshal(found.AppendJSON(nil), &answer); err != nil {
		return err
	}
	answer[tokenField] = *token
	return api.WriteJSON(w, http.StatusOK, answer)
}

// tokenField is the field with the token that the system makes for a new record. No record shows it.
const tokenField = "token"

// tokenOf returns a handler that replaces the token of a record, for callers who may change the record.
func (s *Records) tokenOf(name string) func(http.ResponseWriter, *http.Request, api.Caller) error {
	return func(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
		made, err := s.RenewToken(r.Context(), caller, name, r.PathValue("id"))
		if err != nil {
			return err
		}
		return api.WriteJSON(w, http.StatusOK, made)
	}
}

// RenewToken replaces the token of a webhook or of a target, for a caller who may change the record.
func (s *Records) RenewToken(ctx context.Context, caller api.Caller, name, id string) (made record.NewToken,
	err error) {
	c, err := s.collectionNamed(name)
	if err != nil {
		return made, err
	}
	w, err := s.changeOf(ctx, caller, c, id, c.Update, nil)
	if err != nil {
		return made, err
	}
	made, seq, err := s.Channels.RenewToken(ctx, channel.RenewToken{Command: w.Command, Collection: name, Record: id})
	if err == nil {
		err = s.API.Model.Wait(ctx, seq)
	}
	return made, err
}

func (s *Records) deleteRecord(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	c, err := s.collectionOf(r)
	if err != nil {
		return err
	}
	seq, err := s.remove(r.Context(), caller, c, r.PathValue("id"), nil)
	if err == nil {
		err = s.API.Model.Wait(r.Context(), seq)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// checkQuery refuses an invalid query before anything is written, because the answer could not be built.
func (s *Records) checkQuery(r *http.Request, caller api.Caller, c collection) error {
	if r.URL.RawQuery == "" {
		return nil
	}
	if _, err := s.API.View(r, caller, c.Collection, ""); !errors.Is(err, query.ErrNotFound) {
		return err
	}
	return nil
}

// create sends a create. fresh are the records that the same batch has created. token receives the token that the
// system makes for the record.
func (s *Records) create(ctx context.Context, caller api.Caller, c collection, body map[string]json.RawMessage,
	fresh createdRecords, token *string) (string, uint64, error) {
	if c.Create == nil && !caller.Superuser() || c.write.create == nil {
		return "", 0, api.Forbidden("Only superusers can perform this action.")
	}
	id, err := clientID(body)
	if err != nil {
		return "", 0, err
	}
	w := change{Command: handlers.Command{Actor: caller.Actor()}, caller: caller, c: c, id: id, isNew: true,
		token: token}
	if w.set, err = checkFields(c, body); err != nil {
		return "", 0, err
	}
	w.defaultUser()
	if err := checkRequired(caller, c, w.set, true); err != nil {
		return "", 0, err
	}
	values := decodeValues(w.set)
	// The read models do not hold the batch's own records yet, so checkID does not find them.
	if other := fresh.of(c.ID, id); other != nil && other["chat"] != values["chat"] {
		return "", 0, api.BadField("id", "validation_not_unique", "The id is taken.")
	}
	var allowed bool
	err = s.API.Model.View(ctx, func(db dbx.Builder, _ uint64) error {
		if err := s.checkRelations(ctx, db, c, w.set, caller.Request(), fresh); err != nil {
			return err
		}
		allowed, err = query.AllowedNew(ctx, db, s.API.Catalogue, c.Collection, values, c.Create, caller.Request())
		return err
	})
	if err != nil {
		return "", 0, err
	}
	if isCreator := c.inCreatedChat && fresh.has("chats", textValue(w.set["chat"])); !allowed && !isCreator {
		return "", 0, api.BadRequest("Failed to create record.")
	}
	id, seq, err := c.write.create(s, ctx, w)
	if err == nil && seq == 0 { // an existing record may belong to another account by now
		fresh.add(c.ID, id, decodeValues(w.set))
	}
	return id, seq, err
}

// update sends an update. fresh are the records that the same batch has created.
func (s *Records) update(ctx context.Context, caller api.Caller, c collection, id string,
	body map[string]json.RawMessage,
	fresh createdRecords) (string, uint64, error) {
	if c.write.update == nil {
		return "", 0, api.Forbidden("Only superusers can perform this action.")
	}
	w, err := s.changeOf(ctx, caller, c, id, c.Update, fresh)
	if err != nil {
		return "", 0, err
	}
	if w.set, err = checkFields(c, body); err != nil {
		return "", 0, err
	}
	if err := checkRequired(caller, c, w.set, false); err != nil {
		return "", 0, err
	}
	err = s.API.Model.View(ctx, func(db dbx.Builder, _ uint64) error {
		return s.checkRelations(ctx, db, c, w.changed(), caller.Request(), fresh)
	})
	if err != nil {
		return "", 0, err
	}
	return c.write.update(s, ctx, w)
}

func (s *Records) remove(ctx context.Context, caller api.Caller, c collection, id string,
	fresh createdRecords) (uint64, error) {
	if c.write.remove == nil {
		return 0, api.Forbidden("Only superusers can perform this action.")
	}
	w, err := s.changeOf(ctx, caller, c, id, c.Delete, fresh)
	if err != nil {
		return 0, err
	}
	_, seq, err := c.write.remove(s, ctx, w)
	return seq, err
}

// changeOf returns a change of an existing record. It returns a not-found error if the caller may not view or change
// the record, as in PocketBase.
func (s *Records) changeOf(ctx context.Context, caller api.Caller, c collection, id string, rule *string,
	fresh createdRecords) (w change, err error) {
	w = change{Command: handlers.Command{Actor: caller.Actor()}, caller: caller, c: c, id: id,
		createdFields: fresh.of(c.ID, id)}
	if w.createdFields == nil {
		w.old, err = s.API.FindChangeable(ctx, caller, c.Collection, id, rule)
		return w, err
	}
	if rule == nil && !caller.Superuser() {
		return w, api.Forbidden("Only superusers can perform this action.")
	}
	return w, s.API.Model.View(ctx, func(db dbx.Builder, _ uint64) error {
		allowed, err := query.AllowedNew(ctx, db, s.API.Catalogue, c.Collection, w.createdFields, rule, caller.Request())
		if err == nil && !allowed {
			err = api.NotFound()
		}
		return err
	})
}

// clientID is the id that the client chose for a new record, empty if it chose none.
func clientID(body map[string]json.RawMessage) (string, error) {
	raw, given := body["id"]
	if !given {
		return "", nil
	}
	var id string
	if json.Unmarshal(raw, &id) != nil {
		return "", api.BadField("id", "validation_invalid_type", "want a text")
	}
	if id == "" {
		return "", nil
	}
	if _, err := events.ParseID(id); err != nil {
		return "", api.BadField("id", "validation_match_invalid", "want 1 to %d letters, digits, _ or -", events.MaxID)
	}
	return id, nil
}

// defaultUser sets the caller as the user of a record without one.
func (w change) defaultUser() {
	if f, ok := w.c.Field("user"); ok && !f.ReadOnly && !w.c.ofAllUsers && textValue(w.set["user"]) == "" {
		w.set["user"] = api.MustJSON(w.caller.Owner())
	}
}

// changed are the fields with a new value.
func (w change) changed() map[string]json.RawMessage {
	changed := map[string]json.RawMessage{}
	for name, value := range w.set {
		if !sameJSON(value, api.MustJSON(w.oldValue(name))) {
			changed[name] = value
		}
	}
	return changed
}

// text returns a text of the given fields, and whether it was given.
func (w change) text(name string) (value string, ok bool) {
	raw, ok := w.set[name]
	return strings.TrimSpace(textValue(raw)), ok
}

// newText returns a text of the record after the change.
func (w change) newText(name string) string {
	if raw, given := w.set[name]; given {
		return textValue(raw)
	}
	return w.oldText(name)
}

// oldValue returns a field of the record before the change.
func (w change) oldValue(name string) any {
	if w.createdFields != nil {
		return w.createdFields[name]
	}
	return w.old.Get(name)
}

func (w change) oldText(name string) string {
	text, _ := w.oldValue(name).(string)
	return text
}

// createdRecords are the fields of the records that a batch has created, by collection and id.
type createdRecords map[string]map[string]any

func (c createdRecords) add(collection, id string, fields map[string]any) {
	if c != nil {
		c[collection+"/"+id] = fields
	}
}

func (c createdRecords) of(collection, id string) map[string]any { return c[collection+"/"+id] }
func (c createdRecords) has(collection, id string) bool          { return c.of(collection, id) != nil }

// Create creates a record as a POST of the API does, and returns its id once the read models hold it.
func (s *Records) Create(ctx context.Context, caller api.Caller, collection string,
	fields map[string]any) (id string, err error) {
	id, _, err = s.CreateWithToken(ctx, caller, collection, fields)
	return id, err
}

// CreateWithToken is Create for a record that may get a token, which it returns too.
func (s *Records) CreateWithToken(ctx context.Context, caller api.Caller, collection string,
	fields map[string]any) (id, token string, err error) {
	c, err := s.collectionNamed(collection)
	if err != nil {
		return "", "", err
	}
	id, seq, err := s.create(ctx, caller, c, bodyOf(fields), nil, &token)
	if err != nil {
		return "", "", err
	}
	return id, token, s.API.Model.Wait(ctx, seq)
}

// Update updates a record as a PATCH of the API does, and returns once the read models hold the change.
func (s *Records) Update(ctx context.Context, caller api.Caller, collection, id string, fields map[string]any) error {
	c, err := s.collectionNamed(collection)
	if err != nil {
		return err
	}
	_, seq, err := s.update(ctx, caller, c, id, bodyOf(fields), nil)
	if err != nil {
		return err
	}
	return s.API.Model.Wait(ctx, seq)
}

// Delete deletes a record as a DELETE of the API does, and returns once the read models hold the change.
func (s *Records) Delete(ctx context.Context, caller api.Caller, collection, id string) error {
	c, err := s.collectionNamed(collection)
	if err != nil {
		return err
	}
	seq, err := s.remove(ctx, caller, c, id, nil)
	if err != nil {
		return err
	}
	return s.API.Model.Wait(ctx, seq)
}

func bodyOf(fields map[string]any) map[string]json.RawMessage {
	body := map[string]json.RawMessage{}
	for name, value := range fields {
		body[name] = api.MustJSON(value)
	}
	return body
}
