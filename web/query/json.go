package query

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

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
