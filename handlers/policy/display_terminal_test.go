package policy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/handlers/policy/display"
	"pocketcoder/ops/expect"
)

func TestTheLinesOfAStreamEndAsItsWriterMeant(t *testing.T) {
	for text, want := range map[string]string{
		"a\r\nb":          "a\nb",
		"rm -rf /\rls":    "rm -rf /␍\nls",
		"1%\r2%\r\n":      "1%␍\n2%\n",
		"a\r":             "a␍\n",
		"a\xe2\x82":       "a<0xE2><0x82>",
		"\x1b[31m日本語 👩‍💻": "␛[31m日本語 👩‍💻",
	} {
		is.New(t).Equal(display.Clean(text), want)
	}
}

func TestAStreamIsCleanedTheSameHoweverItIsCut(t *testing.T) {
	expect.Property(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("ab\r\n\x1b\x9b\xe2\x82\xac\xff\xf0\x9f\x92\xbb"))).Draw(t, "text")
		cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
		var c display.Cleaner
		if got := c.Clean(text[:cut]) + c.Clean(text[cut:]) + c.Flush(); got != display.Clean(string(text)) {
			t.Fatalf("%q, cut at %d: %q, whole %q", text, cut, got, display.Clean(string(text)))
		}
	})
}

func TestNothingInvisibleIsLeft(t *testing.T) {
	expect.Property(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		for _, r := range display.Clean(text) + display.VisibleLine(text) + display.OneLine(text, 10) {
			if r != '\n' && r != '\t' && r != 0x200c && r != 0x200d && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				t.Fatalf("%q leaves %q", text, r)
			}
		}
	})
}

func TestLinesAndSizesAreForAPerson(t *testing.T) {
	is := is.New(t)
	is.Equal(display.OneLine("a\n  b\tc", 10), "a b c")
	is.Equal(display.OneLine("日本語日本語", 4), "日本語…") // whole runes
	is.Equal(display.FirstLines("1\n2\n3\n", 3), "1\n2\n3")
	is.Equal(display.FirstLines(strings.Repeat("x\n", 5), 2), "x\nx\n… 3 more lines")
	is.Equal(display.Size(0), "0 bytes")
	is.Equal(display.Size(1536), "1.5 KiB")
	is.Equal(display.Size(3<<30), "3.0 GiB")
}

func TestJSONHoldsNoCharacterThatActsOnATerminal(t *testing.T) {
	is := is.New(t)
	text := "a\u009b31m \u202egnp.exe\u2069 \u200f\u2028\x7f \U000e0041 Grün 日本 👩\u200d💻"
	encoded, err := json.Marshal(text)
	is.NoErr(err)
	shown := display.EscapeJSON(encoded)
	is.Equal(string(shown), `"a\u009b31m \u202egnp.exe\u2069 \u200f\u2028\u007f \udb40\udc41 Grün 日本 👩‍💻"`)
	var back string
	is.NoErr(json.Unmarshal(shown, &back))
	is.Equal(back, text) // the value stays the same
}
