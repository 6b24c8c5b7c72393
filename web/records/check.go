package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	"github.com/pocketbase/dbx"

	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// ignoredFields are fields that clients send along with a cached record. They are ignored.
var ignoredFields = []string{
	"id", "collectionId", "collectionName", "expand", "created", "updated", // of every record
	"synced", "isNew", "deleted", "noSync", "retryCount", // of the offline cache of the Dart client
}

// checkFields returns the values that a body sets, normalized. It ignores read-only fields, because clients send back
// whole records.
func checkFields(c collection, body map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	set, faults := map[string]json.RawMessage{}, map[string]any{}
	for name, value := range body {
		stored, known := c.Field(name)
		f := stored.Field
		if i := slices.IndexFunc(c.options, func(o record.Field) bool { return o.Name == name }); i >= 0 {
			f, known = c.options[i], true
		}
		switch {
		case slices.Contains(ignoredFields, name), known && f.ReadOnly:
		case c.madeToken && name == tokenField:
			set[name] = value // the command refuses it with the reason
		case !known:
			faults[name] = api.Fault{Code: "validation_unknown_field", Message: "There is no such field."}
		default:
			normal, err := f.Normalize(value)
			if wrong := (record.Fault{}); errors.As(err, &wrong) {
				if wrong.Code == record.CodeTooLarge { // it has a status of its own
					return nil, query.Invalid{Field: name, Code: wrong.Code, Message: wrong.Message}
				}
				faults[name] = wrong
			}
			set[name] = normal
		}
	}
	return set, invalidFields(faults)
}

func invalidFields(faults map[string]any) error {
	if len(faults) == 0 {
		return nil
	}
	return api.Problem{Status: 400, Message: "Failed to validate the submitted data.", Data: faults}
}

// checkRequired refuses an empty required field, and a new record without one. Records of the operator have no user.
func checkRequired(caller api.Caller, c collection, set map[string]json.RawMessage, isNew bool) error {
	faults := map[string]any{}
	for _, f := range c.Fields {
		if f.Name == "user" && caller.IsOperator {
			continue
		}
		value, given := set[f.Name]
		if f.Required && !f.ReadOnly && !f.Computed && (given || isNew) &&
			(!given || string(value) == `""` || string(value) == "null") {
			faults[f.Name] = api.Fault{Code: "validation_required", Message: "Cannot be blank."}
		}
	}
	return invalidFields(faults)
}

// checkRelations refuses a relation to a record that the caller may not view, as if there were no such record.
func (s *Records) checkRelations(ctx context.Context, db dbx.Builder, c collection, set map[string]json.RawMessage,
	req query.Request, fresh createdRecords) error {
	for _, f := range c.Fields {
		to := textValue(set[f.Name])
		if f.Kind != record.Relation || to == "" || fresh.has(f.Relation, to) {
			continue
		}
		related, ok := s.API.Catalogue.Get(f.Relation)
		if !ok {
			return api.BadField(f.Name, "validation_missing_rel_records", "there is no collection %s", f.Relation)
		}
		_, err := query.View(ctx, db, s.API.Catalogue, related, to, req, query.Query{Fields: "id"})
		if errors.Is(err, query.ErrNotFound) {
			return api.BadField(f.Name, "validation_missing_rel_records",
				"Failed to find all relation records with the provided ids.")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decodeValues decodes values for rules.
func decodeValues(set map[string]json.RawMessage) map[string]any {
	values := map[string]any{}
	for name, raw := range set {
		var v any
		_ = json.Unmarshal(raw, &v) // valid: it was parsed before
		values[name] = v
	}
	return values
}

func textValue(raw json.RawMessage) string {
	var v string
	_ = json.Unmarshal(raw, &v) // anything else is no text
	return v
}

// sameJSON reports whether two values are equal, regardless of spaces and the order of keys.
func sameJSON(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
