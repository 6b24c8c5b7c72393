package record

import (
	"encoding/json"
	"fmt"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
)

// Kind is the kind of a field's values, in PocketBase's words.
type Kind string

const (
	Text     Kind = "text"
	Email    Kind = "email"
	Number   Kind = "number"
	Bool     Kind = "bool"
	JSON     Kind = "json"
	Date     Kind = "date"
	Autodate Kind = "autodate"
	Select   Kind = "select"
	Relation Kind = "relation"
	Secret   Kind = "secret" // a text that is stored among the secrets, and never in the record
)

// Dollars is the unit of costs.
const Dollars = "US dollars"

// Field is one field of a collection.
type Field struct {
	Name     string
	Kind     Kind
	Label    string // for people; empty for the name
	About    string // a sentence for people and for the API's description; empty for that of the kind
	Example  string // of a value
	Unit     string // of a number, such as Dollars; empty for none
	Relation string // of a relation: the name of the collection it points to
	Values   []string
	Choices  map[string]string // of a select: what a value means, if that is not clear; also of the empty one
	Required bool
	ReadOnly bool    // only PocketCoder sets it
	Shown    bool    // clients may set it, but a form only shows it
	Computed bool    // PocketCoder sets it: a client may leave it out, even if it is required
	Nullable bool    // shown as null while it is empty
	Derived  bool    // the read models compute it: it is not stored
	Lines    bool    // a text of several lines
	Texts    bool    // a JSON list of texts: a form shows each in a line
	Pairs    bool    // a JSON object of texts: a form shows each as a line NAME=VALUE
	Parts    []Field // the values of a JSON object: a form shows each
	Absent   string  // text of a part that its object does not have
	Missing  string  // a text that a record has which was stored before the type had the field
	Hidden   bool    // it is stored, and shown to no client
	Admins   bool    // only administrators and the operator see it
	// Assistant describes the field to the model, which may set it by a tool; empty for a field that it may not set.
	Assistant string
	Argument  bool // it is part of a command, and not stored
	Switch    bool // the record has no effect while it is false: enable and disable set it
	Detail    bool // lists leave it out
}

// Settable reports whether a person sets the field.
func (f Field) Settable() bool {
	return !f.ReadOnly && !f.Derived && !f.Hidden && !f.Shown && !f.Argument && !f.Computed
}

// Title is the label of the field, or its name with blanks.
func (f Field) Title() string {
	if f.Label != "" {
		return f.Label
	}
	return strings.ReplaceAll(f.Name, "_", " ")
}

// PartText returns a part of an object as a person writes it.
func (f Field) PartText(object string) string {
	var parts Values
	_ = json.Unmarshal([]byte(object), &parts) // anything else has no parts
	value, has := parts[f.Name]
	if text := ""; json.Unmarshal(value, &text) == nil {
		return text
	}
	if has {
		return string(value)
	}
	return f.Absent
}

// PartName is the name of a part of the field in a form.
func (f Field) PartName(part Field) string { return f.Name + "." + part.Name }

// setParts returns an object with the parts that texts names, as a person wrote them. An empty text removes a part.
func (f Field) setParts(object []byte, texts map[string]string) (map[string]any, error) {
	all := map[string]any{}
	_ = json.Unmarshal(object, &all) // anything else has no parts
	for _, part := range f.Parts {
		text, given := texts[part.Name]
		value, err := part.Parse(text, "")
		if err != nil {
			return nil, err
		}
		if given {
			all[part.Name] = value
		}
		if given && text == "" {
			delete(all, part.Name)
		}
	}
	return all, nil
}

// ParseTexts returns the values of the fields that a person wrote as texts. before returns the stored value of a field.
// written gets the name of a field, or the PartName of a part, and its stored text. It returns the new text, and false
// if the person wrote none. parse returns the value of the text of a whole field.
func ParseTexts(fields []Field, before func(Field) string, written func(name, before string) (string, bool),
	parse func(f Field, text string) (any, error)) (map[string]any, error) {
	set := map[string]any{}
	for _, f := range fields {
		old, parts := before(f), map[string]string{}
		for _, part := range f.Parts {
			if text, given := written(f.PartName(part), part.PartText(old)); given {
				parts[part.Name] = text
			}
		}
		text, given := written(f.Name, old)
		var value any
		var err error
		switch {
		case len(parts) > 0:
			value, err = f.setParts([]byte(old), parts)
		case given:
			value, err = parse(f, text)
		default:
			continue
		}
		if err != nil {
			return nil, err
		}
		set[f.Name] = value
	}
	return set, nil
}

// Fault is what is wrong with the value of a field: a code of PocketBase, and a sentence.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (f Fault) Error() string { return f.Message }

// maxValue limits the value of a field in bytes.
const maxValue = 1 << 20

// CodeTooLarge is the code of a Fault of a value that is larger than the limit.
const CodeTooLarge = "validation_json_size_limit"

func tooLarge(what string, size int) Fault {
	return Fault{CodeTooLarge, fmt.Sprintf("%s has %d bytes. The limit is %d bytes.", what, size, maxValue)}
}

// Normalize returns a value of the field as it is stored. null becomes the empty value of the kind, but a number stays
// null, because the temperature of a model can be 0. Errors are Faults.
func (f Field) Normalize(value json.RawMessage) (json.RawMessage, error) {
	null := string(value) == "null"
	switch f.Kind {
	case JSON:
		if len(value) > maxValue {
			return nil, tooLarge("The value", len(value))
		}
		if levels := events.Levels(value); levels > events.MaxLevels {
			return nil, Fault{"validation_json_levels_limit",
				fmt.Sprintf("The value nests %d levels; at most %d are accepted.", levels, events.MaxLevels)}
		}
		return value, nil
	case Bool:
		var v bool
		if !null && json.Unmarshal(value, &v) != nil {
			return nil, Fault{"validation_invalid_type", "Must be true or false."}
		}
		return json.Marshal(v)
	case Number:
		var v *float64
		if json.Unmarshal(value, &v) != nil {
			return nil, Fault{"validation_not_a_number", "Must be a number."}
		}
		return json.Marshal(v)
	}
	var v string
	if !null && json.Unmarshal(value, &v) != nil {
		return nil, Fault{"validation_invalid_type", "Must be a text."}
	}
	return f.normalizeText(v)
}

func (f Field) normalizeText(v string) (json.RawMessage, error) {
	if len(v) > maxValue {
		return nil, tooLarge("The text", len(v))
	}
	if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
		return nil, Fault{"validation_max_text_constraint", "Must be UTF-8 without NUL."}
	}
	if v == "" {
		return json.Marshal(v)
	}
	switch f.Kind {
	case Select:
		if !slices.Contains(f.Values, v) {
			return nil, Fault{"validation_invalid_value", "Must be one of " + strings.Join(f.Values, ", ") + "."}
		}
	case Relation:
		if _, err := events.ParseID(v); err != nil {
			return nil, Fault{"validation_missing_rel_records",
				"Failed to find all relation records with the provided ids."}
		}
	case Email:
		if a, err := mail.ParseAddress(v); err != nil || a.Address != v {
			return nil, Fault{"validation_is_email", "Must be a valid email address."}
		}
	case Date:
		at, ok := parseTime(v)
		if !ok {
			return nil, Fault{"validation_invalid_date", "Must be a valid date."}
		}
		return json.Marshal(at.UTC().Format(events.TimeFormat))
	}
	return json.Marshal(v)
}

// Parse returns the value that a person wrote as text. A list or an object has a line for each of its entries. zone is
// that of times; see ParseTime.
func (f Field) Parse(text, zone string) (any, error) {
	switch {
	case f.Texts || f.Pairs:
		return f.parseLines(text)
	case f.Kind == Date:
		if _, err := ParseDate(text); err == nil {
			return text, nil // as the API writes it
		}
		return ParseTime(f.Name, text, zone)
	case f.Kind == Bool:
		return text == "true", nil
	case text == "" && (f.Kind == Number || f.Kind == JSON):
		return nil, nil
	case f.Kind == Number:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, Invalid(f.Name, "%s: must be a number, not %.40q", f.Name, text)
		}
		return n, nil
	case f.Kind == JSON && !json.Valid([]byte(text)):
		return nil, Invalid(f.Name, "%s: must be JSON", f.Name)
	case f.Kind == JSON:
		return json.RawMessage(text), nil
	}
	return text, nil
}

// parseLines returns the list or the object that a person wrote in lines.
func (f Field) parseLines(text string) (any, error) {
	list, pairs := []string{}, map[string]string{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, ok := strings.Cut(line, "=")
		if f.Pairs && !ok {
			return nil, Invalid(f.Name, "%s: write NAME=VALUE in each line", f.Name)
		}
		list, pairs[strings.TrimSpace(name)] = append(list, line), strings.TrimSpace(value)
	}
	if f.Pairs {
		return pairs, nil
	}
	return list, nil
}

// ParseTime returns a time that a person wrote, as records hold it. zone is an IANA name; empty for the local one.
func ParseTime(field, text, zone string) (string, error) {
	if text == "" {
		return "", nil
	}
	in := time.Local
	if zone != "" {
		var err error
		if in, err = time.LoadLocation(zone); err != nil {
			return "", Invalid("time_zone", "time_zone: %.60q is not a time zone. Write an IANA name, such as Europe/Berlin.", zone)
		}
	}
	for _, layout := range []string{"2006-01-02 15:04", time.DateTime, "2006-01-02T15:04", time.RFC3339} {
		if at, err := time.ParseInLocation(layout, text, in); err == nil {
			return at.UTC().Format(events.TimeFormat), nil
		}
	}
	return "", Invalid(field, "%s: %.40q is not a time. Write it as 2026-12-24 09:00.", field, text)
}

// timeFormats are those clients send: PocketBase's, RFC 3339, and Dart's local time without a zone, taken as UTC.
var timeFormats = []string{events.TimeFormat, "2006-01-02 15:04:05Z07:00", time.RFC3339Nano, "2006-01-02T15:04:05",
	"2006-01-02 15:04:05", time.DateOnly}

// parseTime reads a time in any of the formats that clients send.
func parseTime(v string) (time.Time, bool) {
	for _, format := range timeFormats {
		if at, err := time.Parse(format, v); err == nil && at.Year() >= 0 && at.Year() <= 9999 {
			return at, true
		}
	}
	return time.Time{}, false
}
