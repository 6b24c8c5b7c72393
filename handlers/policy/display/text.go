// Package display puts texts that come from outside into sentences for a person: quoted, on one line, and cut to a
// length. It also says why a text may look different to a person than it is, shortens runs of blanks, and splits a
// diff into its lines.
//
// Promises: a quoted text holds only characters that can be seen. A shortened text shows the length of each run that
// it replaces.
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

// Blank reports whether a character is invisible although Unicode calls it a letter, mark or symbol: fillers, joiners,
// and variation selectors other than U+FE0F, which ends emoji.
func Blank(c rune) bool {
	return c == 0x2800 || c != 0xFE0F && unicode.In(c, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point)
}

// Visible reports whether a person can see a character.
func Visible(c rune) bool {
	if c < utf8.RuneSelf {
		return c >= ' ' && c < 0x7f
	}
	return unicode.IsPrint(c) && !Blank(c)
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
