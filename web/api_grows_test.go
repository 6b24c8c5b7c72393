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

// TestTheAPIOnlyGrows compares the API with testdata/api.txt, which has a line for each route and each form. Clients
// depend on each fact in a line. A fact may be added, but not changed or removed.
//
//	POST /api/x for=account body=application/json:XInput path.id=string query.sort="up" 200=application/json:X
//	X  id!:string state:string state="idle" state="running"
//
// The exclamation mark says that the field is required.
func TestTheAPIOnlyGrows(t *testing.T) {
	is := is.New(t)
	const golden = "testdata/api.txt"
	lines := apiLines(web.New(web.Options{}).Document())
	now := factsOf(lines)
	if *update {
		is.NoErr(os.WriteFile(golden, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	}
	before := factsOf(strings.Split(strings.TrimSpace(expect.ReadFile(t, golden)), "\n"))
	for _, fact := range before {
		if !slices.Contains(now, fact) {
			t.Errorf("not any more: %s", fact)
		}
	}
	for _, fact := range now {
		if strings.HasSuffix(fact, "!") && strings.Contains(fact, "Input ") {
			is.True(slices.Contains(before, fact)) // a client that does not send it would fail
		}
	}
}

// apiLines returns a line for each route and each form.
func apiLines(d api.Document) (lines []string) {
	add := func(name string, facts []string) {
		slices.Sort(facts)
		lines = append(lines, name+"  "+strings.Join(facts, " "))
	}
	for path, methods := range d.Paths {
		for method, o := range methods {
			facts := []string{"for=" + o.Access}
			for _, p := range o.Parameters {
				facts = append(facts, p.In+"."+p.Name+"="+typeOf(p.Schema))
				for _, value := range p.Schema.Enum {
					facts = append(facts, fmt.Sprintf("%s.%s=%q", p.In, p.Name, value))
				}
			}
			if o.Body != nil {
				facts = append(facts, contentsOf("body", o.Body.Content))
			}
			for status, r := range o.Responses {
				facts = append(facts, contentsOf(status, r.Content)+strings.TrimPrefix(r.Ref, "#/components/responses/"))
			}
			add(strings.ToUpper(method)+" "+path, facts)
		}
	}
	for name, form := range d.Components.Schemas {
		var facts []string
		for field, value := range form.Properties {
			mark := ""
			if slices.Contains(form.Required, field) {
				mark = "!"
			}
			facts = append(facts, field+mark+":"+typeOf(value))
			for _, choice := range value.Enum {
				facts = append(facts, fmt.Sprintf("%s=%q", field, choice))
			}
		}
		add(name, facts)
	}
	slices.Sort(lines)
	return lines
}

// factsOf returns what lines say, each fact with the name of its line. "Required" is a fact of its own.
func factsOf(lines []string) (all []string) {
	for _, line := range lines {
		name, facts, _ := strings.Cut(line, "  ")
		all = append(all, name)
		for _, fact := range strings.Fields(facts) {
			if field, typ, isRequired := strings.Cut(fact, "!:"); isRequired {
				all = append(all, name+" "+field+"!")
				fact = field + ":" + typ
			}
			all = append(all, name+" "+fact)
		}
	}
	return all
}

func contentsOf(name string, content map[string]api.Media) string {
	var all []string
	for media, of := range content {
		all = append(all, media+":"+typeOf(of.Schema))
	}
	slices.Sort(all)
	return name + "=" + strings.Join(all, ",")
}

func typeOf(f api.Form) string {
	switch {
	case f.Ref != "":
		return strings.TrimPrefix(f.Ref, api.FormRef)
	case f.Items != nil:
		return "[]" + typeOf(*f.Items)
	case f.Additional != nil:
		return "{}" + typeOf(*f.Additional)
	case f.Type == "":
		return "any"
	}
	return f.Type
}
