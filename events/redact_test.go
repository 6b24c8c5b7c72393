package events_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
)

func TestSecretIsFoundInEveryBase64Alignment(t *testing.T) {
	is := is.New(t)
	secret := "sk-canary-0123456789"
	r := events.NewRedactor(secret)
	for pad := range 6 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", pad) + secret + "tail"))
		is.True(strings.Contains(string(r.Bytes([]byte(text))), "[redacted]")) // at this alignment
	}
}

func TestSecretSplitOverWritesIsFound(t *testing.T) {
	secret := "sk-canary-0123456789"
	text := strings.Repeat("before ", 20) + secret + strings.Repeat(" after", 20)
	for size := 1; size < len(text); size++ {
		is := is.New(t)
		var out bytes.Buffer
		w := events.NewRedactor(secret).Writer(&out)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			_, err := w.Write([]byte(rest[:n]))
			is.NoErr(err)
			rest = rest[n:]
		}
		is.NoErr(w.Close())
		is.Equal(out.String(), strings.ReplaceAll(text, secret, "[redacted]")) // whatever the chunk size
	}
}
