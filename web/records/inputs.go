package records

import (
	"slices"

	"pocketcoder/web/api"
	"pocketcoder/web/query/schema"
)

// inputSuffix follows the name of a collection in the name of its input form.
const inputSuffix = "Input"

// inputForms are the forms of the records that clients send, by name.
func inputForms() map[string]api.Form {
	forms := map[string]api.Form{}
	for _, c := range Catalogue {
		if writable(c) {
			forms[c.Name+inputSuffix] = inputForm(c)
		}
	}
	return forms
}

// writable reports whether clients may write any field of a collection.
func writable(c schema.Collection) bool {
	return slices.ContainsFunc(c.Fields, func(f schema.Field) bool { return !f.ReadOnly })
}

// inputForm is the form of a record that a client sends.
func inputForm(c schema.Collection) api.Form {
	form := api.Form{Type: "object", Properties: map[string]api.Form{"id": {Type: "string", Description: "of a new record, when the client makes it"}}}
	for _, field := range slices.Concat(c.Fields, wishes[c.ID]) {
		if !field.ReadOnly {
			form.Properties[field.Name] = api.FieldForm(field)
		}
	}
	if c.Type == "auth" {
		for _, name := range secretFields {
			form.Properties[name] = api.Form{}
		}
	}
	return form
}

// recordInput is the body of a create or an update: the input form of one of the collections that allow it. A create
// needs all required fields.
func recordInput(create bool) api.Form {
	form := api.Form{Type: "object"}
	for _, c := range Catalogue {
		w := writerOf(c)
		if !writable(c) || create && w.create == nil || !create && w.update == nil {
			continue
		}
		one := api.Form{Ref: api.FormRef + c.Name + inputSuffix}
		for _, field := range c.Fields {
			if create && field.Required && !field.ReadOnly && !computed(c, field) && field.Name != "user" { // absent, it is the caller
				one.Required = append(one.Required, field.Name)
			}
		}
		form.AnyOf = append(form.AnyOf, one)
	}
	return form
}
