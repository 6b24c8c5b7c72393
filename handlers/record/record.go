// Package record carries out the commands on configuration records: rules, agents, models, devices, SSH keys and every
// other record that is stored by field. Each type of records is a Type, which stands beside the decisions that use it.
//
// The rest follows from the types. Open takes them, and Types returns them:
//   - Save and Delete check each command, whether it comes over the API or from a tool of the model: the fields and
//     their kinds, who may do it (Access, Assistants), and what must be unique.
//   - A form or a list shows a type by Title and About, and a field by its Label (see Field.Title), About, Unit,
//     Example, Values with their Choices, and whether its kind is Secret.
//   - The API and its description show all fields but those that are Hidden or a Secret. The argument of a command that
//     is no field of the record is an Argument. A tool of the model has the fields with a text for the Assistant.
//   - The secret of a record goes to the bucket SECRETS, as its SecretStorage says.
//
// Promises: what is unique is so among all records of a collection, also when several processes save at the same time.
// A record that is saved unchanged is not stored again. No event has a secret of a type.
//
// It must not know any type, nor the SQL tables that show the records.
package record

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
)

// Records carries out the commands on configuration records, and reads them. It is safe for concurrent use.
type Records struct {
	Log     *log.Log
	Secrets *secret.Store // of types with secrets
	types   []Type

	collections handlers.Folds[*collection] // by name
	states      sync.Map                    // folds of State, by name
}

// Types returns the types in the order of Open.
func (h *Records) Types() []Type { return h.types }

// Open returns the records of the types.
func Open(l *log.Log, types ...Type) *Records {
	return &Records{Log: l, types: types}
}

// State returns the fold of a state that follows from the records of several collections. Each name has one fold, which
// start makes.
func State[S handlers.State](h *Records, name string, start func() *handlers.Fold[S]) *handlers.Fold[S] {
	fold, _ := h.states.LoadOrStore(name, start())
	return fold.(*handlers.Fold[S])
}

// NewToken is a secret that is shown only once.
type NewToken struct {
	Token string `json:"token"`
}

// Save changes a record of a config collection, or makes it when New.
type Save struct {
	handlers.Command
	Collection string                     `json:"collection"`
	Record     string                     `json:"record,omitempty"` // for a new one made by the caller or empty
	Set        map[string]json.RawMessage `json:"set"`              // fields; others stay as they are
	New        bool                       `json:"new,omitempty"`
	// when New: the record with the same unique fields is changed instead
	Upsert bool   `json:"upsert,omitempty"`
	Role   string `json:"-"` // of the account that gives the command
	// Unique are the unique fields in place of those of the type.
	Unique []string `json:"-"`
	Found  any      `json:"-"` // what Prepare has read, for Complete
	// Fixed are further fields, which PocketCoder itself sets: read-only ones too.
	Fixed Values `json:"-"`
	// Trusted says that the caller has checked what the account may do, and may set read-only fields.
	Trusted bool `json:"-"`
	// Made receives the secret that PocketCoder makes for a new record; nil if the caller does not need it.
	Made *string `json:"-"`
}

// Delete deletes a record.
type Delete struct {
	handlers.Command
	Collection string `json:"collection"`
	Record     string `json:"record"`
	Role       string `json:"-"` // of the account that gives the command
	Trusted    bool   `json:"-"` // the caller has checked what the account may do
}

// MaxRecord is the largest record, in bytes of its JSON.
const MaxRecord = 1 << 20

// Limits of what an account has made of a collection, in records and in bytes of their JSON. Much is read as a whole,
// such as all devices for a notification.
const (
	maxRecords = 1000
	maxBytes   = 4 << 20
)

// collection is the state of a collection. Decisions on a record need all of its records, because fields can be unique.
type collection struct {
	records map[string]record
	saved   map[string]saveResult // by command
}

type record struct {
	seq     uint64 // of its last change
	deleted bool
	fields  Values
	author  string // creator
	size    int    // in bytes of its JSON
}

type saveResult struct {
	record string
	seq    uint64
}

// Fields encodes values that always have a JSON form.
func Fields(values map[string]any) map[string]json.RawMessage {
	set := make(map[string]json.RawMessage, len(values))
	for name, value := range values {
		body, err := json.Marshal(value)
		if err != nil {
			panic(err)
		}
		set[name] = body
	}
	return set
}

func newCollection() *collection {
	return &collection{map[string]record{}, map[string]saveResult{}}
}

func (s *collection) Apply(e events.Event) {
	d, err := events.Decode(e)
	if e.Malformed != nil && e.Subject.ID != "" {
		// what it holds is not known any more
		s.records[e.Subject.ID] = record{seq: e.Seq, author: s.records[e.Subject.ID].author}
	}
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.Saved:
		r := record{seq: e.Seq, author: e.Actor, size: len(d.Fields)}
		if have, ok := s.records[e.Subject.ID]; ok && !have.deleted {
			r.author = have.author
		}
		if json.Unmarshal(d.Fields, &r.fields) == nil {
			s.records[e.Subject.ID] = r
		}
	case events.Deleted:
		s.records[e.Subject.ID] = record{seq: e.Seq, deleted: true}
	}
	if e.Cause != "" {
		s.saved[e.Cause] = saveResult{e.Subject.ID, e.Seq}
	}
}

func (h *Records) collection(ctx context.Context, name string) *handlers.Fold[*collection] {
	return h.collections.Get(ctx, name, func() *handlers.Fold[*collection] {
		// most events about schedules are runs, which change no record
		return handlers.NewFoldFrom(newCollection(), handlers.Only(events.ConfigSubject(name, "*", events.Saved{}.Kind()),
			events.ConfigSubject(name, "*", events.Deleted{}.Kind())), events.ConfigSubject(name, "*", "*"))
	})
}

// StoredRecord is a record of a collection, read as a T.
type StoredRecord[T any] struct {
	ID    string
	Seq   uint64 // of its last change
	Value T
}

// All returns the records of a collection that are not deleted, the one that changed last at the end. It leaves out
// records that are not a T.
func All[T any](ctx context.Context, h *Records, name string) (all []StoredRecord[T], err error) {
	err = h.collection(ctx, name).Read(ctx, h.Log, func(s *collection) error {
		for id, r := range s.records {
			if v, err := Read[T](r.fields); err == nil && !r.deleted {
				all = append(all, StoredRecord[T]{id, r.seq, v})
			}
		}
		return nil
	})
	slices.SortFunc(all, func(a, b StoredRecord[T]) int { return cmp.Compare(a.Seq, b.Seq) })
	return all, err
}

// One returns a record that is not deleted, and whether there is one.
func One[T any](ctx context.Context, h *Records, name, id string) (value T, found bool, err error) {
	all, err := All[T](ctx, h, name)
	for _, r := range all {
		if r.ID == id {
			return r.Value, true, err
		}
	}
	return value, false, err
}

// SavedBy returns the record that a command has stored, and the sequence: 0 if the command stored none.
func (h *Records) SavedBy(ctx context.Context, name, command string) (id string, seq uint64, err error) {
	err = h.collection(ctx, name).Read(ctx, h.Log, func(s *collection) error {
		id, seq = s.saved[command].record, s.saved[command].seq
		return nil
	})
	return id, seq, err
}

// Deleted returns the ids of the records of a collection whose deletion is in the log. It does not return a record that
// is missing because its event cannot be read or has not been replicated.
func (h *Records) Deleted(ctx context.Context, name string) (all map[string]bool, err error) {
	all = map[string]bool{}
	err = h.collection(ctx, name).Read(ctx, h.Log, func(s *collection) error {
		for id, r := range s.records {
			if r.deleted {
				all[id] = true
			}
		}
		return nil
	})
	return all, err
}

// List converts each record of a collection. The records are in the order of their last changes. The list is never nil,
// so that it is [] in JSON.
func List[T, V any](ctx context.Context, h *Records, name string, convert func(StoredRecord[T]) V) ([]V,
	error) {
	all, err := All[T](ctx, h, name)
	list := make([]V, len(all))
	for i, r := range all {
		list[i] = convert(r)
	}
	return list, err
}

// Save returns the id of the record. If nothing changes, or a new record with the same fields already exists, Save
// stores nothing and returns the sequence of the record's last change.
func (h *Records) Save(ctx context.Context, c Save) (id string, seq uint64, err error) {
	if c.Record == "" && c.New {
		c.Record = events.NewID()
	}
	t, err := h.typeOf(c.Collection)
	if err != nil {
		return "", 0, err
	}
	set, err := compactFields(c.Set)
	if err == nil && !c.Trusted && !bySystem(c.Actor) {
		err = t.refuseAccess(c.Command, c.Role, map[bool]string{true: "create", false: "update"}[c.New])
	}
	if err == nil {
		set, err = t.check(c, set)
	}
	if err != nil {
		return "", 0, err
	}
	if c.New && t.ID != nil {
		c.Record = t.ID(set)
	}
	if err := checkRecordID(c.Record); err != nil {
		return "", 0, err
	}
	text, err := t.takeSecret(c, set)
	if err != nil {
		return "", 0, err
	}
	if c.Actor == events.ActorSystem {
		set = h.redacted(set)
	} else if err := h.refuseSecrets(set); err != nil {
		return "", 0, err
	}
	if t.Prepare != nil {
		if err := t.Prepare(ctx, h, &c); err != nil {
			return "", 0, err
		}
	}
	if text == "" {
		return h.save(ctx, t, c, set, "")
	}
	err = h.storeSecret(ctx, t, c.Record, []byte(text), func() (err error) {
		id, seq, err = h.save(ctx, t, c, set, text)
		return err
	})
	if err == nil && t.Secret.Changed != "" && !t.Secret.Renewed {
		seq, err = h.announce(ctx, t, handlers.Command{Actor: c.Actor}, id)
	}
	if c.Made != nil && t.Secret.Made {
		*c.Made = text
	}
	return id, seq, err
}

// save stores the fields of a command, which are checked. text is the secret that the command sets.
func (h *Records) save(ctx context.Context, t Type, c Save, set Values, text string) (id string, seq uint64,
	err error) {
	seq, err = h.collection(ctx, c.Collection).Execute(ctx, h.Log, c.Command,
		func(s *collection) ([]events.Event, uint64, error) {
			found, now, seq, err := s.save(t, c, set, text)
			if id = found; err != nil || now == nil {
				return nil, seq, err
			}
			body, err := now.encode()
			if err != nil {
				return nil, 0, err
			}
			if err := s.refuseMore(id, c.Actor, len(body)); err != nil {
				return nil, 0, err
			}
			e, err := events.NewConfig(c.Collection, id, c.Actor, events.Saved{Fields: body})
			return []events.Event{e}, 0, err
		})
	if err != nil {
		return "", 0, err
	}
	return id, seq, nil
}

// Delete deletes a record and its secret. It has no effect on a record that is deleted already.
func (h *Records) Delete(ctx context.Context, c Delete) (seq uint64, err error) {
	t, err := h.typeOf(c.Collection)
	if err == nil {
		err = checkRecordID(c.Record)
	}
	if err == nil && !c.Trusted && !bySystem(c.Actor) {
		err = t.refuseAccess(c.Command, c.Role, "delete")
	}
	if err != nil {
		return 0, err
	}
	seq, err = h.collection(ctx, c.Collection).Execute(ctx, h.Log, c.Command,
		func(s *collection) ([]events.Event, uint64, error) {
			switch have, ok := s.records[c.Record]; {
			case !ok:
				return nil, 0, handlers.Refuse(handlers.NotFound, "there is no record %s in %s", c.Record, c.Collection)
			case have.deleted:
				return nil, have.seq, nil
			}
			e, err := events.NewConfig(c.Collection, c.Record, c.Actor, events.Deleted{})
			return []events.Event{e}, 0, err
		})
	if err != nil {
		return 0, err
	}
	if !t.Secret.Later {
		err = h.deleteSecret(ctx, t, c.Record)
	}
	if err != nil || t.Deleted == nil {
		return seq, err
	}
	later, err := t.Deleted(ctx, h, c)
	return max(seq, later), err
}

// Edit changes a record to what edit returns: fields to set, in which secrets are replaced. Edit stores nothing if they
// are nil or change nothing. have is nil for a record that is deleted, does not exist or cannot be read.
func (h *Records) Edit(ctx context.Context, by handlers.Command, name, id string,
	edit func(have Values) (set map[string]any, err error)) error {
	_, err := h.collection(ctx, name).Execute(ctx, h.Log, by, func(s *collection) ([]events.Event, uint64, error) {
		have := s.records[id]
		values, err := edit(have.fields)
		if err != nil || values == nil {
			return nil, have.seq, err
		}
		set, err := compactFields(Fields(values))
		if err != nil {
			return nil, 0, err
		}
		now := have.fields.With(h.redacted(set))
		if maps.EqualFunc(have.fields, now, sameJSON) {
			return nil, have.seq, nil
		}
		body, err := now.encode()
		if err != nil {
			return nil, 0, err
		}
		e, err := events.NewConfig(name, id, by.Actor, events.Saved{Fields: body})
		return []events.Event{e}, 0, err
	})
	return err
}

// typeOf refuses a collection that no type has.
func (h *Records) typeOf(collection string) (Type, error) {
	i := slices.IndexFunc(h.types, func(t Type) bool { return t.Name == collection })
	if i < 0 {
		return Type{}, Invalid("collection", "collection: there is no collection %.80q of configuration records.", collection)
	}
	return h.types[i], nil
}

func checkRecordID(record string) error {
	if _, err := events.ParseID(record); err != nil {
		return handlers.RefuseField(handlers.Invalid, "id", "id: %v", err)
	}
	return nil
}

// refuseSecrets refuses fields that the log would store otherwise.
func (h *Records) refuseSecrets(set Values) error {
	for name, value := range set {
		body, err := events.Encode(Values{name: value})
		if err == nil {
			err = handlers.RefuseSecret(h.Log.Redactor(), name, body)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// redacted returns fields without secrets. They are what the system found, such as a note that an agent wrote as a
// file. No account sent them, so none could leave the secret out.
func (h *Records) redacted(set Values) Values {
	clean := Values{}
	for name, value := range set {
		clean[name] = h.Log.Redactor().JSON(value)
	}
	return clean
}

// compactFields returns the fields of a command in their stored form.
func compactFields(set map[string]json.RawMessage) (Values, error) {
	clean := Values{}
	for name, value := range set {
		var b bytes.Buffer
		if !utf8.ValidString(name) || !utf8.Valid(value) || json.Compact(&b, value) != nil {
			return nil, handlers.RefuseField(handlers.Invalid, name, "%q: the value is not JSON in UTF-8", name)
		}
		clean[name] = b.Bytes()
	}
	return clean, nil
}

// encode returns the fields as JSON, sorted by name.
func (f Values) encode() ([]byte, error) {
	body, err := events.Encode(f)
	if err != nil {
		return nil, handlers.Refuse(handlers.Invalid, "the record is not JSON: %v", err)
	}
	if len(body) > MaxRecord {
		return nil, handlers.Refuse(handlers.Invalid, "the record is %d bytes; the limit is %d", len(body), MaxRecord)
	}
	return body, nil
}

// save returns the id of the record to save and its new fields. They are nil if nothing changes; seq is then the
// sequence of the record's last change.
func (s *collection) save(t Type, c Save, set Values, text string) (id string, now Values, seq uint64, err error) {
	if earlier, ok := s.saved[c.ID]; ok {
		return earlier.record, nil, earlier.seq, nil
	}
	have, ok := s.records[c.Record]
	exists := ok && !have.deleted
	if !exists && !c.New {
		return "", nil, 0, handlers.Refuse(handlers.NotFound, "there is no record %s in %s", c.Record, c.Collection)
	}
	if set, err = s.complete(t, c, set, text); err != nil {
		return "", nil, 0, err
	}
	switch {
	case exists && c.New && maps.EqualFunc(have.fields, set, sameJSON):
		return c.Record, nil, have.seq, nil
	case exists && c.New:
		return "", nil, 0, handlers.RefuseField(handlers.Conflict, "id", "id: record %s exists already with other fields",
			c.Record)
	}
	id, now = c.Record, have.fields.With(set)
	unique := t.Unique
	if c.Unique != nil {
		unique = c.Unique
	}
	if twin := s.twin(id, have.fields, now, unique); twin != "" {
		if !c.New || !c.Upsert && !t.Upsert {
			if t.Taken != nil {
				return "", nil, 0, t.Taken
			}
			return "", nil, 0, handlers.RefuseField(handlers.Conflict, unique[0], "%s: another record has the same value",
				strings.Join(unique, ", "))
		}
		id, have = twin, s.records[twin]
		now = have.fields.With(set)
	} else if !exists {
		return id, now, 0, nil
	}
	if maps.EqualFunc(have.fields, now, sameJSON) {
		return id, nil, have.seq, nil
	}
	return id, now, 0, nil
}

// refuseMore refuses a record of size bytes if the account that makes it, or has made it, then has more than the
// limits.
func (s *collection) refuseMore(id, actor string, size int) error {
	if have, ok := s.records[id]; ok && !have.deleted {
		actor = have.author
	}
	if !strings.HasPrefix(actor, events.UserActor("")) {
		return nil
	}
	count := 1
	for other, r := range s.records {
		if other != id && !r.deleted && r.author == actor {
			count, size = count+1, size+r.size
		}
	}
	if count > maxRecords || size > maxBytes {
		return handlers.Refuse(handlers.Invalid, "an account can store at most %d records in a collection, and %d MiB: delete other records first", maxRecords, maxBytes>>20)
	}
	return nil
}

// differs reports whether one of the named fields has another value in other.
func (f Values) differs(other Values, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return !sameJSON(f.Value(name), other.Value(name)) })
}

// twin returns the first other record, by id, that has the same values in all of the unique fields. A record whose
// unique fields stay as they are needs no check.
func (s *collection) twin(id string, old, now Values, unique []string) string {
	if len(unique) == 0 || old != nil && !now.differs(old, unique) {
		return ""
	}
	for _, other := range slices.Sorted(maps.Keys(s.records)) {
		r := s.records[other]
		if other != id && !r.deleted && !now.differs(r.fields, unique) {
			return other
		}
	}
	return ""
}

// sameJSON reports whether two values are equal in any notation.
func sameJSON(a, b json.RawMessage) bool {
	return bytes.Equal(a, b) || bytes.Equal(canonical(a), canonical(b))
}

func canonical(v json.RawMessage) []byte {
	d := json.NewDecoder(bytes.NewReader(v))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return v
	}
	b, err := json.Marshal(value)
	if err != nil {
		return v
	}
	return b
}

// ParseDate reads a date of a record, or one that a client wrote in RFC 3339.
func ParseDate(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse("2006-01-02 15:04:05Z", s); err == nil { // it takes fractions too
		return t, nil
	}
	return time.Parse(time.RFC3339, s)
}
