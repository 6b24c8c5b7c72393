// Package display makes texts from outside visible to a person: pages, notifications, messengers and the terminal show
// them as this package says. A sign stands for each character that shows nothing, or that moves or hides what is
// around it. The package also quotes a text for a sentence, says why a text may look different to a person than it is,
// shortens runs of blanks, splits a diff into its lines, and writes streams, times and sizes for a terminal.
//
// Promises: a text of Exact, Prose or Quote holds only characters that can be seen, line ends, tabs and, in prose,
// spaces and joiners. A shortened text shows the length of each run that it replaces. At a terminal, no text moves the
// cursor or changes colours.
//
// It must not know what the texts are.
package display

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Misleading returns why a person may see another text than the program that receives it, "" if both see the same. Line
// ends and tabs are allowed in a command only.
func Misleading(text string, isCommand bool) string {
	if !utf8.ValidString(text) {
		return "it is not valid text"
	}
	for _, c := range text {
		if isCommand && (c == '\n' || c == '\t') {
			continue
		}
		if !Visible(c) {
			return fmt.Sprintf("it holds the character %U, which cannot be seen", c)
		}
	}
	return ""
}

// isBlank reports whether a character is invisible although Unicode calls it a letter, mark or symbol: fillers,
// joiners, and variation selectors other than U+FE0F, which ends emoji.
func isBlank(c rune) bool {
	return c == 0x2800 || c != 0xFE0F && unicode.In(c, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point)
}

// Visible reports whether a person can see a character.
func Visible(c rune) bool {
	if c < utf8.RuneSelf {
		return c >= ' ' && c < 0x7f
	}
	return unicode.IsPrint(c) && !isBlank(c)
}

// readable reports whether a character stays in a text that is only read: besides what a person sees, spaces of other
// widths, and the joiners of Persian and of emoji, which neither hide nor reorder.
func readable(c rune) bool {
	return Visible(c) || unicode.Is(unicode.Zs, c) || c == '\u200c' || c == '\u200d'
}

// Piece is a run of a text: characters that a person sees, or the sign for one that a person would not see.
type Piece struct {
	Text   string
	Hidden bool
}

// ExactPieces splits a text that a person decides on. Line ends, tabs and spaces stay; each other character that shows
// nothing becomes a sign.
func ExactPieces(text string) []Piece { return pieces(text, Visible) }

// ProsePieces splits a text that is only read. Spaces of other widths, and joiners, stay too.
func ProsePieces(text string) []Piece { return pieces(text, readable) }

// Exact is ExactPieces as one text.
func Exact(text string) string { return join(ExactPieces(text)) }

// Prose is ProsePieces as one text.
func Prose(text string) string { return join(ProsePieces(text)) }

func pieces(text string, stays func(rune) bool) (all []Piece) {
	start := 0 // of the characters that a person sees
	flush := func(end int) {
		if start < end {
			all = append(all, Piece{Text: text[start:end]})
		}
	}
	for i := 0; i < len(text); {
		c, n := utf8.DecodeRuneInString(text[i:])
		invalid := c == utf8.RuneError && n == 1
		if invalid || c != '\n' && c != '\t' && !stays(c) {
			flush(i)
			all = append(all, Piece{sign(c, text[i:i+n]), true})
			start = i + n
		}
		i += n
	}
	flush(len(text))
	return all
}

func join(pieces []Piece) string {
	if len(pieces) == 1 {
		return pieces[0].Text
	}
	var b strings.Builder
	for _, p := range pieces {
		b.WriteString(p.Text)
	}
	return b.String()
}

// sign is Unicode's picture of a control character, such as ␛ for ESC, the number of another character, and the value
// of a byte that is no character.
func sign(c rune, raw string) string {
	switch {
	case c < ' ':
		return string('␀' + c)
	case c == 0x7f:
		return "␡"
	case c == utf8.RuneError:
		return fmt.Sprintf("<0x%02X>", raw[0])
	}
	return fmt.Sprintf("<U+%04X>", c)
}

// maxQuoted is the length of a quoted text, in runes.
const maxQuoted = 60

// Quote quotes a text for a sentence, on one line. It cuts off the end of a long text.
func Quote(s string) string { return QuoteStart(s, maxQuoted) }

// QuotePath quotes a path for a sentence, on one line. It cuts off the start of a long path, because the file's name
// says most.
func QuotePath(s string) string {
	r := []rune(printable(s))
	if len(r) > maxQuoted {
		return "“…" + string(r[len(r)-maxQuoted+1:]) + "”"
	}
	return "“" + string(r) + "”"
}

// QuoteStart quotes at most so many runes of a text.
func QuoteStart(s string, most int) string {
	r := []rune(printable(s))
	if len(r) > most {
		return "“" + string(r[:most-1]) + "…”"
	}
	return "“" + string(r) + "”"
}

// printable returns s on one line, with a replacement for each character that shows nothing.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' {
			return ' '
		}
		if !Visible(c) {
			return '�'
		}
		return c
	}, strings.ToValidUTF8(s, "�"))
}

var (
	blankRun = regexp.MustCompile(`[\t\p{Zs}]+`)
	emptyRun = regexp.MustCompile(`\n([\t\p{Zs}]*\n)+`)
)

// Width returns the maximal number of columns that a terminal or a phone needs for a character. Programs disagree about
// joined characters: a sequence of Hangul U+1100 is one letter to Unicode, and some terminals draw each of them. So
// each character counts by itself, and from U+1100 on as wide.
func Width(c rune) int {
	switch {
	case c == '\t':
		return 8
	case c < 0x1100:
		return 1
	}
	return 2
}

// ShortenEmptyLines replaces each run of more than limit empty lines with ⏎×N.
func ShortenEmptyLines(text string, limit int) string {
	return emptyRun.ReplaceAllStringFunc(text, func(run string) string {
		if lines := strings.Count(run, "\n") - 1; lines > limit {
			return fmt.Sprintf("\n⏎×%d\n", lines)
		}
		return run
	})
}

// ShortenBlanks replaces each run of more than limit blanks with ␠×N, and each run of more than limit empty lines with
// ⏎×N. A longer run would move the text before or after it off the screen.
func ShortenBlanks(text string, limit int) string {
	text = ShortenEmptyLines(text, limit)
	return blankRun.ReplaceAllStringFunc(text, func(run string) string {
		if blanks := utf8.RuneCountInString(run); blanks > limit {
			return fmt.Sprintf("␠×%d", blanks)
		}
		return run
	})
}

// DiffLine is a line of a unified diff, with its line end.
type DiffLine struct {
	Kind byte // '+', '-' or ' ' in a hunk, '@' for the head of a hunk, 0 for the name of a file
	Text string
}

// hunkHead matches the head of a hunk, with its numbers of old and of new lines; without a number it has one.
var hunkHead = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@`)

// Diff returns the lines of a unified diff, without what OpenCode writes above each file, and without the name of the
// file if there is only one. It leaves out nothing of a hunk.
func Diff(text string) (lines []DiffLine) {
	before, after := 0, 0 // lines of the hunk that are still to come
	for line := range strings.Lines(text) {
		between, kind := before <= 0 && after <= 0, line[0]
		if between && (strings.HasPrefix(line, "Index: ") || strings.Trim(line, "=") == "\n") {
			continue
		}
		switch head := hunkHead.FindStringSubmatch(line); {
		case between && head != nil:
			before, after = hunkLength(head[1]), hunkLength(head[2])
		case between && (strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ")):
			kind = 0
		case kind == '-':
			before--
		case kind == '+':
			after--
		case kind != '@' && kind != '\\':
			kind = ' '
			before, after = before-1, after-1
		}
		lines = append(lines, DiffLine{kind, line})
	}
	return withoutName(lines)
}

func hunkLength(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 1
	}
	return n
}

// withoutName leaves out the name above a diff of one file that keeps its name.
func withoutName(lines []DiffLine) []DiffLine {
	names := 0
	for _, l := range lines {
		if l.Kind == 0 {
			names++
		}
	}
	if names == 2 && lines[0].Kind == 0 && lines[1].Kind == 0 && lines[0].Text[4:] == lines[1].Text[4:] {
		return lines[2:]
	}
	return lines
}

// Cut returns a text, or its first bytes with "…" if it has more than most bytes.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// ShortLine returns a text as one line of at most most runes. It does not make invisible characters visible.
func ShortLine(text string, most int) string {
	line := []rune(strings.Join(strings.Fields(text), " "))
	if len(line) > most {
		line = append(line[:most-1], '…')
	}
	return string(line)
}
