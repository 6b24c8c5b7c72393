package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"pocketcoder/handlers/record"
	"pocketcoder/web/query"
)

// Form is the JSON Schema of a value, as in OpenAPI 3.1. The zero value admits any value.
type Form struct {
	Ref         string          `json:"$ref,omitempty"`
	Type        string          `json:"type,omitempty"`
	Format      string          `json:"format,omitempty"`
	Description string          `json:"description,omitempty"`
	Enum        []string        `json:"enum,omitempty"`
	Properties  map[string]Form `json:"properties,omitempty"`
	Required    []string        `json:"required,omitempty"`
	Additional  *Form           `json:"additionalProperties,omitempty"`
	Items       *Form           `json:"items,omitempty"`
	AnyOf       []Form          `json:"anyOf,omitempty"`
	ReadOnly    bool            `json:"readOnly,omitempty"`
}

// Resolve returns the named form that f refers to, or f.
func (c Components) Resolve(f Form) Form {
	if f.Ref != "" {
		return c.Schemas[strings.TrimPrefix(f.Ref, FormRef)]
	}
	return f
}

// FormRef is the beginning of a reference to a named form.
const FormRef = "#/components/schemas/"

// forms collects named forms: those of Go types, and those of collections.
type forms struct {
	named map[string]Form
	types map[string]reflect.Type
}

// of returns the form of the JSON of a value of the type.
func (f *forms) of(t reflect.Type) Form {
	switch t {
	case reflect.TypeFor[time.Time]():
		return Form{Type: "string", Format: "date-time"}
	case reflect.TypeFor[json.RawMessage]():
		return Form{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return f.of(t.Elem())
	case reflect.String:
		return Form{Type: "string"}
	case reflect.Bool:
		return Form{Type: "boolean"}
	case reflect.Float32, reflect.Float64:
		return Form{Type: "number"}
	case reflect.Slice, reflect.Array:
		items := f.of(t.Elem())
		return Form{Type: "array", Items: &items}
	case reflect.Map:
		values := f.of(t.Elem())
		return Form{Type: "object", Additional: &values}
	case reflect.Struct:
		return f.struct_(t)
	case reflect.Interface:
		return Form{}
	}
	if t.ConvertibleTo(reflect.TypeFor[int64]()) {
		return Form{Type: "integer"}
	}
	panic(fmt.Sprintf("the description has no form for %s", t)) // of a body in the route table
}

// struct_ returns a reference to the form of a struct type, or the form itself if the type has no name. The form has
// the name of the type, or the name in the tag "form" of a field _. The tag keeps the public name when the type is
// renamed.
func (f *forms) struct_(t reflect.Type) Form {
	if t.Name() == "" {
		return f.fields(t)
	}
	name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
	if blank, ok := t.FieldByName("_"); ok {
		name = blank.Tag.Get("form")
	}
	switch known := f.types[name]; {
	case known == nil:
		f.types[name] = t // before its fields, which may lead back to it
		f.named[name] = f.fields(t)
	case known != t:
		panic(fmt.Sprintf("the description needs two names for %s and %s", known, t))
	}
	return Form{Ref: FormRef + name}
}

// fields returns the form of a struct. The tag "about" describes a field.
func (f *forms) fields(t reflect.Type) Form {
	form := Form{Type: "object", Properties: map[string]Form{}}
	for _, field := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" || field.Anonymous && name == "" {
			continue // encoding/json puts the fields of an embedded struct in its place, and so does VisibleFields
		}
		name = cmp.Or(name, field.Name)
		value := f.of(field.Type)
		value.Description = cmp.Or(field.Tag.Get("about"), value.Description)
		form.Properties[name] = value
		if !strings.Contains(options, "omit") && field.Type.Kind() != reflect.Pointer {
			form.Required = append(form.Required, name)
		}
	}
	return form
}

// addCollections adds the form of the records of each collection. AnyRecord stands for any of them.
func (f *forms) addCollections(catalogue query.Catalogue) {
	base := f.fields(reflect.TypeFor[AnyRecord]())
	record := Form{Type: "object", Description: "a record of one of the collections"}
	for _, c := range catalogue {
		f.named[c.Name] = recordForm(base, c)
		record.AnyOf = append(record.AnyOf, Form{Ref: FormRef + c.Name})
	}
	f.of(reflect.TypeFor[AnyRecord]())
	f.named["AnyRecord"] = record
}

// recordForm is the form of a record in an answer without the parameter fields.
func recordForm(base Form, c query.Collection) Form {
	form := Form{Type: "object", Properties: maps.Clone(base.Properties), Required: slices.Clone(base.Required)}
	form.Properties["collectionName"] = Form{Type: "string", Enum: collectionNames(c)}
	for _, field := range c.Fields {
		form.Properties[field.Name] = FieldForm(field.Field)
		if !field.Nullable && !field.Admins {
			form.Required = append(form.Required, field.Name)
		}
	}
	return form
}

// FieldForm is the form of a field's value.
func FieldForm(field record.Field) Form {
	form := Form{Type: "string", ReadOnly: field.ReadOnly}
	switch field.Kind {
	case record.Email:
		form.Format = "email"
	case record.Number:
		form.Type = "number"
	case record.Bool:
		form.Type = "boolean"
	case record.JSON:
		form.Type = ""
	case record.Date:
		form.Description = `UTC, as 2006-01-02 15:04:05.000Z; "" for none`
	case record.Relation:
		form.Description = "id of a record of " + field.Relation
	case record.Select:
		form.Enum = append([]string{""}, field.Values...)
	}
	if field.Unit != "" {
		form.Description = "In " + field.Unit + "."
	}
	form.Description = cmp.Or(field.About, form.Description)
	if field.Admins {
		form.Description = strings.TrimSpace(form.Description + " Only administrators see it.")
	}
	return form
}

// collectionNames are the names under which collections are served.
func collectionNames(of ...query.Collection) (names []string) {
	for _, c := range of {
		names = append(names, c.Name)
		if c.Alias != "" {
			names = append(names, c.Alias)
		}
	}
	return names
}
