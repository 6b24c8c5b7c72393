package push

import (
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/display"
)

// Limits of what a notification shows, in bytes. Push services accept 4 KiB; JSON may double a text, and addresses are
// added.
const (
	maxTitle = 120
	maxShown = 900 // of the request or the answer
	maxLine  = 150 // of each line that is added to that: where, why, which chat
)

// Limits of what a phone shows of a notification without a further tap. Android cuts off longer texts.
const (
	maxRows    = 10
	rowColumns = 40 // a longer line is wrapped
	maxBlanks  = 8  // of a run of blanks or of empty lines; a longer run is shown by its length
)

// fits reports whether a phone shows a whole text.
func fits(text string) bool {
	rows := 0
	for line := range strings.SplitSeq(text, "\n") {
		rows += rowsOf(line)
	}
	return rows <= maxRows
}

// rowsOf returns how many rows a line takes on a phone, which wraps lines at blanks and breaks long words.
func rowsOf(line string) int {
	rows, column := 1, 0
	for word := range strings.SplitSeq(line, " ") {
		width := 0
		for _, c := range word {
			width += display.Width(c)
		}
		switch {
		case column == 0:
			column = width
		case column+1+width <= rowColumns:
			column += 1 + width
		default:
			rows, column = rows+1, width
		}
		for column > rowColumns {
			rows, column = rows+1, column-rowColumns
		}
	}
	return rows
}

// shown returns at most so many bytes of a text as one line, and reports whether that is the whole text. It redacts
// secrets and replaces invisible characters and long runs of blanks with visible signs.
func (p *Push) shown(text string, most int) (line string, whole bool) {
	return p.show(text, most, "␊")
}

// shownLines is like shown, but keeps line breaks and quotes the lines.
func (p *Push) shownLines(text string, most int) (lines string, whole bool) {
	return p.show(strings.TrimRight(text, "\n"), most, "\n")
}

func (p *Push) show(text string, most int, newline string) (shown string, whole bool) {
	clean := string(p.Log.Redactor().Bytes([]byte(text))) // before anything is cut off: half a secret would pass
	signs := Visible(clean)
	if newline == "\n" {
		signs = quote(signs)
	}
	var b strings.Builder
	for _, r := range signs {
		sign := string(r)
		if r == '\n' {
			sign = newline
		}
		if b.Len()+len(sign) > most {
			return b.String() + "…", false
		}
		b.WriteString(sign)
	}
	return b.String(), clean == text && utf8.ValidString(text)
}

// Quoted is Visible with each line after the first indented, except lines of a diff, so that no line looks like one
// that PocketCoder wrote. All messages to people outside the app quote what a model wrote in this way.
func Quoted(text string) string { return quote(Visible(strings.TrimRight(text, "\n"))) }

func quote(text string) string {
	first, rest, more := strings.Cut(text, "\n")
	if !more {
		return text
	}
	lines := strings.Split(rest, "\n")
	for i, line := range lines {
		if line != "" && !diffLine(line) {
			lines[i] = "  " + line
		}
	}
	return first + "\n" + strings.Join(lines, "\n")
}

// Visible replaces tabs and invisible characters other than line breaks with signs, and long runs of blanks with their
// length.
func Visible(text string) string {
	return display.ShortenBlanks(strings.ReplaceAll(display.Exact(text), "\t", "␉"), maxBlanks)
}

// diffLine reports whether a line is one of a unified diff.
func diffLine(line string) bool { return line != "" && strings.ContainsRune("+-@ \\", rune(line[0])) }
