package events

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/url"
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
func NewRedactor(secrets ...string) Redactor {
	var r Redactor
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		quoted, _ := json.Marshal(s)
		for _, p := range append(base64Forms(s), s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(string(quoted), `"`)) {
			r.patterns = append(r.patterns, []byte(p))
		}
	}
	return r
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

// Writer redacts a stream: it holds back as many bytes as a secret may be cut at, so one that is split over two writes
// is still found. Close writes the rest; it does not close w.
func (r Redactor) Writer(w io.Writer) io.WriteCloser {
	hold := 0
	for _, p := range r.patterns {
		hold = max(hold, len(p)-1)
	}
	return &redactWriter{r: r, w: w, hold: hold}
}

type redactWriter struct {
	r    Redactor
	w    io.Writer
	hold int
	rest []byte
}

func (w *redactWriter) Write(p []byte) (int, error) {
	if w.hold == 0 {
		return w.w.Write(p)
	}
	clean := w.r.Bytes(append(w.rest, p...))
	keep := min(w.hold, len(clean))
	if _, err := w.w.Write(clean[:len(clean)-keep]); err != nil {
		return 0, err
	}
	w.rest = append([]byte(nil), clean[len(clean)-keep:]...)
	return len(p), nil
}

func (w *redactWriter) Close() error {
	_, err := w.w.Write(w.rest)
	w.rest = nil
	return err
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
