package client

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/matryer/is"
)

func TestJSONThatNestsTooDeepIsCut(t *testing.T) {
	nested := func(levels int) string {
		return strings.Repeat(`{"a]\"[":[`, levels/2) + `1` + strings.Repeat(`],"b":"}\\"}`, levels/2)
	}
	whole := func(r io.Reader) io.Reader { return r }
	readers := map[string]func(io.Reader) io.Reader{"whole": whole, "byte by byte": iotest.OneByteReader}
	for name, read := range readers {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			cut := func(text string) string {
				out, err := io.ReadAll(&depthReader{ReadCloser: io.NopCloser(read(strings.NewReader(text)))})
				is.NoErr(err)
				return string(out)
			}
			for _, text := range []string{"", `"[{"`, nested(maxDepth), strings.Repeat(nested(20)+"\n", 100)} {
				is.Equal(cut(text), text)
			}
			deep := cut(nested(maxDepth+2) + ` ` + nested(40_000) + ` {}`)
			is.Equal(strings.Count(deep, `[""]`)+strings.Count(deep, `:"",`), 2)
			dec := json.NewDecoder(strings.NewReader(deep))
			for range 3 {
				var v any
				is.NoErr(dec.Decode(&v))
			}
		})
	}
}
