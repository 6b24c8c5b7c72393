package web_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/web"
	"pocketcoder/web/api"
	"pocketcoder/web/records"
)

func TestDescriptionIsTheSameBytesEveryTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	first, err := json.Marshal(web.New(web.Options{}).Document())
	is.NoErr(err)
	for range 5 {
		second, err := json.Marshal(web.New(web.Options{}).Document())
		is.NoErr(err)
		is.Equal(string(second), string(first))
	}
}

// What OpenAPI 3.1 asks of a document beyond the types of ours.
func TestDescriptionIsOpenAPI(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := web.New(web.Options{}).Document()
	is.True(strings.HasPrefix(d.OpenAPI, "3.1."))
	is.True(d.Info.Title != "" && d.Info.Version != "")
	tags, ids := map[string]bool{}, map[string]bool{}
	for _, tag := range d.Tags {
		is.True(!tags[tag.Name]) // tags differ
		tags[tag.Name] = true
	}
	for path, methods := range d.Paths {
		for method, o := range methods {
			is.True(slices.Contains([]string{"get", "post", "patch", "delete", "put", "head"}, method))
			is.True(!ids[o.ID] && o.ID != "") // operation ids differ
			ids[o.ID] = true
			is.True(tags[o.Tags[0]])
			for _, way := range o.Security {
				for name := range way {
					is.True(d.Components.Security[name].Type != "")
				}
			}
			checkParameters(t, path, o)
			checkBodies(t, d, o)
		}
	}
	for name, f := range d.Components.Schemas {
		// what a component may be called
		is.Equal(strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"), "")
		checkForm(t, d, f)
	}
	for _, r := range d.Components.Responses {
		is.True(r.Description != "")
		checkContent(t, d, r.Content)
	}
}

func checkParameters(t *testing.T, path string, o api.Operation) {
	t.Helper()
	is := is.New(t)
	seen, inPath := map[string]bool{}, []string{}
	for _, p := range o.Parameters {
		is.True(!seen[p.In+" "+p.Name]) // once
		seen[p.In+" "+p.Name] = true
		is.True(slices.Contains([]string{"path", "query", "header"}, p.In))
		// headers that are described otherwise
		is.True(!slices.Contains([]string{"Accept", "Content-Type", "Authorization"}, p.Name))
		if p.In == "path" {
			is.True(p.Required)
			inPath = append(inPath, p.Name)
		}
	}
	var wildcards []string
	for _, part := range strings.Split(path, "/") {
		if strings.HasPrefix(part, "{") {
			wildcards = append(wildcards, strings.Trim(part, "{}"))
		}
	}
	is.Equal(strings.Join(wildcards, " "), strings.Join(inPath, " ")) // the wildcards of the path, each of them
}

func checkBodies(t *testing.T, d api.Document, o api.Operation) {
	t.Helper()
	is := is.New(t)
	if o.Body != nil {
		is.True(len(o.Body.Content) > 0)
		checkContent(t, d, o.Body.Content)
	}
	is.True(len(o.Responses) > 1) // success, and default
	for status, r := range o.Responses {
		is.True(status == "default" || http.StatusText(int(status[0]-'0')*100+int(status[1]-'0')*10+int(status[2]-'0')) != "")
		name, ref := strings.CutPrefix(r.Ref, "#/components/responses/")
		is.Equal(ref, r.Description == "") // one or the other
		if ref {
			is.True(d.Components.Responses[name].Description != "")
		}
		checkContent(t, d, r.Content)
	}
}

func checkContent(t *testing.T, d api.Document, content map[string]api.Media) {
	t.Helper()
	for media, m := range content {
		is.New(t).True(strings.Count(media, "/") == 1)
		checkForm(t, d, m.Schema)
	}
}

func checkForm(t *testing.T, d api.Document, f api.Form) {
	t.Helper()
	is := is.New(t)
	is.True(slices.Contains([]string{"", "string", "number", "integer", "boolean", "object", "array"}, f.Type))
	is.Equal(f.Type == "array", f.Items != nil)
	if f.Ref != "" {
		name, _ := strings.CutPrefix(f.Ref, api.FormRef)
		_, found := d.Components.Schemas[name]
		is.True(found) // the form that is referred to
	}
	named := f
	if f.Ref != "" {
		named = d.Components.Resolve(f)
	}
	for _, name := range f.Required {
		_, found := named.Properties[name]
		is.True(found) // a required property
	}
	is.Equal(len(slices.Compact(slices.Sorted(slices.Values(f.Required)))), len(f.Required)) // each once
	parts := slices.Concat(f.AnyOf, slices.Collect(maps.Values(f.Properties)))
	for _, part := range []*api.Form{f.Items, f.Additional} {
		if part != nil {
			parts = append(parts, *part)
		}
	}
	for _, part := range parts {
		checkForm(t, d, part)
	}
}

func TestDescriptionSaysWhoMayDoWhat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	paths := web.New(web.Options{}).Document().Paths
	is.Equal(paths["/api/health"]["get"].Access, "public")
	is.Equal(len(paths["/api/health"]["get"].Security), 0)
	is.Equal(paths["/api/collections/{collection}/records"]["get"].Access, "account")
	is.Equal(len(paths["/api/collections/{collection}/records"]["get"].Security), 2)
	is.Equal(paths["/api/pocketcoder/permission"]["post"].Access, "staff")
	is.Equal(paths["/api/events"]["get"].Access, "admin")
}

func TestDescriptionHasEveryCollection(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	d := web.New(web.Options{}).Document()
	for _, c := range records.CollectionsOf(recordtype.All(recordtype.Machine{})).Catalogue() {
		form := d.Components.Schemas[c.Name]
		for _, field := range c.Fields {
			_, found := form.Properties[field.Name]
			is.True(found) // the field
		}
	}
	title := d.Components.Schemas["chatsInput"].Properties["title"]
	is.Equal(title, api.Form{Type: "string"})
	is.Equal(d.Components.Schemas["chats"].Properties["preview"], api.Form{Type: "string", ReadOnly: true})
	_, written := d.Components.Schemas["chatsInput"].Properties["preview"]
	is.True(!written) // by clients
}

func TestDescriptionSaysWhatBindsAnApproval(t *testing.T) {
	t.Parallel()
	forms := web.New(web.Options{}).Document().Components.Schemas
	for form, want := range map[string]string{"proposalsInput": "is not bound", "mcp_serversInput": "is missing"} {
		expect.Contains(t, forms[form].Properties["shown_definition"].Description, want)
	}
	expect.Contains(t, forms["permissionsInput"].Properties["shown_command"].Description, "is not bound")
}

func TestEveryCostNamesItsCurrency(t *testing.T) {
	t.Parallel()
	named := map[string]bool{}
	for name, schema := range web.New(web.Options{}).Document().Components.Schemas {
		for field, f := range schema.Properties {
			if field == "cost" || field == "max_cost" {
				named[name] = true
				if !strings.Contains(f.Description, "US dollars") {
					t.Errorf("%s.%s names no currency", name, field)
				}
			}
		}
	}
	is.New(t).True(len(named) > 3) // messages, usage, budgets, schedules and their runs
}
