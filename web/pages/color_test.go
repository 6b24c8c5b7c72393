package pages_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"
	"pgregory.net/rapid"

	"pocketcoder/ops/expect"
	"pocketcoder/web/pages/visible"
)

func TestColorsOfOutputBecomeClasses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain\n":                                      `[:plain\n]`,
		"a \x1b[31mred\x1b[0m b":                       `[:a ][red:red][: b]`,
		"\x1b[1;32mok\x1b[22m ok\x1b[m":                `[bold green:ok][green: ok]`,
		"\x1b[94mbright\x1b[39m":                       `[blue:bright]`,
		"\x1b[38;5;196mx\x1b[38;2;10;200;10my":         `[red:x][green:y]`,
		"\x1b[38:5:244mgrey":                           `[white:grey]`,
		"\x1b[7;41minverse":                            `[:inverse]`,
		"\x1b[7minverse":                               `[marked:inverse]`,
		"\x1b[30;40mhidden? \x1b[8mno":                 `[marked black:hidden? ][marked black:no]`, // nothing is
		"10%\r50%\r100%\ndone\r\n":                     `[:\r100%\n][:done\n]`,
		"\x1b[32m10%\r\x1b[31m50%\r\n":                 `[red:\r50%\n]`,
		"\rfirst":                                      `[:first]`,
		"\x1b[2J\x1b[1;1H\x1b]0;title\x07\x1b[?25l":    `[:\x1b[2J\x1b[1;1H\x1b]0;title\a\x1b[?25l]`,
		"\x1b[31":                                      `[:\x1b[31]`,
		"\x1b[38;5mx\x1b[38mx\x1b[999999999999999;1my": `[:x][:x][bold:y]`,
		"": ``,
	} {
		is := is.New(t)
		got := ""
		for _, token := range visible.Colored(text) {
			got += fmt.Sprintf("[%s:%s]", token.Class, strings.Trim(fmt.Sprintf("%q", token.Text), `"`))
		}
		is.Equal(got, want) // as a terminal shows it
	}
}

// What is no colour and no overwritten line is in the tokens as it was printed.
func TestNothingOfOutputIsLost(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{"a", "ü", "\x00", "\x1b", "[", "31", "m", ";", "\n", "\x1b[1m", "\u202e",
		"\x1b]8;;x\x07", "\xff"})
	expect.Property(t, func(t *rapid.T) {
		text, shown := strings.Join(rapid.SliceOf(piece).Draw(t, "text"), ""), ""
		for _, token := range visible.Colored(text) {
			shown += token.Text
		}
		for {
			begin := strings.Index(text, "\x1b[")
			if begin < 0 {
				break
			}
			end := begin + 2 + len(text[begin+2:]) - len(strings.TrimLeft(text[begin+2:], "0123456789;"))
			at, found := strings.CutPrefix(shown, text[:begin])
			if !found {
				t.Fatalf("%q is not shown in %q", text[:begin], shown)
			}
			shown, text = at, text[begin:]
			if end -= begin; end < len(text) && text[end] == 'm' {
				text = text[end+1:]
				continue
			}
			if shown, found = strings.CutPrefix(shown, text[:2]); !found {
				t.Fatalf("%q is not shown in %q", text, at)
			}
			text = text[2:]
		}
		if text != shown {
			t.Fatalf("%q is shown as %q", text, shown)
		}
	})
}
