package handlers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/expect"
)

// saved is a record as the log holds it.
func saved(id, fields string) fact {
	return fact{by: id, data: events.Saved{Fields: json.RawMessage(fields)}}
}

// with reads an object.
func with(object string) map[string]json.RawMessage {
	var f map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &f); err != nil {
		panic(err)
	}
	return f
}

func TestSaveRecord(t *testing.T) {
	a := saved("a", `{"name":"ls","n":1,"tool":"bash"}`)
	b := saved("b", `{"name":"id","n":2,"tool":null}`)
	gone := fact{by: "b", data: events.Deleted{}}
	by := Command{ID: "cmd1"}
	for name, c := range map[string]struct {
		given []fact
		when  SaveRecord
		set   string
		id    string
		then  string // "" is no event
		seq   uint64
		code  Code
		says  string
	}{
		"a new one":                    {given: []fact{a}, when: SaveRecord{Record: "c", New: true}, set: `{"b":2,"a":1}`, id: "c", then: `{"a":1,"b":2}`},
		"a new one without fields":     {when: SaveRecord{Record: "c", New: true}, set: `{}`, id: "c", then: `{}`},
		"the same as new":              {given: []fact{a}, when: SaveRecord{Record: "a", New: true}, set: `{"tool":"bash","name":"l\u0073","n":1}`, id: "a", seq: 1},
		"less, as new":                 {given: []fact{a}, when: SaveRecord{Record: "a", New: true}, set: `{"name":"ls"}`, code: Conflict, says: "id: record a exists"},
		"other, as new":                {given: []fact{a}, when: SaveRecord{Record: "a", New: true}, set: `{"name":"ls","n":1,"tool":"sh"}`, code: Conflict, says: "id: "},
		"what was deleted, as new":     {given: []fact{b, gone}, when: SaveRecord{Record: "b", New: true}, set: `{"name":"x"}`, id: "b", then: `{"name":"x"}`},
		"one field":                    {given: []fact{a}, when: SaveRecord{Record: "a"}, set: `{"n":3}`, id: "a", then: `{"n":3,"name":"ls","tool":"bash"}`},
		"another field":                {given: []fact{a}, when: SaveRecord{Record: "a"}, set: `{"env":{"z":1,"a":"<&>"}}`, id: "a", then: `{"env":{"z":1,"a":"<&>"},"n":1,"name":"ls","tool":"bash"}`},
		"what is true":                 {given: []fact{a, b}, when: SaveRecord{Record: "a"}, set: `{"n":1}`, id: "a", seq: 1},
		"nothing":                      {given: []fact{a, b}, when: SaveRecord{Record: "b"}, set: `{}`, id: "b", seq: 2},
		"what is not there":            {given: []fact{a}, when: SaveRecord{Record: "c"}, set: `{"n":1}`, code: NotFound, says: "no record c in tools"},
		"what was deleted":             {given: []fact{b, gone}, when: SaveRecord{Record: "b"}, set: `{"n":1}`, code: NotFound},
		"the command again":            {given: []fact{{by: "a", cause: "cmd1", data: a.data}, saved("a", `{}`)}, when: SaveRecord{Command: by, Record: "x", New: true}, set: `{"n":1}`, id: "a", seq: 1},
		"unique":                       {given: []fact{a, b}, when: SaveRecord{Record: "c", New: true, Unique: []string{"name", "n"}}, set: `{"name":"ls","n":2}`, id: "c", then: `{"n":2,"name":"ls"}`},
		"not unique":                   {given: []fact{a, b}, when: SaveRecord{Record: "c", New: true, Unique: []string{"name", "n"}}, set: `{"n":1,"name":"ls"}`, code: Conflict, says: "name, n: another record has the same"},
		"not unique any more":          {given: []fact{a, b}, when: SaveRecord{Record: "b", Unique: []string{"name"}}, set: `{"name":"ls"}`, code: Conflict, says: "name: "},
		"unique as itself":             {given: []fact{a, b}, when: SaveRecord{Record: "a", Unique: []string{"name"}}, set: `{"n":5}`, id: "a", then: `{"n":5,"name":"ls","tool":"bash"}`},
		"not unique, in what is empty": {given: []fact{b}, when: SaveRecord{Record: "c", New: true, Unique: []string{"name", "tool", "x"}}, set: `{"name":"id","tool":""}`, code: Conflict},
		"unique beside the deleted":    {given: []fact{a, b, gone}, when: SaveRecord{Record: "c", New: true, Unique: []string{"name"}}, set: `{"name":"id"}`, id: "c", then: `{"name":"id"}`},
		"empty beside the deleted":     {given: []fact{b, gone}, when: SaveRecord{Record: "c", New: true, Unique: []string{"name"}}, set: `{"n":1}`, id: "c", then: `{"n":1}`},
		"upsert of a new one":          {given: []fact{a}, when: SaveRecord{Record: "c", New: true, Unique: []string{"name"}, Upsert: true}, set: `{"name":"x"}`, id: "c", then: `{"name":"x"}`},
		"upsert of another":            {given: []fact{a, b}, when: SaveRecord{Record: "c", New: true, Unique: []string{"name"}, Upsert: true}, set: `{"name":"ls","n":9}`, id: "a", then: `{"n":9,"name":"ls","tool":"bash"}`},
		"upsert of what is true":       {given: []fact{a, b}, when: SaveRecord{Record: "c", New: true, Unique: []string{"name"}, Upsert: true}, set: `{"name":"ls"}`, id: "a", seq: 1},
		"upsert when not new":          {given: []fact{a, b}, when: SaveRecord{Record: "b", Unique: []string{"name"}, Upsert: true}, set: `{"name":"ls"}`, code: Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newCollection()
			for i, f := range c.given { // by is the record here
				e, err := events.NewConfig("tools", f.by, alice, f.data)
				is.NoErr(err)
				e.Seq, e.Cause = uint64(i+1), f.cause
				s.apply(e)
			}
			c.when.Collection = "tools"
			id, now, seq, err := s.save(c.when, with(c.set))
			is.Equal(refusal(t, err), c.code)
			is.Equal(id, c.id)
			is.Equal(seq, c.seq)
			is.Equal(now != nil, c.then != "")
			if err != nil {
				expect.Contains(t, err.Error(), c.says)
			}
			if now != nil {
				body, err := now.encode()
				is.NoErr(err)
				is.Equal(string(body), c.then)
			}
		})
	}
}

// records is what was said of a collection's records, in order.
func records(t *testing.T, l *log.Log, collection string) (said []string) {
	t.Helper()
	_, err := l.Fold(t.Context(), events.ConfigSubject(collection, "*", "*"), 0, func(e events.Event) error {
		said = append(said, e.Subject.ID+" "+e.Subject.Kind+" "+string(e.Data))
		return nil
	})
	is.New(t).NoErr(err)
	return said
}

func TestRecordIsSavedWholeAndDeletedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := &Handlers{Log: eventstest.Log(t, "sk-very-secret")}
	save := SaveRecord{Command: Command{Actor: alice}, Collection: "ai_agents", Record: "a1", New: true, Set: with(`{"name": "poco", "key": "sk-very-secret"}`)}
	for range 2 { // though the log never holds the secret
		id, seq, err := h.SaveRecord(t.Context(), save)
		is.NoErr(err)
		is.Equal(id, "a1")
		is.Equal(seq, uint64(1))
	}
	_, _, err := h.SaveRecord(t.Context(), SaveRecord{Collection: "ai_agents", Record: "a1", Set: with(`{"name":"poco <b>"}`)})
	is.NoErr(err)
	made, _, err := h.SaveRecord(t.Context(), SaveRecord{Collection: "sops", New: true})
	is.NoErr(err)
	is.Equal(len(made), 15)
	for range 2 {
		seq, err := h.DeleteRecord(t.Context(), DeleteRecord{Command: Command{Actor: alice}, Collection: "ai_agents", Record: "a1"})
		is.NoErr(err)
		is.Equal(seq, uint64(4))
	}
	is.Equal(records(t, h.Log, "ai_agents"), []string{
		`a1 saved {"fields":{"key":"[redacted]","name":"poco"}}`, `a1 saved {"fields":{"key":"[redacted]","name":"poco <b>"}}`, `a1 deleted {}`,
	})
	_, err = h.DeleteRecord(t.Context(), DeleteRecord{Collection: "ai_agents", Record: made})
	is.Equal(refusal(t, err), NotFound) // it is one of another collection
	elsewhere := &Handlers{Log: h.Log}
	_, _, err = elsewhere.SaveRecord(t.Context(), SaveRecord{Collection: "ai_agents", Record: "a1", Set: with(`{"n":1}`)})
	is.Equal(refusal(t, err), NotFound)
}

func TestBadRecordsAreRefused(t *testing.T) {
	t.Parallel()
	h := &Handlers{Log: eventstest.Log(t)}
	value := func(v string) map[string]json.RawMessage { return map[string]json.RawMessage{"f": json.RawMessage(v)} }
	for says, bad := range map[string]SaveRecord{
		"collection: parse id":           {Collection: "a.b", Record: "a", New: true},
		"id: parse id \"*\"":             {Collection: "c", Record: "*", New: true},
		"id: parse id \"\"":              {Collection: "c"},
		`"f": the value is not JSON`:     {Collection: "c", New: true, Set: value(`{`)},
		`JSON in UTF-8`:                  {Collection: "c", New: true, Set: value("\"\xff\"")},
		"1048582 bytes; the limit is 10": {Collection: "c", New: true, Set: value(`"` + strings.Repeat("x", 1<<20-2) + `"`)},
	} {
		t.Run(says, func(t *testing.T) {
			is := is.New(t)
			_, _, err := h.SaveRecord(t.Context(), bad)
			is.Equal(refusal(t, err), Invalid)
			expect.Contains(t, err.Error(), says)
		})
	}
	is := is.New(t)
	_, err := h.DeleteRecord(t.Context(), DeleteRecord{Collection: ">", Record: "a"})
	is.Equal(refusal(t, err), Invalid)
	_, _, err = h.SaveRecord(t.Context(), SaveRecord{Collection: "c", New: true, Set: value(`"` + strings.Repeat("x", 1<<20-8) + `"`)})
	is.NoErr(err) // the largest there is
	is.Equal(len(records(t, h.Log, "c")), 1)
}

// Several systems save the same unique fields at once: one record comes of it, and everybody is told its id.
func TestUniqueIsUniqueAmongSystems(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l := eventstest.Log(t)
	ids := make([]string, 12)
	for _, err := range atOnce(len(ids), func(i int) (err error) {
		h := &Handlers{Log: l}
		ids[i], _, err = h.SaveRecord(t.Context(), SaveRecord{
			Collection: "model_selection", New: true, Upsert: true, Unique: []string{"user"}, Set: with(fmt.Sprintf(`{"user":"u%d"}`, i%2)),
		})
		return err
	}) {
		is.NoErr(err)
	}
	for i := range ids {
		is.Equal(ids[i], ids[i%2])
	}
	is.Equal(len(records(t, l, "model_selection")), 2)
}
