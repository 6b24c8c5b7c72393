package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
)

// SaveRecord changes a record of a config collection, or makes it when New.
type SaveRecord struct {
	Command
	Collection string                     `json:"collection"`
	Record     string                     `json:"record,omitempty"` // for a new one made by the caller or empty
	Set        map[string]json.RawMessage `json:"set"`              // fields; others stay as they are
	New        bool                       `json:"new,omitempty"`
	Unique     []string                   `json:"unique,omitempty"` // fields which together no other record may have
	Upsert     bool                       `json:"upsert,omitempty"` // when New: the record that has them is changed instead
}

// DeleteRecord takes a config record away.
type DeleteRecord struct {
	Command
	Collection string `json:"collection"`
	Record     string `json:"record"`
}

// MaxRecord is the largest record, in bytes of its JSON.
const MaxRecord = 1 << 20

// collection is what decisions on its records need: all of them, because what is unique is so among all.
type collection struct {
	records map[string]record
	saved   map[string]saving // by command
}

type record struct {
	seq     uint64 // of its last change
	deleted bool
	fields  fields
}

type saving struct {
	record string
	seq    uint64
}

type fields map[string]json.RawMessage

func newCollection() *collection {
	return &collection{map[string]record{}, map[string]saving{}}
}

func (s *collection) apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.Saved:
		r := record{seq: e.Seq}
		if json.Unmarshal(d.Fields, &r.fields) == nil {
			s.records[e.Subject.ID] = r
		}
	case events.Deleted:
		s.records[e.Subject.ID] = record{seq: e.Seq, deleted: true}
	}
	if e.Cause != "" {
		s.saved[e.Cause] = saving{e.Subject.ID, e.Seq}
	}
}

func (h *Handlers) collection(ctx context.Context, name string) *folded {
	return h.collections.get(ctx, name, func() *folded {
		return fold(newCollection(), []string{events.ConfigSubject(name, "*", "*")})
	})
}

// SaveRecord carries out the command and gives the id of the record that was saved. A new record that exists already with
// the same fields is not saved again, nor is one in which nothing changes: seq is that of its last change.
func (h *Handlers) SaveRecord(ctx context.Context, c SaveRecord) (id string, seq uint64, err error) {
	if c.Record == "" && c.New {
		c.Record = events.NewID()
	}
	if err := checkRecordID(c.Collection, c.Record); err != nil {
		return "", 0, err
	}
	set, err := h.fields(c.Set)
	if err != nil {
		return "", 0, err
	}
	if _, given := set["active"]; c.New && !given && slices.Contains(ruleCollections, c.Collection) {
		set["active"] = json.RawMessage("true") // a rule that its author believes to be in force must be
	}
	f := h.collection(ctx, c.Collection)
	seq, err = h.carryOut(ctx, c.Command, f, func() ([]events.Event, uint64, error) {
		found, now, seq, err := f.state.(*collection).save(c, set)
		if id = found; err != nil || now == nil {
			return nil, seq, err
		}
		body, err := now.encode()
		if err != nil {
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

// DeleteRecord carries out the command. A record that is deleted already is not deleted again.
func (h *Handlers) DeleteRecord(ctx context.Context, c DeleteRecord) (seq uint64, err error) {
	if err := checkRecordID(c.Collection, c.Record); err != nil {
		return 0, err
	}
	f := h.collection(ctx, c.Collection)
	return h.carryOut(ctx, c.Command, f, func() ([]events.Event, uint64, error) {
		switch have, ok := f.state.(*collection).records[c.Record]; {
		case !ok:
			return nil, 0, refuse(NotFound, "there is no record %s in %s", c.Record, c.Collection)
		case have.deleted:
			return nil, have.seq, nil
		}
		e, err := events.NewConfig(c.Collection, c.Record, c.Actor, events.Deleted{})
		return []events.Event{e}, 0, err
	})
}

func checkRecordID(collection, record string) error {
	if _, err := events.ParseID(collection); err != nil {
		return refuseField(Invalid, "collection", "collection: %v", err)
	}
	if _, err := events.ParseID(record); err != nil {
		return refuseField(Invalid, "id", "id: %v", err)
	}
	return nil
}

// fields gives what a command sets as it will be stored: compact, without secrets.
func (h *Handlers) fields(set map[string]json.RawMessage) (fields, error) {
	clean := fields{}
	for name, value := range set {
		var b bytes.Buffer
		if !utf8.ValidString(name) || !utf8.Valid(value) || json.Compact(&b, value) != nil {
			return nil, refuseField(Invalid, name, "%q: the value is not JSON in UTF-8", name)
		}
		clean[name] = h.Log.Redactor().JSON(b.Bytes())
	}
	return clean, nil
}

// encode gives the fields as JSON, sorted by name.
func (f fields) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(f); err != nil {
		return nil, refuse(Invalid, "the record is not JSON: %v", err)
	}
	body := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if len(body) > MaxRecord {
		return nil, refuse(Invalid, "the record is %d bytes; the limit is %d", len(body), MaxRecord)
	}
	return body, nil
}

// save gives the record that is meant and its fields from now on, nil when it stays as it has been since seq.
func (s *collection) save(c SaveRecord, set fields) (id string, now fields, seq uint64, err error) {
	if earlier, ok := s.saved[c.ID]; ok {
		return earlier.record, nil, earlier.seq, nil
	}
	have, ok := s.records[c.Record]
	exists := ok && !have.deleted
	switch {
	case !exists && !c.New:
		return "", nil, 0, refuse(NotFound, "there is no record %s in %s", c.Record, c.Collection)
	case exists && c.New && maps.EqualFunc(have.fields, set, sameJSON):
		return c.Record, nil, have.seq, nil
	case exists && c.New:
		return "", nil, 0, refuseField(Conflict, "id", "id: record %s exists already with other fields", c.Record)
	}
	id, now = c.Record, have.with(set)
	if twin := s.twin(id, now, c.Unique); twin != "" {
		if !c.New || !c.Upsert {
			return "", nil, 0, refuseField(Conflict, c.Unique[0], "%s: another record has the same", strings.Join(c.Unique, ", "))
		}
		id, have = twin, s.records[twin]
		now = have.with(set)
	} else if !exists {
		return id, now, 0, nil
	}
	if maps.EqualFunc(have.fields, now, sameJSON) {
		return id, nil, have.seq, nil
	}
	return id, now, 0, nil
}

// with gives the record's fields with those of set in them.
func (r record) with(set fields) fields {
	now := fields{}
	maps.Copy(now, r.fields)
	maps.Copy(now, set)
	return now
}

// twin finds the other living record with the same values in all of the unique fields, the first of them by id.
func (s *collection) twin(id string, now fields, unique []string) string {
	if len(unique) == 0 {
		return ""
	}
	for _, other := range slices.Sorted(maps.Keys(s.records)) {
		r := s.records[other]
		differs := func(field string) bool { return !sameJSON(r.fields.value(field), now.value(field)) }
		if other != id && !r.deleted && !slices.ContainsFunc(unique, differs) {
			return other
		}
	}
	return ""
}

// value gives a field for comparison: one that is missing or null is as one that is empty.
func (f fields) value(name string) json.RawMessage {
	if v, ok := f[name]; ok && string(v) != "null" {
		return v
	}
	return json.RawMessage(`""`)
}

// sameJSON says whether two values are the same, however they are written.
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
