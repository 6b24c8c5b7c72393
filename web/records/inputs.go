package records

import (
	"slices"

	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// inputSuffix follows the name of a collection in the name of its input form.
const inputSuffix = "Input"

// inputForms are the forms of the records that clients send, by name.
func (all Collections) inputForms() map[string]api.Form {
	forms := map[string]api.Form{}
	for _, c := range all {
		if c.writable() {
			forms[c.Name+inputSuffix] = inputForm(c)
		}
	}
	return forms
}

// inputs are the fields of a record, and those of a body that no record shows.
func (c collection) inputs() (all []record.Field) {
	for _, f := range c.Fields {
		all = append(all, f.Field)
	}
	return append(all, c.options...)
}

// writable reports whether clients may write any field of a collection.
func (c collection) writable() bool {
	return slices.ContainsFunc(c.Fields, func(f query.Field) bool { return !f.ReadOnly })
}

// inputForm is the form of a record that a client sends.
func inputForm(c collection) api.Form {
	form := api.Form{Type: "object", Properties: map[string]api.Form{"id": {Type: "string",
		Description: "of a new record, when the client makes it"}}}
	for _, field := range c.inputs() {
		if !field.ReadOnly {
			form.Properties[field.Name] = api.FieldForm(field)
		}
	}
	return form
}

// recordInput is the body of a create or an update: the input form of one of the collections that allow it. A create
// needs all required fields.
func (all Collections) recordInput(create bool) api.Form {
	form := api.Form{Type: "object"}
	for _, c := range all {
		if !c.writable() || create && c.write.create == nil || !create && c.write.update == nil {
			continue
		}
		one := api.Form{Ref: api.FormRef + c.Name + inputSuffix}
		for _, field := range c.Fields {
			// default: the caller
			if create && field.Required && !field.ReadOnly && !field.Computed && field.Name != "user" {
				one.Required = append(one.Required, field.Name)
			}
		}
		form.AnyOf = append(form.AnyOf, one)
	}
	return form
}

// Form describes a collection, and what clients may write in it.
type Form struct {
	Name, Title, About     string         // the title is empty for a collection that people have no use for
	Defaults               map[string]any // of a new record
	Fields                 []record.Field
	Fixed                  []record.Field // that a form only shows
	Create, Update, Delete bool           // whether any client may
	Token                  bool           // a new record gets a token, which the system makes
}

// FormOf returns the form of the records of a collection.
func (all Collections) FormOf(name string) (f Form, found bool) {
	i := slices.IndexFunc(all, func(c collection) bool { return c.Name == name })
	if i < 0 {
		return f, false
	}
	return all[i].form(), true
}

// Forms returns the forms of all collections.
func (all Collections) Forms() (forms []Form) {
	for _, c := range all {
		forms = append(forms, c.form())
	}
	return forms
}

func (c collection) form() Form {
	f := Form{Name: c.Name, Title: c.title, About: c.about, Defaults: c.defaults}
	for _, field := range c.inputs() {
		if field.ReadOnly || field.Shown {
			f.Fixed = append(f.Fixed, field)
		} else {
			f.Fields = append(f.Fields, field)
		}
	}
	f.Token = c.madeToken
	f.Create, f.Update, f.Delete = c.write.create != nil && c.Create != nil,
		c.write.update != nil && c.Collection.Update != nil, c.write.remove != nil && c.Delete != nil
	return f
}
