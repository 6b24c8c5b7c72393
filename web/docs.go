package web

import (
	"maps"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"pocketcoder/web/api"
)

// shownOperation is an operation with where it is found.
type shownOperation struct {
	api.Operation
	method, path string
}

// operationsOf are the operations of a group, by path.
func operationsOf(d api.Document, tag string) (list []shownOperation) {
	for _, path := range sorted(d.Paths) {
		for _, method := range sorted(d.Paths[path]) {
			if o := d.Paths[path][method]; slices.Contains(o.Tags, tag) {
				list = append(list, shownOperation{o, strings.ToUpper(method), path})
			}
		}
	}
	return list
}

// words say a form that has no parts.
func words(f api.Form) string {
	said := f.Type
	if said == "" {
		said = "any value"
	}
	if f.Format != "" {
		said += " (" + f.Format + ")"
	}
	if len(f.Enum) > 0 {
		said = `"` + strings.Join(f.Enum, `", "`) + `"`
	}
	if f.Description != "" {
		said += ", " + f.Description
	}
	return said
}

// presence says whether a property may be absent or written.
func presence(f api.Form, name string) string {
	switch {
	case f.Properties[name].ReadOnly:
		return "read only"
	case !slices.Contains(f.Required, name):
		return "optional"
	}
	return ""
}

func formName(f api.Form) string { return f.Ref[strings.LastIndex(f.Ref, "/")+1:] }

func formID(name string) string { return "form-" + name }

func formLink(name string) templ.SafeURL { return templ.SafeURL("#" + formID(name)) }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
