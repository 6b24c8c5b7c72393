package site

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// minCompressed is the smallest answer that is compressed, in bytes. A smaller one fits into one packet anyway.
const minCompressed = 1 << 10

// compressed returns a body in the encoding that it sets in the header: with gzip if the client takes it. A page has
// no secret beside text of others that could be guessed from its length: forms have no tokens.
func compressed(w http.ResponseWriter, r *http.Request, body []byte) []byte {
	w.Header().Add("Vary", "Accept-Encoding")
	if len(body) < minCompressed || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return body
	}
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed) // a level that there is
	_, _ = z.Write(body)                            // a buffer takes all
	_ = z.Close()
	w.Header().Set("Content-Encoding", "gzip")
	return b.Bytes()
}
