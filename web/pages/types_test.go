package pages_test

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/web"
	"pocketcoder/web/webtest"
)

// A type of records is declared once: the API, its description and the settings follow from it.
func TestATypeOfRecordsAppearsEverywhere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	everybody := record.Rules(record.Accounts, record.Accounts, record.Accounts, record.Accounts, record.Accounts)
	things := record.Type{Name: "things", Title: "Things", About: "of a test", Access: everybody, Fields: []record.Field{
		{Name: "name", Kind: record.Text, Label: "Name of the thing", Required: true},
		{Name: "size", Kind: record.Number, Label: "Size of the thing", Unit: "metres"},
		{Name: "seen", Kind: record.Text, ReadOnly: true}, {Name: "inner", Kind: record.Text, ReadOnly: true, Hidden: true}}}
	s := webtest.NewSystemWith(t, []record.Type{things})
	_, token := s.User(t, "root", "admin")

	records := webtest.RecordsPath("things")
	status, made := s.Call(t, token, "POST", records, map[string]any{"name": "door", "size": 2})
	is.Equal([]any{status, made["name"], made["size"], made["seen"], made["inner"]}, []any{200, "door", 2.0, "", nil})
	status, _ = s.Call(t, token, "POST", records, map[string]any{"name": "door", "size": "large"})
	is.Equal(status, http.StatusBadRequest)
	_, schema := s.Call(t, token, "GET", "/api/collections/things", nil)
	is.Equal(len(schema["fields"].([]any)), 6) // with id, created and updated

	forms := s.Web.Document().Components.Schemas
	is.Equal(forms["things"].Properties["size"].Description, "In metres.")
	is.True(forms["things"].Properties["seen"].ReadOnly)
	_, writable := forms["thingsInput"].Properties["seen"]
	is.True(!writable)

	b := loggedIn(t, s, "root")
	expect.Contains(t, b.visit(t, "/settings").body, "Things")
	page := b.visit(t, "/settings/things").body
	expect.Contains(t, page, "Name of the thing")
	expect.Contains(t, page, "Size of the thing")
	is.Equal(b.submit(t, "/settings/things", url.Values{"name": {"window"}, "size": {"3"}}).status, http.StatusOK)
	expect.Contains(t, b.visit(t, "/settings/things").body, "window")
}

// A field of a type is missing nowhere.
func TestEachFieldOfATypeIsInTheAPIAndItsDescription(t *testing.T) {
	t.Parallel()
	server := web.New(web.Options{})
	catalogue, forms := server.API.Catalogue, server.Document().Components.Schemas
	for _, typ := range recordtype.All(recordtype.Machine{}) {
		c, found := catalogue.Get(typ.Name)
		is.New(t).True(found) // the collection
		for _, f := range typ.Fields {
			_, shown := c.Field(f.Name)
			_, described := forms[typ.Name].Properties[f.Name]
			_, input := forms[typ.Name+"Input"].Properties[f.Name]
			unstored := f.Hidden || f.Argument || f.Kind == record.Secret
			if shown == unstored || described == unstored || input == (f.ReadOnly || f.Hidden) {
				t.Errorf("%s.%s: in the API %t, described %t, in a body %t", typ.Name, f.Name, shown, described, input)
			}
		}
		hasForm := slices.ContainsFunc(typ.Fields, func(f record.Field) bool { return !f.ReadOnly })
		if _, has := forms[typ.Name+"Input"]; has != hasForm {
			t.Errorf("%s: its description has a form: %t", typ.Name, has)
		}
	}
}
