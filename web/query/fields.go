package query

import (
	"encoding/json"
	"strings"

	"pocketcoder/handlers/record"
	"pocketcoder/web/query/filter"
	"pocketcoder/web/query/schema"
)

// fieldSelection selects the parts of a record that are shown. Nil selects all.
type fieldSelection struct {
	whole   bool
	excerpt *excerpt // of the whole text
	parts   map[string]*fieldSelection
}

// parseFields reads a list like "id,expand.chat.title,body:excerpt(200,true)". It ignores fields that do not exist.
func parseFields(text string) (*fieldSelection, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	if len(text) > filter.MaxText {
		return nil, filter.TooLong("fields", text)
	}
	root, n := &fieldSelection{parts: map[string]*fieldSelection{}}, 0
	for field := range splitFields(text) {
		if n++; n > maxFields {
			return nil, schema.NewInvalid("fields", "too_many_fields", "it has more than %d fields", maxFields)
		}
		path, modifier, modified := strings.Cut(strings.TrimSpace(field), ":")
		at := root
		for part := range strings.SplitSeq(path, ".") {
			if at.parts == nil {
				at.parts = map[string]*fieldSelection{}
			}
			if at.parts[part] == nil {
				at.parts[part] = &fieldSelection{}
			}
			at = at.parts[part]
		}
		at.whole = true
		if modified {
			e, err := parseExcerpt(modifier)
			if err != nil {
				return nil, err
			}
			at.excerpt = e
		}
	}
	return root, nil
}

// splitFields splits at the commas outside parentheses.
func splitFields(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		from, depth := 0, 0
		for i := range len(text) {
			switch c := text[i]; {
			case c == '(':
				depth++
			case c == ')':
				depth--
			case c == ',' && depth <= 0:
				if !yield(text[from:i]) {
					return
				}
				from = i + 1
			}
		}
		yield(text[from:])
	}
}

// selected reports whether a part is shown, and returns the selection within it. A nil selection selects all.
func (p *fieldSelection) selected(name string) (*fieldSelection, bool) {
	if p == nil {
		return nil, true
	}
	part := p.parts[name]
	if part == nil {
		if part = p.parts["*"]; part == nil || !part.whole {
			return nil, false
		}
	}
	if part.whole && part.excerpt == nil {
		return nil, true
	}
	return part, true
}

func (p *fieldSelection) text(s string) string {
	if p == nil || p.excerpt == nil {
		return s
	}
	return p.excerpt.of(s)
}

// append appends the selected parts of a field's value. Only JSON has parts, and only text has excerpts.
func (p *fieldSelection) append(b []byte, f schema.Field, v any) []byte {
	if f.Kind != record.JSON {
		if p.excerpt != nil && f.Kind != record.Bool && f.Kind != record.Number {
			v = p.excerpt.of(toText(v))
		}
		return appendField(b, f, v)
	}
	var decoded any
	if err := json.Unmarshal([]byte(toText(v)), &decoded); err != nil {
		return appendField(b, f, v)
	}
	out, err := json.Marshal(p.of(decoded))
	if err != nil {
		return append(b, "null"...)
	}
	return append(b, out...)
}

// of returns the selected parts of decoded JSON. From a list it selects those of each object.
func (p *fieldSelection) of(v any) any {
	if p == nil {
		return v
	}
	if p.whole {
		if s, ok := v.(string); ok {
			return p.text(s)
		}
		return v
	}
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			if part, ok := p.selected(key); ok {
				v[key] = part.of(v[key])
			} else {
				delete(v, key)
			}
		}
	case []any:
		for i := range v {
			if _, ok := v[i].(map[string]any); ok {
				v[i] = p.of(v[i])
			}
		}
	}
	return v
}
