// Package visible renders untrusted text. It names hidden characters, and shows where each link leads.
//
// Promises: nothing in a text runs, hides or reorders what a person reads. A text of any form is rendered in little
// time and memory.
//
// It must not know what the texts are about.
package visible

import (
	"strings"

	"pocketcoder/handlers/policy/display"
)

// maxEmptyLines is the longest run of empty lines that is shown as it is.
const maxEmptyLines = 8

// Exact splits a text that a person decides on. A long run of empty lines becomes its length, ⏎×N: it would move what
// follows off the screen.
func Exact(text string) []display.Piece {
	return display.ExactPieces(display.ShortenEmptyLines(text, maxEmptyLines))
}

// Line is prose on one line.
func Line(text string) string { return strings.Join(strings.Fields(display.Prose(text)), " ") }
