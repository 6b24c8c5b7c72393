package filter

import (
	"strconv"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/web/query/schema"
)

// Statement is an SQL statement under construction, with its bound values and its aliases.
type Statement struct {
	Cat        schema.Catalogue
	Req        Request
	Now        time.Time
	Params     dbx.Params
	aliases    int
	Tombstones bool // relations also lead to removed records
}

// New returns an empty statement over the collections of a catalogue.
func New(cat schema.Catalogue, req Request) *Statement {
	s := &Statement{Cat: cat, Req: req, Now: req.Now.UTC(), Params: dbx.Params{}}
	if req.Now.IsZero() {
		s.Now = time.Now().UTC()
	}
	return s
}

// Bind returns the placeholder of a value.
func (s *Statement) Bind(v any) string {
	if b, ok := v.(bool); ok {
		v = 0
		if b {
			v = 1
		}
	}
	name := "p" + strconv.Itoa(len(s.Params))
	s.Params[name] = v
	return "{:" + name + "}"
}

// alias returns a new alias for a table. Aliases start with j_, which no table of a catalogue does.
func (s *Statement) alias() string {
	s.aliases++
	return "j_" + strconv.Itoa(s.aliases)
}
