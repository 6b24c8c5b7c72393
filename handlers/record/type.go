package record

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
)

// Type is a type of configuration records: all records of one collection.
type Type struct {
	Name  string // of the collection
	Alias string // second name of the collection in the API
	Title string // for people, such as Budgets
	About string // explains the title, such as: limits on the cost of a chat or of a day
	// Command is the command of the command line on the records, such as budget; empty for the name of the collection.
	Command string
	Fields  []Field
	Access
	Assistants Verbs // what the assistants of chats may do by their tools
	// Tool is the name of the tool with which they create a record, and ToolAbout describes it to the model; see ToolName.
	Tool, ToolAbout string
	AllUsers        bool // a record without a user is for all users; elsewhere it is of the account that makes it

	Unique []string // fields whose values together identify one record
	Upsert bool     // a new record with the same unique values changes the existing one
	Taken  error    // refuses another record with the same unique values; nil to name the fields
	// Internal says that only PocketCoder itself creates and changes the records.
	Internal bool
	// ID returns the id of a new record from its fields; nil for a random one, or that of the client.
	ID func(Values) string
	// Defaults are the values of a new record that does not set them.
	Defaults map[string]any
	// Complete sets fields that follow from others, and refuses fields that contradict each other; nil for none.
	Complete func(Change) error
	// CheckDelete refuses a deletion; nil for none.
	CheckDelete func(Deletion) error
	// Deleted deletes what belongs to a deleted record, and returns the sequence of the last event; nil for nothing.
	Deleted func(context.Context, *Records, Delete) (uint64, error)
	Secret  SecretStorage
	// Prepare changes a command before it is decided: it reads what is outside the collection; nil for none.
	Prepare func(context.Context, *Records, *Save) error
}

// Change is a Save that is being decided.
type Change struct {
	Save
	Set, Old Values // the fields to set, and the record's fields before; Old is nil for a new record
	Secret   string // that the command sets, "" for none
	all      *collection
}

// Deletion is a Delete that is being decided.
type Deletion struct {
	Delete
	Old Values // the record's fields
	all *collection
}

// Others returns the fields of the other records of the collection.
func (d Deletion) Others() []Values { return d.all.others(d.Record) }

// Admin reports whether an administrator or the system gives the command.
func (d Deletion) Admin() bool { return Save{Command: d.Command, Role: d.Role}.Admin() }

// Account returns the account that gives the command, "" for the system or the assistant of a chat.
func (d Deletion) Account() string { return Save{Command: d.Command}.Account() }

// Field returns the field with a name.
func (t Type) Field(name string) (Field, bool) {
	i := slices.IndexFunc(t.Fields, func(f Field) bool { return f.Name == name })
	if i < 0 {
		return Field{}, false
	}
	return t.Fields[i], true
}

// ToolName returns the name and the description of the tool of the model that creates a record.
func (t Type) ToolName() (name, description string) {
	return cmp.Or(t.Tool, "create_"+strings.ReplaceAll(t.CommandName(), "-", "_")),
		cmp.Or(t.ToolAbout, "Create a record of: "+t.Title+" ("+t.About+").")
}

// CommandName is the command of the command line on the records.
func (t Type) CommandName() string { return cmp.Or(t.Command, strings.ReplaceAll(t.Name, "_", "-")) }

// NameField is the field by which people name a record: name, or the first short text that they set; empty for none.
func (t Type) NameField() string {
	first := ""
	for _, f := range t.Fields {
		if f.Name == "name" {
			return f.Name
		}
		if first == "" && f.Kind == Text && !f.Lines && !f.Computed {
			first = f.Name
		}
	}
	return first
}

// Named reports whether people name the records of the type.
func (t Type) Named() bool { return t.NameField() != "" }

// Switch returns the field that says whether a record has effect.
func (t Type) Switch() (Field, bool) {
	i := slices.IndexFunc(t.Fields, func(f Field) bool { return f.Switch })
	if i < 0 {
		return Field{}, false
	}
	return t.Fields[i], true
}

// maxColumns is the number of fields that a list of records shows.
const maxColumns = 6

// Columns are the fields that a list of records shows.
func (t Type) Columns() (columns []Field) {
	for _, f := range t.Fields {
		long := f.Lines || f.Kind == JSON && !f.Texts || f.Detail || f.Shown
		if !long && !f.Hidden && !f.Argument && f.Kind != Secret && len(columns) < maxColumns {
			columns = append(columns, f)
		}
	}
	return columns
}

// check returns the fields that a command sets, as they are stored: those of PocketCoder's own code as they are, others
// normalized. It refuses a field that the type does not have or that the command may not set, and a value of another
// kind.
func (t Type) check(c Save, set Values) (Values, error) {
	checked := Values{}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		f, known := t.Field(name)
		switch {
		case t.Secret.Made && name == t.Secret.Field:
			return nil, Invalid(name, "PocketCoder makes the token. Leave the field out. The response to the creation has the "+
				"token, once.")
		case !known || f.Derived:
			return nil, Invalid(name, "%s: %s has no such field.", name, t.Name)
		case f.ReadOnly && !c.Trusted && !bySystem(c.Actor):
			return nil, Invalid(name, "%s: only PocketCoder itself sets this field.", name)
		}
		value, err := f.Normalize(set[name])
		if err != nil {
			return nil, Invalid(name, "%s: %v", name, err)
		}
		if checked[name] = value; c.Trusted || bySystem(c.Actor) {
			checked[name] = set[name]
		}
	}
	return checked, nil
}

// refuseBlank refuses a record without a required field, as far as a command sets it.
func (c Change) refuseBlank(t Type) error {
	for _, f := range t.Fields {
		_, given := c.Set[f.Name]
		// a record without an account is of the operator
		if f.Required && f.Name != "user" && (given || c.New) && string(c.Now().Value(f.Name)) == `""` {
			return Invalid(f.Name, "%s: Cannot be blank.", f.Name)
		}
	}
	return nil
}

// account returns the account that gives the command. ok is false for a command of the system.
func (c Save) account() (id string, ok bool) { return strings.CutPrefix(c.Actor, events.UserActor("")) }

// Account returns the account that gives the command, "" for the system or the assistant of a chat.
func (c Save) Account() string {
	if id, ok := c.account(); ok {
		return id
	}
	return ""
}

// ByAccount reports whether an account gives the command, and not the system or the assistant of a chat.
func (c Save) ByAccount() bool {
	_, byAccount := c.account()
	return byAccount
}

// Admin reports whether an administrator or the system gives the command.
func (c Save) Admin() bool { return c.Role == account.Admin || !c.ByAccount() }

// Stamp sets a field to the account that gives the command.
func (c Change) Stamp(field string) {
	if id, ok := c.account(); ok {
		c.Put(field, id)
	}
}

// Put sets a field to a value that always has a JSON form.
func (c Change) Put(field string, value any) { maps.Copy(c.Set, Fields(map[string]any{field: value})) }

// Now returns the fields of the record after the change.
func (c Change) Now() Values { return c.Old.With(c.Set) }

// Text returns a text of the record after the change, "" for any other value.
func (c Change) Text(field string) string { return c.Now().Text(field) }

// Changes reports whether one of the fields gets another value.
func (c Change) Changes(names ...string) bool { return c.Old.differs(c.Now(), names) }

// Others returns the fields of the other records of the collection.
func (c Change) Others() []Values { return c.all.others(c.Record) }

// others returns the fields of all records but one.
func (s *collection) others(record string) (others []Values) {
	for id, r := range s.records {
		if id != record && !r.deleted {
			others = append(others, r.fields)
		}
	}
	return others
}

// ShownDefinition is the field with which a command decides: the definition that was shown. It is not stored.
const ShownDefinition = "shown_definition"

// CheckShown refuses to decide about a record that differs from the one that was shown. A new record is defined by the
// command itself, and some records have no definition. what names the record in a sentence.
func (c Change) CheckShown(what, shown string) error {
	switch now := c.Old.Text("definition"); {
	case c.New || now == "" || now == shown:
		return nil
	case shown == "":
		return Invalid(ShownDefinition, "Must be the definition of the %s that was shown.", what)
	}
	return handlers.RefuseField(handlers.Conflict, ShownDefinition,
		"The %s has changed since it was shown. Nothing was decided. Look at it again.", what)
}

// Invalid refuses a value of a field.
func Invalid(field, format string, args ...any) error {
	return handlers.RefuseField(handlers.Invalid, field, format, args...)
}

// maxFields is the largest size of the fields in one command of an account that is no administrator: the log stores
// every version for ever.
const maxFields = 64 << 10

// CheckSize refuses more than maxFields.
func (c Save) CheckSize() error {
	size := 0
	for name, value := range c.Set {
		size += len(name) + len(value)
	}
	if size > maxFields && !c.Admin() {
		return handlers.Refuse(handlers.Invalid, "The fields of this record have %d KiB, but only administrators may store more than %d KiB.",
			(size+1023)>>10, maxFields>>10)
	}
	return nil
}

// complete returns the fields that a command sets, with those that follow from them. It refuses what the account may
// not set.
func (s *collection) complete(t Type, c Save, set Values, text string) (Values, error) {
	ch := Change{Save: c, Set: maps.Clone(set), Secret: text, all: s}
	if !c.New {
		ch.Old = s.records[c.Record].fields
	}
	if err := c.CheckSize(); err != nil {
		return nil, err
	}
	if c.ByAccount() && !c.New && ch.Changes("user") {
		return nil, Invalid("user", "The owner of a record cannot change.")
	}
	for name, value := range t.Defaults {
		if _, given := ch.Set[name]; c.New && !given {
			ch.Put(name, value)
		}
	}
	maps.Copy(ch.Set, c.Fixed)
	if t.Complete != nil {
		if err := t.Complete(ch); err != nil {
			return nil, err
		}
	}
	for _, f := range t.Fields {
		if f.Argument {
			delete(ch.Set, f.Name)
		}
	}
	if c.Trusted || bySystem(c.Actor) {
		return ch.Set, nil
	}
	return ch.Set, ch.refuseBlank(t)
}

// Values are the fields of a record, by name.
type Values map[string]json.RawMessage

// With returns the values with those of set in them.
func (v Values) With(set Values) Values {
	now := Values{}
	maps.Copy(now, v)
	maps.Copy(now, set)
	return now
}

// Value returns a field. A missing or null field equals an empty one.
func (v Values) Value(name string) json.RawMessage {
	if value, ok := v[name]; ok && string(value) != "null" {
		return value
	}
	return json.RawMessage(`""`)
}

// Text returns a text, "" for any other value.
func (v Values) Text(name string) (text string) {
	_ = json.Unmarshal(v[name], &text) // anything else is no text
	return text
}

// Number returns a number, 0 for any other value.
func (v Values) Number(name string) (number float64) {
	_ = json.Unmarshal(v[name], &number) // anything else is no number
	return number
}

// Read returns the values as a T.
func Read[T any](values Values) (v T, err error) {
	body, err := json.Marshal(values)
	if err == nil {
		err = json.Unmarshal(body, &v)
	}
	return v, err
}
