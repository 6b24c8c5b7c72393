// Package visible renders untrusted text. It names hidden characters, and shows where each link leads.
//
// Promises: nothing in a text runs, hides or reorders what a person reads. A text of any form is rendered in little
// time and memory.
//
// It must not know what the texts are about.
package visible

import (
	"fmt"
	"strings"
	"unicode"

	"pocketcoder/handlers/policy/display"
)

// Piece is a run of a text: characters that a person sees, or the name of one that they would not see.
type Piece struct {
	Text   string
	Hidden bool
}

// maxEmptyLines is the longest run of empty lines that is shown as it is.
const maxEmptyLines = 8

// Exact splits a text that a person decides on. Line ends, tabs and spaces stay; every other character that shows
// nothing, or moves what is around it, becomes its name. A long run of empty lines becomes its length, ⏎×N: it would
// move what follows off the screen.
func Exact(text string) []Piece {
	return pieces(display.ShortenEmptyLines(text, maxEmptyLines), display.Visible)
}

// Prose splits a text that is only read, not decided on. Spaces of other widths, and the joiners in emoji and Persian,
// stay.
func Prose(text string) []Piece {
	return pieces(text, func(c rune) bool {
		return display.Visible(c) || unicode.Is(unicode.Zs, c) || c == '\u200c' || c == '\u200d'
	})
}

func pieces(text string, visible func(rune) bool) (all []Piece) {
	var seen strings.Builder
	flush := func() {
		if seen.Len() > 0 {
			all = append(all, Piece{Text: seen.String()})
			seen.Reset()
		}
	}
	for _, c := range text {
		if c == '\n' || c == '\t' || visible(c) {
			seen.WriteRune(c)
			continue
		}
		flush()
		all = append(all, Piece{characterName(c), true})
	}
	flush()
	return all
}

// characterName is Unicode's picture of a control character, such as ␛ for ESC, and the number of any other character.
func characterName(c rune) string {
	switch {
	case c < 0x20:
		return string(0x2400 + c)
	case c == 0x7f:
		return "␡"
	}
	return fmt.Sprintf("<U+%04X>", c)
}

// Plain returns prose as one text, for a place that can hold no element.
func Plain(text string) string {
	var b strings.Builder
	for _, p := range Prose(text) {
		b.WriteString(p.Text)
	}
	return b.String()
}

// Line is Plain on one line.
func Line(text string) string { return strings.Join(strings.Fields(Plain(text)), " ") }
