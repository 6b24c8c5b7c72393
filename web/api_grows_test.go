package web_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/web"
	"pocketcoder/web/api"
)

var update = flag.Bool("update", false, "accept the API as it is now")

// TestTheAPIOnlyGrows compares the API with testdata/api.txt, which has a line for each route, parameter, body and
// field. Clients depend on each line. A line may be added, but not changed or removed.
func TestTheAPIOnlyGrows(t *testing.T) {
	is := is.New(t)
	const golden = "testdata/api.txt"
	var now []string
	add := func(format string, args ...any) { now = append(now, fmt.Sprintf(format, args...)) }
	d := web.New(web.Options{}).Document()
	for path, methods := range d.Paths {
		for method, o := range methods {
			name := strings.ToUpper(method) + " " + path
			add("%s is for %s", name, o.Access)
			for _, p := range o.Parameters {
				add("%s takes %s %s %s", name, p.In, p.Name, typeOf(p.Schema))
				for _, value := range p.Schema.Enum {
					add("%s takes %s %s %q", name, p.In, p.Name, value)
				}
			}
			if o.Body != nil {
				add("%s takes %s", name, contentOf(o.Body.Content))
			}
			for status, r := range o.Responses {
				add("%s answers %s %s%s", name, status, contentOf(r.Content), r.Ref)
			}
		}
	}
	for name, form := range d.Components.Schemas {
		for field, value := range form.Properties {
			add("%s.%s %s", name, field, typeOf(value))
			if slices.Contains(form.Required, field) {
				add("%s.%s is required", name, field)
			}
			for _, choice := range value.Enum {
				add("%s.%s may be %q", name, field, choice)
			}
		}
	}
	slices.Sort(now)
	if *update {
		is.NoErr(os.WriteFile(golden, []byte(strings.Join(now, "\n")+"\n"), 0o644))
	}
	for _, line := range strings.Split(strings.TrimSpace(expect.ReadFile(t, golden)), "\n") {
		if !slices.Contains(now, line) {
			t.Errorf("not any more: %s", line)
		}
	}
	for _, line := range now {
		if taken, ok := strings.CutSuffix(line, " is required"); ok && strings.Contains(taken, "Input.") {
			is.True(strings.Contains(expect.ReadFile(t, golden), line+"\n")) // a client that does not send it would fail
		}
	}
}

func contentOf(content map[string]api.Media) string {
	var all []string
	for media, of := range content {
		all = append(all, media+" "+typeOf(of.Schema))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func typeOf(f api.Form) string {
	switch {
	case f.Ref != "":
		return strings.TrimPrefix(f.Ref, api.FormRef)
	case f.Items != nil:
		return "list of " + typeOf(*f.Items)
	case f.Additional != nil:
		return "object of " + typeOf(*f.Additional)
	case f.Type == "":
		return "any"
	}
	return f.Type
}
