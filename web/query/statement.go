package query

import (
	"strconv"
	"time"

	"github.com/pocketbase/dbx"
)

// statement is one SQL statement while it is put together: the values bound to it and the aliases given out in it.
type statement struct {
	cat        Catalogue
	req        Request
	now        time.Time
	params     dbx.Params
	aliases    int
	tombstones bool // removed records count as related ones too
}

func newStatement(cat Catalogue, req Request) *statement {
	s := &statement{cat: cat, req: req, now: req.Now.UTC(), params: dbx.Params{}}
	if req.Now.IsZero() {
		s.now = time.Now().UTC()
	}
	return s
}

// bind gives the placeholder of a value.
func (s *statement) bind(v any) string {
	if b, ok := v.(bool); ok {
		v = 0
		if b {
			v = 1
		}
	}
	name := "p" + strconv.Itoa(len(s.params))
	s.params[name] = v
	return "{:" + name + "}"
}

// alias gives a new alias for a table. Aliases start with j_, which no table of a catalogue does.
func (s *statement) alias() string {
	s.aliases++
	return "j_" + strconv.Itoa(s.aliases)
}
