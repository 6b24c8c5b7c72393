package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/mail"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// bookkeeping is what clients send along with a record they have cached: it says nothing about what they want.
var bookkeeping = []string{
	"id", "collectionId", "collectionName", "expand", "created", "updated", // of every record
	"synced", "isNew", "deleted", "noSync", "retryCount", // of the offline cache of the Dart client
}

// secretFields are taken for accounts and are never shown.
var secretFields = []string{"password", "passwordConfirm", "oldPassword", "emailVisibility"}

// wishes are fields that say how a change is meant; no record holds them.
var wishes = map[string][]query.Field{
	"permissions": {
		number("expires_in"),  // seconds for which an approval holds
		text("shown_command"), // what the client showed: see handlers.Shown
		text("shown_request"),
	},
}

// Limits of a field's value, in bytes.
const (
	maxText = 1 << 20
	maxRaw  = 1 << 20
)

// checkFields gives the fields of a body that the collection has and clients may write, each of its kind. What a record
// holds besides and cannot be written is left out: clients send back what they were shown.
func checkFields(c query.Collection, body map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	set, faults := map[string]json.RawMessage{}, map[string]any{}
	for name, value := range body {
		f, known := c.Field(name)
		if i := slices.IndexFunc(wishes[c.ID], func(w query.Field) bool { return w.Name == name }); i >= 0 {
			f, known = wishes[c.ID][i], true
		}
		switch {
		case slices.Contains(bookkeeping, name), known && f.ReadOnly:
		case c.Type == "auth" && slices.Contains(secretFields, name):
			set[name] = value
		case !known:
			faults[name] = api.Fault{Code: "validation_unknown_field", Message: "There is no such field."}
		default:
			normal, wrong := checkField(f, value)
			if wrong.Code != "" {
				faults[name] = wrong
			}
			set[name] = normal
		}
	}
	return set, faulty(faults)
}

func faulty(faults map[string]any) error {
	if len(faults) == 0 {
		return nil
	}
	return api.Problem{Status: 400, Message: "Failed to validate the submitted data.", Data: faults}
}

// checkField gives the value as it is stored; null is the kind's empty value.
func checkField(f query.Field, value json.RawMessage) (json.RawMessage, api.Fault) {
	null := string(value) == "null"
	switch f.Kind {
	case query.JSON:
		if len(value) > maxRaw {
			return nil, api.Fault{Code: "validation_json_size_limit", Message: "The value is too large."}
		}
		return value, api.Fault{}
	case query.Bool:
		var v bool
		if !null && json.Unmarshal(value, &v) != nil {
			return nil, api.Fault{Code: "validation_invalid_type", Message: "Must be true or false."}
		}
		return api.MustJSON(v), api.Fault{}
	case query.Number:
		var v float64
		if !null && json.Unmarshal(value, &v) != nil {
			return nil, api.Fault{Code: "validation_not_a_number", Message: "Must be a number."}
		}
		return api.MustJSON(v), api.Fault{}
	}
	var v string
	if !null && json.Unmarshal(value, &v) != nil {
		return nil, api.Fault{Code: "validation_invalid_type", Message: "Must be a text."}
	}
	return checkText(f, v)
}

func checkText(f query.Field, v string) (json.RawMessage, api.Fault) {
	if len(v) > maxText || !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
		return nil, api.Fault{Code: "validation_max_text_constraint", Message: "Must be at most 1 MiB of UTF-8 without NUL."}
	}
	if v == "" {
		return api.MustJSON(v), api.Fault{}
	}
	switch f.Kind {
	case query.Select:
		if !slices.Contains(f.Values, v) {
			return nil, api.Fault{Code: "validation_invalid_value", Message: "Must be one of " + strings.Join(f.Values, ", ") + "."}
		}
	case query.Relation:
		if _, err := events.ParseID(v); err != nil {
			return nil, api.Fault{Code: "validation_missing_rel_records", Message: "Failed to find all relation records with the provided ids."}
		}
	case query.Email:
		if a, err := mail.ParseAddress(v); err != nil || a.Address != v {
			return nil, api.Fault{Code: "validation_is_email", Message: "Must be a valid email address."}
		}
	case query.Date:
		at, ok := parseTime(v)
		if !ok {
			return nil, api.Fault{Code: "validation_invalid_date", Message: "Must be a valid date."}
		}
		return api.MustJSON(at.UTC().Format(projections.TimeFormat)), api.Fault{}
	}
	return api.MustJSON(v), api.Fault{}
}

// timeFormats are those clients send: PocketBase's, RFC 3339, and Dart's local time without a zone, taken as UTC.
var timeFormats = []string{projections.TimeFormat, "2006-01-02 15:04:05Z07:00", time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", time.DateOnly}

func parseTime(v string) (time.Time, bool) {
	for _, format := range timeFormats {
		if at, err := time.Parse(format, v); err == nil && at.Year() >= 0 && at.Year() <= 9999 {
			return at, true
		}
	}
	return time.Time{}, false
}

// checkRequired refuses a required field that is empty, and one that is missing from something new.
func checkRequired(c query.Collection, set map[string]json.RawMessage, isNew bool) error {
	faults := map[string]any{}
	for _, f := range c.Fields {
		value, given := set[f.Name]
		if f.Required && !f.ReadOnly && !computed(c, f) && (given || isNew) && (!given || string(value) == `""` || string(value) == "null") {
			faults[f.Name] = api.Fault{Code: "validation_required", Message: "Cannot be blank."}
		}
	}
	return faulty(faults)
}

// checkRelations refuses a relation to a record that the caller may not view, as if it were not there.
func checkRelations(ctx context.Context, db dbx.Builder, c query.Collection, set map[string]json.RawMessage, req query.Request, fresh created) error {
	for _, f := range c.Fields {
		to := textOf(set[f.Name])
		if f.Kind != query.Relation || to == "" || fresh.has(f.Relation, to) {
			continue
		}
		related, ok := Catalogue.Get(f.Relation)
		if !ok {
			return api.BadField(f.Name, "validation_missing_rel_records", "there is no collection %s", f.Relation)
		}
		_, err := query.View(ctx, db, Catalogue, related, to, req, query.Query{Fields: "id"})
		if errors.Is(err, query.ErrNotFound) {
			return api.BadField(f.Name, "validation_missing_rel_records", "Failed to find all relation records with the provided ids.")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plain gives the values as rules see them.
func plain(set map[string]json.RawMessage) map[string]any {
	values := map[string]any{}
	for name, raw := range set {
		var v any
		_ = json.Unmarshal(raw, &v) // it was parsed before
		values[name] = v
	}
	return values
}

func textOf(raw json.RawMessage) string {
	var v string
	_ = json.Unmarshal(raw, &v) // anything else is no text
	return v
}

// sameJSON says whether two values are the same whatever their spaces and order of keys.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
