package export

import (
	"strings"
	"testing"

	"github.com/matryer/is"
)

func TestARecordingKeepsColoursAndLeavesOutWhatReachesTheTerminalItself(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a\nb\r\nc":                                "a\r\nb\r\nc",
		"\x1b[1;31mred\x1b[0m":                     "\x1b[1;31mred\x1b[0m",
		"a\x1b]52;c;AAAA\x07b":                     "ab", // the clipboard
		"a\x1b]0;title\x1b\\b":                     "ab",
		"a\x1bP1;2|x\x1b\\b":                       "ab",
		"a\x1b_x\x1b\\b\x1b^y\x1b\\c":              "abc",
		"a\u009d52;c;AAAA\u0007b":                  "a52;c;AAAA\ab",
		"a\x1b[\x1b]52;c;AAAA\x07b":                "ab", // a sequence within another one
		"a\x1b[3\x1b]0;title\x07b":                 "ab",
		"a\x1b(\x1b]52;c;AAAA\x07b":                "ab",
		"a\x1b\x1b]52;c;AAAA\x07b":                 "ab",
		"a\x1b[\u009d52;c;AAAA\x07b":               "a52;c;AAAA\ab",
		"a\x1b[" + strings.Repeat("1;", 99) + "mb": "a" + strings.Repeat("1;", 99)[maxSequence-1:] + "mb",
		"\x1b(0qq\x1b(B":                           "\x1b(0qq\x1b(B",
		"50%\r60%\b\t.":                            "50%\r60%\b\t.",
		"a\x00b\x0ec":                              "abc",
		"ü€😀":                                      "ü€😀",
		"a\xffb":                                   "a�b",
		"\x1b]never ends " + "and on\x1b[":         "",
	} {
		for _, size := range []int{1, 2, 3, 1000} { // however the output is cut
			p := &printedStream{}
			var got strings.Builder
			for rest := in; rest != ""; {
				n := min(size, len(rest))
				got.WriteString(p.text([]byte(rest[:n]), n == len(rest)))
				rest = rest[n:]
			}
			if got.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", in, size, got.String(), want)
			}
		}
	}
	is.New(t).Equal((&printedStream{terminal: true}).text([]byte("a\nb"), true), "a\nb") // which wrote its CR itself
}
