package query

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"pocketcoder/handlers/record"
)

// MarshalJSON returns the page in PocketBase's form. AppendJSON does the same and is faster.
func (p Page) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil), nil }

// AppendJSON appends the page as JSON on one line.
func (p Page) AppendJSON(b []byte) []byte {
	b = append(b, `{"page":`...)
	b = strconv.AppendInt(b, int64(p.Page), 10)
	b = append(b, `,"perPage":`...)
	b = strconv.AppendInt(b, int64(p.PerPage), 10)
	b = append(b, `,"totalItems":`...)
	b = strconv.AppendInt(b, int64(p.TotalItems), 10)
	b = append(b, `,"totalPages":`...)
	b = strconv.AppendInt(b, int64(p.TotalPages), 10)
	b = append(b, `,"items":[`...)
	for i := range p.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = p.Items[i].AppendJSON(b)
	}
	return append(b, "]}"...)
}

// MarshalJSON returns the record in PocketBase's form. AppendJSON does the same and is faster.
func (r Record) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

// AppendJSON appends the record as JSON on one line.
func (r Record) AppendJSON(b []byte) []byte {
	if r.shape == nil {
		return append(b, "null"...)
	}
	start := len(b)
	b = r.appendText(b, "collectionId", r.shape.c.nameID())
	b = r.appendText(b, "collectionName", r.shape.c.Name)
	b = r.appendText(b, "id", r.id)
	for i, f := range r.shape.fields {
		p, ok := r.shape.pick.selected(f.Name)
		switch {
		case !ok:
		case p == nil:
			b = appendField(appendName(b, f.Name), f, r.values[i])
		default:
			b = p.append(appendName(b, f.Name), f, r.values[i])
		}
	}
	b = r.appendText(b, "created", r.created)
	b = r.appendText(b, "updated", r.updated)
	b = r.appendExpanded(b)
	if len(b) == start {
		return append(b, "{}"...)
	}
	b[start] = '{'
	return append(b, '}')
}

// appendText appends a comma and one of the fields that every record has.
func (r Record) appendText(b []byte, name, value string) []byte {
	p, ok := r.shape.pick.selected(name)
	if !ok {
		return b
	}
	return appendString(appendName(b, name), p.text(value))
}

// appendName appends a comma and the name of a field, which needs no escapes.
func appendName(b []byte, name string) []byte {
	return append(append(append(b, `,"`...), name...), `":`...)
}

func (r Record) appendExpanded(b []byte) []byte {
	if len(r.expanded) == 0 {
		return b
	}
	b = append(b, `,"expand":{`...)
	for i, e := range r.expanded {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, e.name), ':')
		if !e.several {
			b = e.records[0].AppendJSON(b)
			continue
		}
		b = append(b, '[')
		for k, related := range e.records {
			if k > 0 {
				b = append(b, ',')
			}
			b = related.AppendJSON(b)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendField appends a value in the form of its field's kind. Invalid JSON becomes null.
func appendField(b []byte, f *Field, v any) []byte {
	switch {
	case f.Kind == record.JSON:
		return appendJSON(b, toText(v), "null")
	case f.Kind == record.Bool:
		return strconv.AppendBool(b, toBool(v))
	case f.Kind == record.Number:
		if n, ok := toNumber(v).(float64); ok {
			return strconv.AppendFloat(b, n, 'g', -1, 64)
		}
		return strconv.AppendInt(b, toNumber(v).(int64), 10)
	}
	text := toText(v)
	if f.Nullable && text == "" {
		return append(b, "null"...)
	}
	return appendString(b, text)
}

// appendJSON appends src without the white space between its tokens. It appends instead if src is not JSON.
func appendJSON(b []byte, src, instead string) []byte {
	compacted := bytes.NewBuffer(b)
	if json.Compact(compacted, []byte(src)) != nil {
		return append(b, instead...)
	}
	return compacted.Bytes()
}

const hex = "0123456789abcdef"

// appendString appends text as a JSON string. Invalid UTF-8 becomes the replacement character.
func appendString(b []byte, text string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(text[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
			b = append(append(b, text[from:i]...), `\ufffd`...)
		} else {
			b = appendEscape(append(b, text[from:i]...), c)
		}
		i++
		from = i
	}
	return append(append(b, text[from:]...), '"')
}

func appendEscape(b []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(b, '\\', c)
	case '\n':
		return append(b, '\\', 'n')
	case '\r':
		return append(b, '\\', 'r')
	case '\t':
		return append(b, '\\', 't')
	}
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}
