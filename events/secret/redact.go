package secret

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
)

// minSecret is the shortest secret that is looked for: shorter ones would blank out ordinary words.
const minSecret = 8

// Redactor takes known secrets, and their common encodings, out of what is about to be stored: a stored fact stays for
// ever. It finds exact values only; a secret it was not told of passes.
type Redactor struct {
	values *patterns
	keys   *patterns // what is looked for in the keys of JSON objects too
}

// NewRedactor knows the given secrets. Those shorter than 8 bytes are not looked for.
func NewRedactor(secrets ...string) Redactor {
	p := newPatterns(formsOf(secrets))
	return Redactor{p, p}
}

// with knows these forms of secrets too, but leaves the keys of objects alone.
func (r Redactor) with(forms [][]byte) Redactor {
	if len(forms) == 0 {
		return r
	}
	if r.keys != nil {
		forms = append(forms, r.keys.sorted...)
	}
	return Redactor{newPatterns(forms), r.keys}
}

// formsOf gives the secrets as they may stand in a text. None is shorter than a secret.
func formsOf(secrets []string) (forms [][]byte) {
	for _, s := range secrets {
		if len(s) >= minSecret {
			for _, form := range append(base64Forms(s), s, url.QueryEscape(s), url.PathEscape(s), inJSON(s, true), inJSON(s, false)) {
				forms = append(forms, []byte(form))
			}
		}
	}
	return forms
}

// inJSON is s as it stands inside a JSON string. Writers differ in whether they escape <, > and &.
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

// Bytes returns b with every secret replaced; b itself when there is none.
func (r Redactor) Bytes(b []byte) []byte { return r.values.replace(b) }

// JSON is Bytes for the strings of a JSON text, which keeps its structure: numbers stay, and of what Conceal was told the
// keys of objects stay too. What is no JSON is taken as bytes.
func (r Redactor) JSON(b []byte) []byte {
	if r.values == nil {
		return b
	}
	if !json.Valid(b) {
		return r.Bytes(b)
	}
	var clean []byte
	done := 0 // how much of b is in clean
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
	if escaped { // as its reader will see it, however it is written
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

// stringLen is the length of the JSON string that b begins with.
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

// isKey says whether a string was a key, by what follows it.
func isKey(after []byte) bool {
	after = bytes.TrimLeft(after, " \t\r\n")
	return len(after) > 0 && after[0] == ':'
}

// base64Forms are the parts of base64 text that s leaves whatever stands before and after it: one for each of the three
// alignments, without the characters that neighbours change.
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
