package events

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// redacted stands where a secret stood.
const redacted = "[redacted]"

// minSecret is the shortest secret that is looked for: shorter ones would blank out ordinary words.
const minSecret = 8

// Redactor takes known secrets, and their common encodings, out of what is about to be stored: a stored fact stays for
// ever. It finds exact values only; a secret it was not told of passes.
type Redactor struct {
	patterns [][]byte
}

// NewRedactor knows the given secrets. Those shorter than 8 bytes are not looked for.
func NewRedactor(secrets ...string) Redactor { return Redactor{}.with(secrets) }

// with knows these secrets too.
func (r Redactor) with(secrets []string) Redactor {
	r.patterns = slices.Clone(r.patterns)
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		for _, p := range append(base64Forms(s), s, url.QueryEscape(s), url.PathEscape(s), inJSON(s, true), inJSON(s, false)) {
			r.patterns = append(r.patterns, []byte(p))
		}
	}
	// The longest first: a secret that begins with another one is replaced whole.
	slices.SortFunc(r.patterns, func(a, b []byte) int { return cmp.Or(len(b)-len(a), bytes.Compare(a, b)) })
	r.patterns = slices.CompactFunc(r.patterns, bytes.Equal)
	return r
}

// inJSON is s as it stands inside a JSON string. Writers differ in whether they escape <, > and &.
func inJSON(s string, escapeHTML bool) string {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(escapeHTML)
	_ = encoder.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\"\n")[1:]
}

// Bytes returns b with every secret replaced; b itself when there is none.
func (r Redactor) Bytes(b []byte) []byte {
	for _, p := range r.patterns {
		if bytes.Contains(b, p) {
			b = bytes.ReplaceAll(b, p, []byte(redacted))
		}
	}
	return b
}

// JSON is Bytes for a JSON text, and gives one back: where a replacement would break it, as in the digits of a number, only
// strings are looked at.
func (r Redactor) JSON(b []byte) []byte {
	if clean := r.Bytes(b); json.Valid(clean) {
		return clean
	}
	return jsonString.ReplaceAllFunc(b, func(s []byte) []byte {
		return slices.Concat(s[:1], r.Bytes(s[1:len(s)-1]), s[len(s)-1:])
	})
}

var jsonString = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Writer redacts a stream: it holds back an end that may be the beginning of a secret, so one that is split over two
// writes is still found, and nothing else. Close writes the rest; it does not close w.
func (r Redactor) Writer(w io.Writer) io.WriteCloser { return &redactWriter{r: r, w: w} }

type redactWriter struct {
	r    Redactor
	w    io.Writer
	rest []byte
}

func (w *redactWriter) Write(p []byte) (int, error) {
	clean := w.r.Bytes(append(w.rest, p...))
	ready := len(clean) - w.r.begun(clean)
	w.rest = bytes.Clone(clean[ready:])
	return len(p), w.pass(clean[:ready])
}

func (w *redactWriter) pass(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	_, err := w.w.Write(p)
	return err
}

// begun is how many bytes at the end of b are the beginning of a secret.
func (r Redactor) begun(b []byte) int {
	longest := 0
	for _, p := range r.patterns {
		for n := min(len(p)-1, len(b)); n > longest; n-- {
			if bytes.HasSuffix(b, p[:n]) {
				longest = n
			}
		}
	}
	return longest
}

func (w *redactWriter) Close() error {
	rest := w.rest
	w.rest = nil
	return w.pass(rest)
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
