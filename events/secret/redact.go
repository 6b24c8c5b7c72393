package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
)

// minSecret is the length of the shortest secret, in bytes. A shorter one would redact ordinary words.
const minSecret = 8

// Redactor replaces known secrets and their common encodings before a text is stored, because an event is stored for
// ever. It finds exact values only.
type Redactor struct {
	values *patterns
	keys   *patterns // those that are redacted in the keys of JSON objects too
}

// NewRedactor returns a redactor for the secrets. It ignores those shorter than 8 bytes.
func NewRedactor(secrets ...string) Redactor {
	p := newPatterns(formsOf(secrets))
	return Redactor{p, p}
}

// with returns a redactor for these forms too, except in the keys of objects.
func (r Redactor) with(forms [][]byte) Redactor {
	if len(forms) == 0 {
		return r
	}
	if r.keys != nil {
		forms = append(forms, r.keys.sorted...)
	}
	return Redactor{newPatterns(forms), r.keys}
}

// formsOf returns the encodings in which the secrets may occur in a text. None is shorter than minSecret.
func formsOf(secrets []string) (forms [][]byte) {
	for _, s := range secrets {
		if len(s) >= minSecret {
			for _, form := range append(base64Forms(s), s, url.QueryEscape(s), url.PathEscape(s), inJSON(s, true),
				inJSON(s, false)) {
				forms = append(forms, []byte(form))
			}
		}
	}
	return forms
}

// inJSON returns s as the content of a JSON string. Writers differ in whether they escape <, > and &.
func inJSON(s string, escapeHTML bool) string {
	text := string(quoted(s, escapeHTML))
	return text[1 : len(text)-1]
}

func quoted(s string, escapeHTML bool) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(escapeHTML)
	_ = encoder.Encode(s) // a string always encodes
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Bytes returns b with every secret replaced. It returns b itself if there is none.
func (r Redactor) Bytes(b []byte) []byte { return r.values.replace(b) }

// JSON is Bytes for the strings of a JSON text. The structure and the numbers stay. Keys of objects keep the secrets of
// Known.Conceal. A text that is not JSON is handled as bytes.
func (r Redactor) JSON(b []byte) []byte {
	if r.values == nil {
		return b
	}
	if !json.Valid(b) {
		return r.Bytes(b)
	}
	var clean []byte
	done := 0 // bytes of b that are in clean
	for at := 0; ; {
		next := bytes.IndexByte(b[at:], '"')
		if next < 0 {
			break
		}
		at += next
		end := at + stringLen(b[at:])
		if text, changed := r.text(b[at:end], isKey(b[end:])); changed {
			clean = append(append(clean, b[done:at]...), text...)
			done = end
		}
		at = end
	}
	if done == 0 {
		return b
	}
	return append(clean, b[done:]...)
}

// text redacts one JSON string, with its quotes.
func (r Redactor) text(quotedText []byte, key bool) ([]byte, bool) {
	p := r.values
	if key {
		p = r.keys
	}
	inside := quotedText[1 : len(quotedText)-1]
	escaped := bytes.IndexByte(inside, '\\') >= 0
	if escaped { // decode it, because a character can be escaped in several ways
		var s string
		_ = json.Unmarshal(quotedText, &s) // it is valid
		inside = []byte(s)
	}
	clean := p.replace(inside)
	switch {
	case len(clean) == len(inside) && bytes.Equal(clean, inside):
		return nil, false
	case escaped:
		return quoted(string(clean), false), true
	}
	return append(append([]byte{'"'}, clean...), '"'), true
}

// stringLen returns the length of the JSON string at the start of b.
func stringLen(b []byte) int {
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

// isKey reports whether a string is a key, by the text after it.
func isKey(after []byte) bool {
	after = bytes.TrimLeft(after, " \t\r\n")
	return len(after) > 0 && after[0] == ':'
}

// base64Forms returns the parts of base64 text that s determines whatever is before and after it: one for each of the
// three alignments, without the characters that depend on neighbours.
func base64Forms(s string) []string {
	var forms []string
	for pad := range 3 {
		for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := enc.EncodeToString(append(make([]byte, pad), s...))
			start, end := (pad*8+5)/6, (pad+len(s))*8/6
			forms = append(forms, text[start:end])
		}
	}
	return forms
}
