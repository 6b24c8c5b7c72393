package policy_test

import (
	"cmp"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/policy/display"
)

func TestLongRunsOfBlanksAreShownByTheirLength(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for text, want := range map[string]string{
		"":                                 "",
		"a" + strings.Repeat(" ", 8) + "b": "a" + strings.Repeat(" ", 8) + "b",
		"a" + strings.Repeat(" ", 9) + "b": "a␠×9b",
		"a \t\u3000" + strings.Repeat("\t ", 4) + "b\n" + strings.Repeat(" ", 700): "a␠×11b\n␠×700",
		// 8 empty lines
		"a" + strings.Repeat("\n", 9) + "b":           "a" + strings.Repeat("\n", 9) + "b",
		"a" + strings.Repeat("\n", 10) + "b":          "a\n⏎×9\nb",
		"a" + strings.Repeat("\n \t", 400) + "b\n\nc": "a\n⏎×399\n \tb\n\nc",
	} {
		is.Equal(display.ShortenBlanks(text, 8), want)
	}
}

func TestWhatAPersonWouldNotSeeIsShownAsASign(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, exact, prose string }{
		{"\x1b]0;owned\x07\r", "␛]0;owned␇␍", ""},
		{"a\x7f\b\x00", "a␡␈␀", ""},
		{"a\u009b2Jb", "a<U+009B>2Jb", ""},
		{"a\x9b2Jb\xff\xc3(\xe2\x82", "a<0x9B>2Jb<0xFF><0xC3>(<0xE2><0x82>", ""},
		{"rm \u202e/ fr-\u2066", "rm <U+202E>/ fr-<U+2066>", ""},
		{"a\u200bb\ufeff\u00ad", "a<U+200B>b<U+FEFF><U+00AD>", ""},
		{"a\ufe01\U000e0101b\u180b\U000e0041", "a<U+FE01><U+E0101>b<U+180B><U+E0041>", ""},
		{"\u3164\u2800\u115f\ue000", "<U+3164><U+2800><U+115F><U+E000>", ""},
		{"a\u2028b\u2029", "a<U+2028>b<U+2029>", ""},
		{"ls\u00a0-l\u3000", "ls<U+00A0>-l<U+3000>", "ls\u00a0-l\u3000"},
		{"make\u200d test\u200c", "make<U+200D> test<U+200C>", "make\u200d test\u200c"},
		{"tab\tnew\nline – 日本語 é ❤\ufe0f \ufffd", "tab\tnew\nline – 日本語 é ❤\ufe0f \ufffd", ""},
	} {
		is := is.New(t)
		is.Equal(display.Exact(c.text), c.exact)
		is.Equal(display.Prose(c.text), cmp.Or(c.prose, c.exact))
	}
}
