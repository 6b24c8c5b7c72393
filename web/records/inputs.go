package records

import (
	"slices"

	"pocketcoder/web/api"
	"pocketcoder/web/query/schema"
)

// inputSuffix is what follows a collection's name in the name of what a client may say of its records.
const inputSuffix = "Input"

// inputForms are the forms of what clients may say of the records of each collection.
func inputForms() map[string]api.Form {
	forms := map[string]api.Form{}
	for _, c := range Catalogue {
		if writable(c) {
			forms[c.Name+inputSuffix] = inputForm(c)
		}
	}
	return forms
}

// writable says whether there is a field that clients may write.
func writable(c schema.Collection) bool {
	return slices.ContainsFunc(c.Fields, func(f schema.Field) bool { return !f.ReadOnly })
}

// inputForm is what a client may say of a record.
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

// recordInput is what creating or updating a record takes: the input of one of the collections where that can be done, and
// with create all that a new record needs.
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
