package query

import (
	"encoding/json"
	"html"
	"strconv"
	"strings"
	"unicode"

	"pocketcoder/handlers/record"
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
	if len(text) > maxText {
		return nil, tooLong("fields", text)
	}
	root, n := &fieldSelection{parts: map[string]*fieldSelection{}}, 0
	for field := range splitFields(text) {
		if n++; n > maxFields {
			return nil, newInvalid("fields", "too_many_fields", "it has more than %d fields", maxFields)
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
func (p *fieldSelection) append(b []byte, f Field, v any) []byte {
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

// excerpt removes the HTML from a text and cuts the text to a number of runes.
type excerpt struct {
	runes    int
	ellipsis bool
}

func parseExcerpt(modifier string) (*excerpt, error) {
	name, args, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(modifier), ")"), "(")
	if name != "excerpt" || !ok {
		return nil, newInvalid("fields", "unknown_modifier", "unknown modifier %q", modifier)
	}
	length, ellipsis, _ := strings.Cut(args, ",")
	runes, err := strconv.Atoi(strings.TrimSpace(length))
	if err != nil || runes <= 0 {
		return nil, newInvalid("fields", "invalid_arguments", "excerpt takes a length above 0, got %q", length)
	}
	e := &excerpt{runes: runes}
	if ellipsis = strings.TrimSpace(ellipsis); ellipsis != "" {
		if e.ellipsis, err = strconv.ParseBool(ellipsis); err != nil {
			return nil, newInvalid("fields", "invalid_arguments", "excerpt's second argument is true or false, got %q",
				ellipsis)
		}
	}
	return e, nil
}

func (e *excerpt) of(s string) string {
	runes := []rune(strings.Join(strings.FieldsFunc(withoutTags(s), unicode.IsSpace), " "))
	if len(runes) <= e.runes {
		return string(runes)
	}
	s = strings.TrimSpace(string(runes[:e.runes]))
	if e.ellipsis {
		s += "..."
	}
	return s
}

// hidden are elements whose content is not shown. inline are elements that do not separate words.
var (
	hidden = words("head style script iframe embed applet object svg img picture dialog template button form textarea input select option")
	inline = words("a abbr acronym b bdo big br button cite code em i label q small span strong strike sub sup time")
)

func words(list string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(list) {
		set[word] = true
	}
	return set
}

// withoutTags returns the text of HTML.
func withoutTags(s string) string {
	var b strings.Builder
	for s != "" {
		text, rest, found := strings.Cut(s, "<")
		b.WriteString(html.UnescapeString(text))
		if !found {
			break
		}
		s = afterTag(&b, rest)
	}
	return b.String()
}

// afterTag skips the tag at the start of rest. It also skips the content of an element that is not shown.
func afterTag(b *strings.Builder, rest string) string {
	name := strings.TrimPrefix(rest, "/")
	if comment, ok := strings.CutPrefix(rest, "!--"); ok {
		_, rest, _ = strings.Cut(comment, "-->")
		return rest
	}
	if name == "" || name[0] != '!' && !unicode.IsLetter(rune(name[0])) { // not a tag: a < b
		b.WriteByte('<')
		return rest
	}
	_, after, _ := strings.Cut(rest, ">")
	name = strings.ToLower(name[:strings.IndexFunc(name+">",
		func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })])
	if !inline[name] {
		b.WriteByte(' ')
	}
	if void := name == "img" || name == "input" || name == "embed"; hidden[name] && !void && rest[0] != '/' {
		end := strings.Index(strings.ToLower(after), "</"+name)
		if end < 0 {
			return ""
		}
		_, after, _ = strings.Cut(after[end:], ">")
	}
	return after
}
