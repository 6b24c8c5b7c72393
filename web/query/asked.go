package query

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// asked compiles a property of the request. One that is not there reads as NULL.
func (s *scope) asked(segments []string, j *joins) (operand, error) {
	root, rest := segments[0], segments[1:]
	switch {
	case root == "auth" && len(rest) > 0:
		return s.askedAuth(rest, j)
	case root == "body" && len(rest) > 0:
		name, modifier, err := s.splitModifier(rest[0])
		if err != nil {
			return operand{}, err
		}
		if f, ok := s.base.Field(name); ok {
			if f.Kind == Relation && len(rest) > 1 {
				return s.askedRelation(f, rest[1:], j)
			}
			if len(rest) == 1 && modifier != "" && modifier != "isset" {
				return s.askedField(f, modifier, j)
			}
		}
		return s.askedValue(s.req.Body, rest)
	case root == "query" && len(rest) > 0:
		return s.askedValue(texts(s.req.Query), rest)
	case root == "headers" && len(rest) > 0:
		return s.askedValue(texts(s.req.Headers), rest)
	case root == "method" && len(rest) == 0:
		return s.literal(s.req.Method), nil
	case root == "context" && len(rest) == 0:
		return s.literal(s.req.Context), nil
	}
	return operand{}, s.invalid("unknown_field", "unknown field %q", "@request."+strings.Join(segments, "."))
}

func texts(m map[string]string) map[string]any {
	list := make(map[string]any, len(m))
	for k, v := range m {
		list[k] = v
	}
	return list
}

// askedAuth is a property of who asks: of the session, or of their record and what is related to that.
func (s *scope) askedAuth(segments []string, j *joins) (operand, error) {
	a := s.req.Auth
	if a == nil {
		o := s.literal(nil)
		o.nobody = true
		return o, nil
	}
	c, ok := s.cat.Get(a.Collection)
	known := map[string]string{"id": a.ID, "email": a.Email, "name": a.Name, "role": a.Role, "collectionName": a.Collection, "collectionId": c.ID}
	if v, is := known[segments[0]]; is && len(segments) == 1 {
		return s.literal(v), nil
	}
	if !ok {
		return s.literal(nil), nil
	}
	p, err := s.join(j, "@request.auth", place{}, c, false, false, func(alias string) string { return c.key(alias) + " = " + s.bind(a.ID) })
	if err != nil {
		return operand{}, err
	}
	w := walk{scope: s, joins: j, name: "@request.auth." + strings.Join(segments, "."), asked: true}
	return w.from(p, "@request.auth", segments)
}

// askedRelation looks at the records that a relation in the body points to.
func (s *scope) askedRelation(f Field, segments []string, j *joins) (operand, error) {
	to, ok := s.cat.Get(f.Relation)
	var ids []string
	for _, v := range listed(s.req.Body[f.Name]) {
		if id, is := v.(string); is && id != "" {
			ids = append(ids, id)
		}
	}
	if !ok || len(ids) == 0 {
		return s.literal(nil), nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return operand{}, err
	}
	start := "@request.body." + f.Name
	p, err := s.join(j, start, place{}, to, len(ids) > 1, f.multiple() || len(ids) > 1, func(alias string) string {
		return to.key(alias) + " IN (SELECT value FROM json_each(" + s.bind(string(list)) + "))"
	})
	if err != nil {
		return operand{}, err
	}
	w := walk{scope: s, joins: j, name: start, asked: true}
	return w.from(p, start, segments)
}

// askedField is a field of the collection in the body, with a modifier.
func (s *scope) askedField(f Field, modifier string, j *joins) (operand, error) {
	v, isset := s.req.Body[f.Name]
	switch modifier {
	case "lower":
		text, _ := single(v).(string)
		return s.literal(lower(text)), nil
	case "length":
		return s.literal(len(listed(v))), nil
	case "each":
		list, err := json.Marshal(listed(v))
		if err != nil {
			return operand{}, err
		}
		p, err := s.joinEach(j, "@request.body."+f.Name+":each", place{}, f.multiple() || f.Kind == JSON, s.bind(string(list)))
		return operand{sql: p.alias + ".value", many: true, all: p.all}, err
	}
	if !isset { // changed
		return s.literal(0), nil
	}
	w := walk{scope: s, joins: j, name: f.Name}
	old, err := w.field(place{collection: s.base, alias: s.alias}, "", f.Name)
	old.sql = "(" + notEqual(s.literal(number(f, single(v))), old) + ")"
	old.nulls = distinct
	return old, err
}

// askedValue looks a value up in the request.
func (s *scope) askedValue(in map[string]any, segments []string) (operand, error) {
	last := len(segments) - 1
	name, modifier, err := s.splitModifier(segments[last])
	if err != nil {
		return operand{}, err
	}
	v, ok := lookup(in, append(slices.Clone(segments[:last]), name))
	switch modifier {
	case "isset":
		if ok {
			return s.literal(1), nil
		}
		return s.literal(0), nil
	case "each", "length", "changed":
		return operand{}, s.invalid("unknown_modifier", "%q has no modifier %q here", name, modifier)
	}
	f, _ := s.base.Field(name)
	v = number(f, single(v))
	if text, is := v.(string); is && modifier == "lower" {
		v = lower(text)
	}
	return s.literal(v), nil
}

func lookup(v any, keys []string) (any, bool) {
	for _, key := range keys {
		ok := false
		switch in := v.(type) {
		case map[string]any:
			v, ok = in[key]
		case []any:
			i, err := strconv.Atoi(key)
			if ok = err == nil && 0 <= i && i < len(in); ok {
				v = in[i]
			}
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

// single is a value that SQL can compare: lists and objects are JSON text.
func single(v any) any {
	switch v.(type) {
	case nil, string, bool, float64, int, int64:
		return v
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return string(text)
}

// number makes a number of text meant for a number field: forms have no others.
func number(f Field, v any) any {
	if text, ok := v.(string); ok && f.Kind == Number {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	}
	return v
}

func listed(v any) []any {
	switch list := v.(type) {
	case nil:
		return []any{}
	case []any:
		return list
	case []string:
		all := make([]any, len(list))
		for i, text := range list {
			all[i] = text
		}
		return all
	}
	return []any{v}
}

// lower is SQLite's lower(), which knows ASCII only.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}
