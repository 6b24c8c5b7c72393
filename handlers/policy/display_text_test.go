package policy_test

import (
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
