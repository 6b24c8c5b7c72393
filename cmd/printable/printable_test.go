package printable

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/expect/random"
)

func TestControlSequencesAreShownAsText(t *testing.T) {
	for name, c := range map[string]struct{ in, strict, stream string }{
		"colour":         {"\x1b[31mred", "␛[31mred", "␛[31mred"},
		"title":          {"\x1b]0;owned\x07", "␛]0;owned␇", "␛]0;owned␇"},
		"c1":             {"a\u009b2Jb", `a\u009b2Jb`, `a\u009b2Jb`},
		"raw c1":         {"a\x9b2Jb", `a\x9b2Jb`, `a\x9b2Jb`},
		"bidi":           {"rm \u202e/ fr-", `rm \u202e/ fr-`, `rm \u202e/ fr-`},
		"zero width":     {"a\u200bb\ufeff", `a\u200bb\ufeff`, `a\u200bb\ufeff`},
		"selectors":      {"a\ufe01\U000e0101b\u180b ❤\ufe0f", `a\ufe01\ue0101b\u180b` + " ❤\ufe0f", `a\ufe01\ue0101b\u180b` + " ❤\ufe0f"},
		"line separator": {"a\u2028b", `a\u2028b`, `a\u2028b`},
		"delete":         {"a\x7f\b", "a␡␈", "a␡␈"},
		"nul":            {"\x00", "␀", "␀"},
		"invalid":        {"\xff\xc3(", `\xff\xc3(`, `\xff\xc3(`},
		"cut rune":       {"a\xe2\x82", `a\xe2\x82`, `a\xe2\x82`},
		"text":           {"tab\tnew\nline – 日本語 👩‍💻 é", "tab\tnew\nline – 日本語 👩‍💻 é", "tab\tnew\nline – 日本語 👩‍💻 é"},
		"windows":        {"a\r\nb", "a␍\nb", "a\nb"},
		"overwritten":    {"rm -rf /\rls", "rm -rf /␍ls", "rm -rf /␍\nls"},
		"progress":       {"1%\r2%\r\n", "1%␍2%␍\n", "1%␍\n2%\n"},
		"last":           {"a\r", "a␍", "a␍\n"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			is.Equal(Visible(c.in), c.strict)
			is.Equal(Clean(c.in), c.stream)
		})
	}
}

func TestAStreamIsCleanedTheSameHoweverItIsCut(t *testing.T) {
	random.Check(t, func(t *rapid.T) {
		text := rapid.SliceOf(rapid.SampledFrom([]byte("ab\r\n\x1b\x9b\xe2\x82\xac\xff\xf0\x9f\x92\xbb"))).Draw(t, "text")
		cut := rapid.IntRange(0, len(text)).Draw(t, "cut")
		var c Cleaner
		if got := c.Clean(text[:cut]) + c.Clean(text[cut:]) + c.Flush(); got != Clean(string(text)) {
			t.Fatalf("%q, cut at %d: %q, whole %q", text, cut, got, Clean(string(text)))
		}
	})
}

func TestNothingInvisibleIsLeft(t *testing.T) {
	random.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "text"))
		for _, r := range Visible(text) + Clean(text) + OneLine(text, 10) {
			if r != '\n' && r != '\t' && r != 0x200c && r != 0x200d && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
				t.Fatalf("%q leaves %q", text, r)
			}
		}
	})
}

func TestLinesAndSizesAreForAPerson(t *testing.T) {
	is := is.New(t)
	is.Equal(OneLine("a\n  b\tc", 10), "a b c")
	is.Equal(OneLine("日本語日本語", 4), "日本語…") // whole runes
	is.Equal(FirstLines("1\n2\n3\n", 3), "1\n2\n3")
	is.Equal(FirstLines(strings.Repeat("x\n", 5), 2), "x\nx\n… 3 more lines")
	is.Equal(Size(0), "0 bytes")
	is.Equal(Size(1536), "1.5 KiB")
	is.Equal(Size(3<<30), "3.0 GiB")
}

func TestJSONHoldsNoCharacterThatActsOnATerminal(t *testing.T) {
	is := is.New(t)
	text := "a\u009b31m \u202egnp.exe\u2069 \u200f\u2028\x7f \U000e0041 Grün 日本 👩\u200d💻"
	encoded, err := json.Marshal(text)
	is.NoErr(err)
	shown := JSON(encoded)
	is.Equal(string(shown), `"a\u009b31m \u202egnp.exe\u2069 \u200f\u2028\u007f \udb40\udc41 Grün 日本 👩‍💻"`)
	var back string
	is.NoErr(json.Unmarshal(shown, &back))
	is.Equal(back, text) // the value stays the same
}
