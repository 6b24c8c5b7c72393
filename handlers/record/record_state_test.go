package record

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

func TestSaveRecord(t *testing.T) {
	a := saved("a", `{"name":"ls","n":1,"tool":"bash"}`)
	b := saved("b", `{"name":"id","n":2,"tool":null}`)
	gone := handlerstest.Fact{By: "b", Data: events.Deleted{}}
	by := handlers.Command{ID: "cmd1"}
	for name, c := range map[string]struct {
		given []handlerstest.Fact
		when  Save
		set   string
		id    string
		then  string // "" is no event
		seq   uint64
		code  handlers.Code
		want  string
	}{
		"a new one":                    {given: []handlerstest.Fact{a}, when: Save{Record: "c", New: true}, set: `{"b":2,"a":1}`, id: "c", then: `{"a":1,"b":2}`},
		"a new one without fields":     {when: Save{Record: "c", New: true}, set: `{}`, id: "c", then: `{}`},
		"the same as new":              {given: []handlerstest.Fact{a}, when: Save{Record: "a", New: true}, set: `{"tool":"bash","name":"l\u0073","n":1}`, id: "a", seq: 1},
		"less, as new":                 {given: []handlerstest.Fact{a}, when: Save{Record: "a", New: true}, set: `{"name":"ls"}`, code: handlers.Conflict, want: "id: record a exists"},
		"other, as new":                {given: []handlerstest.Fact{a}, when: Save{Record: "a", New: true}, set: `{"name":"ls","n":1,"tool":"sh"}`, code: handlers.Conflict, want: "id: "},
		"what was deleted, as new":     {given: []handlerstest.Fact{b, gone}, when: Save{Record: "b", New: true}, set: `{"name":"x"}`, id: "b", then: `{"name":"x"}`},
		"one field":                    {given: []handlerstest.Fact{a}, when: Save{Record: "a"}, set: `{"n":3}`, id: "a", then: `{"n":3,"name":"ls","tool":"bash"}`},
		"another field":                {given: []handlerstest.Fact{a}, when: Save{Record: "a"}, set: `{"env":{"z":1,"a":"<&>"}}`, id: "a", then: `{"env":{"z":1,"a":"<&>"},"n":1,"name":"ls","tool":"bash"}`},
		"what is true":                 {given: []handlerstest.Fact{a, b}, when: Save{Record: "a"}, set: `{"n":1}`, id: "a", seq: 1},
		"nothing":                      {given: []handlerstest.Fact{a, b}, when: Save{Record: "b"}, set: `{}`, id: "b", seq: 2},
		"what is not there":            {given: []handlerstest.Fact{a}, when: Save{Record: "c"}, set: `{"n":1}`, code: handlers.NotFound, want: "no record c in tools"},
		"what was deleted":             {given: []handlerstest.Fact{b, gone}, when: Save{Record: "b"}, set: `{"n":1}`, code: handlers.NotFound},
		"the command again":            {given: []handlerstest.Fact{{By: "a", Cause: "cmd1", Data: a.Data}, saved("a", `{}`)}, when: Save{Command: by, Record: "x", New: true}, set: `{"n":1}`, id: "a", seq: 1},
		"unique":                       {given: []handlerstest.Fact{a, b}, when: Save{Record: "c", New: true, Unique: []string{"name", "n"}}, set: `{"name":"ls","n":2}`, id: "c", then: `{"n":2,"name":"ls"}`},
		"not unique":                   {given: []handlerstest.Fact{a, b}, when: Save{Record: "c", New: true, Unique: []string{"name", "n"}}, set: `{"n":1,"name":"ls"}`, code: handlers.Conflict, want: "name, n: another record has the same value"},
		"not unique any more":          {given: []handlerstest.Fact{a, b}, when: Save{Record: "b", Unique: []string{"name"}}, set: `{"name":"ls"}`, code: handlers.Conflict, want: "name: "},
		"unique as itself":             {given: []handlerstest.Fact{a, b}, when: Save{Record: "a", Unique: []string{"name"}}, set: `{"n":5}`, id: "a", then: `{"n":5,"name":"ls","tool":"bash"}`},
		"not unique, in what is empty": {given: []handlerstest.Fact{b}, when: Save{Record: "c", New: true, Unique: []string{"name", "tool", "x"}}, set: `{"name":"id","tool":""}`, code: handlers.Conflict},
		"unique beside the deleted":    {given: []handlerstest.Fact{a, b, gone}, when: Save{Record: "c", New: true, Unique: []string{"name"}}, set: `{"name":"id"}`, id: "c", then: `{"name":"id"}`},
		"empty beside the deleted":     {given: []handlerstest.Fact{b, gone}, when: Save{Record: "c", New: true, Unique: []string{"name"}}, set: `{"n":1}`, id: "c", then: `{"n":1}`},
		"upsert of a new one":          {given: []handlerstest.Fact{a}, when: Save{Record: "c", New: true, Unique: []string{"name"}, Upsert: true}, set: `{"name":"x"}`, id: "c", then: `{"name":"x"}`},
		"upsert of another":            {given: []handlerstest.Fact{a, b}, when: Save{Record: "c", New: true, Unique: []string{"name"}, Upsert: true}, set: `{"name":"ls","n":9}`, id: "a", then: `{"n":9,"name":"ls","tool":"bash"}`},
		"upsert of what is true":       {given: []handlerstest.Fact{a, b}, when: Save{Record: "c", New: true, Unique: []string{"name"}, Upsert: true}, set: `{"name":"ls"}`, id: "a", seq: 1},
		"upsert when not new":          {given: []handlerstest.Fact{a, b}, when: Save{Record: "b", Unique: []string{"name"}, Upsert: true}, set: `{"name":"ls"}`, code: handlers.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newCollection()
			for i, f := range c.given { // by is the record here
				e, err := events.NewConfig("tools", f.By, handlerstest.Alice, f.Data)
				is.NoErr(err)
				e.Seq, e.Cause = uint64(i+1), f.Cause
				s.Apply(e)
			}
			c.when.Collection = "tools"
			id, now, seq, err := s.save(Type{}, c.when, handlerstest.Fields(c.set), "")
			is.Equal(handlerstest.Refusal(t, err), c.code)
			is.Equal(id, c.id)
			is.Equal(seq, c.seq)
			is.Equal(now != nil, c.then != "")
			if err != nil {
				expect.Contains(t, err.Error(), c.want)
			}
			if now != nil {
				body, err := now.encode()
				is.NoErr(err)
				is.Equal(string(body), c.then)
			}
		})
	}
}

// saved is a record as the log holds it.
func saved(id, fields string) handlerstest.Fact {
	return handlerstest.Fact{By: id, Data: events.Saved{Fields: json.RawMessage(fields)}}
}

func TestAnAccountMakesNoMoreRecordsThanTheLimit(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := Open(eventstest.Log(t), Type{Name: "ai_prompts", Access: Rules(Admins, Admins, Admins, Admins, Admins),
		Fields: []Field{{Name: "name", Kind: Text}}})
	save := func(actor, id, name string) handlers.Code {
		_, _, err := h.Save(t.Context(), Save{Command: handlers.Command{Actor: actor}, Collection: "ai_prompts",
			Role: account.Admin, Record: id, New: true,
			Set: map[string]json.RawMessage{"name": json.RawMessage(`"` + name + `"`)}})
		if err == nil {
			return ""
		}
		return handlerstest.Refusal(t, err)
	}
	large := strings.Repeat("x", 900<<10)
	for i := range 4 {
		is.Equal(save(handlerstest.Alice, fmt.Sprint("large", i), large), handlers.Code(""))
	}
	is.Equal(save(handlerstest.Alice, "large4", large), handlers.Invalid)
	is.Equal(save("user:bob", "large4", large), handlers.Code("")) // an account for itself
	_, err := h.Delete(t.Context(), Delete{Collection: "ai_prompts", Record: "large0"})
	is.NoErr(err)
	is.Equal(save(handlerstest.Alice, "large5", large), handlers.Code(""))

	full := newCollection()
	for i := range maxRecords {
		full.records[fmt.Sprint(i)] = record{author: handlerstest.Alice}
	}
	is.True(full.refuseMore("x", handlerstest.Alice, 1) != nil)
	is.NoErr(full.refuseMore("1", handlerstest.Alice, 1)) // one that is there
	is.NoErr(full.refuseMore("x", events.ActorPolicy, 1))
}
