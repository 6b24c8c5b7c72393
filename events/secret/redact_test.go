package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events/eventstest"
	"pocketcoder/events/secret"
	"pocketcoder/ops/expect"
)

func TestSecretIsFoundInEveryBase64Alignment(t *testing.T) {
	canary := "sk-canary-0123456789"
	r := secret.NewRedactor(canary)
	for pad := range 6 {
		text := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("a", pad) + canary + "tail"))
		expect.Contains(t, string(r.Bytes([]byte(text))), "[redacted]") // at this alignment
	}
}

func TestSecretSplitOverWritesIsFound(t *testing.T) {
	canary := "sk-canary-0123456789"
	l := eventstest.Log(t, canary)
	text := strings.Repeat("before ", 20) + canary + strings.Repeat(" after", 20)
	for size := 1; size < len(text); size++ {
		is := is.New(t)
		var out bytes.Buffer
		w := l.Writer(&out)
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			_, err := w.Write([]byte(rest[:n]))
			is.NoErr(err)
			rest = rest[n:]
		}
		is.NoErr(w.Close())
		is.Equal(out.String(), strings.ReplaceAll(text, canary, "[redacted]")) // whatever the chunk size
	}
}

func TestSecretIsFoundInJSONOfEveryWriter(t *testing.T) {
	for name, canary := range map[string]string{
		"quote":         `pass"word&<more>`,
		"quote at end":  `password"`,
		"quote at both": `"password"`,
		"backslash":     `pass\word\`,
		"newline":       "pass\nword\t",
		"unicode":       "pässwörd🙂",
		"digits":        "12345678",
	} {
		for _, escapeHTML := range []bool{true, false} { // Go's way, and that of JSON.stringify
			t.Run(name, func(t *testing.T) {
				is := is.New(t)
				var body bytes.Buffer
				encoder := json.NewEncoder(&body)
				encoder.SetEscapeHTML(escapeHTML)
				is.NoErr(encoder.Encode(map[string]any{"text": "a " + canary + " z", canary: true, "number": 1712345678901,
					"plain": "password"}))
				clean := secret.NewRedactor(canary).JSON(body.Bytes())
				var got map[string]any
				is.NoErr(json.Unmarshal(clean, &got)) // still JSON
				is.Equal(got["text"], "a [redacted] z")
				is.Equal(got["[redacted]"], true)
				is.Equal(got["number"], 1712345678901.0)
			})
		}
	}
}

func TestSecretThatBeginsWithAnotherIsReplacedWhole(t *testing.T) {
	is := is.New(t)
	r := secret.NewRedactor("sk-canary", "sk-canary-and-its-tail")
	is.Equal(string(r.Bytes([]byte("<sk-canary-and-its-tail> <sk-canary>"))), "<[redacted]> <[redacted]>")
}

func TestWriterHoldsBackOnlyWhatMayBeASecret(t *testing.T) {
	is := is.New(t)
	var out bytes.Buffer
	w := eventstest.Log(t, "sk-canary-0123456789").Writer(&out)
	for _, step := range []struct{ write, out string }{
		{"waiting ...", "waiting ..."}, {"\nkey: sk-can", "waiting ...\nkey: "}, {"oe\n", "waiting ...\nkey: sk-canoe\n"},
	} {
		_, err := w.Write([]byte(step.write))
		is.NoErr(err)
		is.Equal(out.String(), step.out)
	}
}

func TestWriterKnowsWhatIsLearnedWhileItWrites(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t, "sk-canary-0123456789")
	var out bytes.Buffer
	w := l.Writer(&out)
	write := func(text string) {
		_, err := w.Write([]byte(text))
		is.NoErr(err)
	}
	write("a late-token ")
	l.Conceal(secret.System, "late", "late-token")
	write("b late-token late-")
	write("token.")
	is.Equal(out.String(), "a late-token b [redacted] [redacted].")
}

func TestWriterTakesOutWhatItHeldBackAndLearnedIsASecret(t *testing.T) {
	is := is.New(t)
	l := eventstest.Log(t, "sk-canary-0123456789")
	var out bytes.Buffer
	w := l.Writer(&out)
	_, err := w.Write([]byte("key: sk-canary-01"))
	is.NoErr(err)
	l.Conceal(secret.System, "late", "canary-01")
	is.NoErr(w.Close())
	is.Equal(out.String(), "key: sk-[redacted]")
}
