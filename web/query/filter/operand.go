package filter

import (
	"strconv"
	"strings"

	"github.com/ganigeorgiev/fexpr"

	"pocketcoder/web/query/schema"
)

// operand compiles one side of a comparison. It adds the records that it reads to j.
func (s *Scope) operand(t fexpr.Token, j *joins) (operand, error) {
	switch t.Type {
	case fexpr.TokenText:
		return s.literal(t.Literal), nil
	case fexpr.TokenNumber:
		f, err := strconv.ParseFloat(t.Literal, 64)
		if err != nil {
			return operand{}, s.invalid("invalid_number", "%q is not a number", t.Literal)
		}
		return s.literal(f), nil
	case fexpr.TokenFunction:
		return s.function(t, j)
	case fexpr.TokenIdentifier:
		return s.identifier(t.Literal, j)
	}
	return operand{}, s.invalid("invalid_syntax", "unexpected %q", t.Literal)
}

func (s *Scope) identifier(name string, j *joins) (operand, error) {
	if macro, ok := macros[name]; ok {
		return s.literal(macro(s.Now)), nil
	}
	o, err := s.path(name, j)
	if err == nil {
		return o, nil
	}
	switch strings.ToLower(name) { // a field of the same name has precedence
	case "null":
		return s.literal(nil), nil
	case "true":
		return s.literal(1), nil
	case "false":
		return s.literal(0), nil
	}
	return operand{}, err
}

// path compiles a field, at the end of any path.
func (s *Scope) path(name string, j *joins) (operand, error) {
	segments := strings.Split(name, ".")
	root := segments[0]
	for i, segment := range segments {
		if !schema.IsWord(strings.ReplaceAll(strings.TrimPrefix(segment, "@"), ":", "_")) || i > 0 && segment[0] == '@' {
			return operand{}, s.invalid("unknown_field", "%q is not a field", name)
		}
	}
	switch {
	case root == "@request" && len(segments) > 1:
		return s.auth(segments[1:])
	case root == "@collection" && len(segments) > 2:
		return s.otherRecord(segments[1], segments[2:], j)
	case root[0] == '@':
		return operand{}, s.invalid("unknown_field", "unknown field %q", name)
	}
	w := walk{Scope: s, joins: j, name: name}
	return w.from(joinedRow{collection: s.base, alias: s.alias}, "", segments)
}

// otherRecord compiles a field of any record of a collection, related or not. Each alias stands for another record of
// it.
func (s *Scope) otherRecord(named string, segments []string, j *joins) (operand, error) {
	name, _, _ := strings.Cut(named, ":")
	c, ok := s.Cat.Get(name)
	if !ok {
		return operand{}, s.invalid("unknown_field", "unknown collection %q", name)
	}
	start := "@collection." + named
	p, err := s.join(j, start, joinedRow{}, c, true, true, nil)
	if err != nil {
		return operand{}, err
	}
	w := walk{Scope: s, joins: j, name: start}
	return w.from(p, start, segments)
}

func (s *Scope) splitModifier(segment string) (name, modifier string, err error) {
	name, modifier, found := strings.Cut(segment, ":")
	switch modifier {
	case "length", "each", "lower":
		return name, modifier, nil
	}
	if found {
		return "", "", s.invalid("unknown_modifier", "unknown modifier in %q", segment)
	}
	return name, "", nil
}
