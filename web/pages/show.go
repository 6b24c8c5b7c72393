package pages

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
)

// piece is a run of a text: characters that a person sees, or the name of one that they would not see.
type piece struct {
	text   string
	hidden bool
}

// exact splits a text that a person decides on. Line ends, tabs and spaces stay; every other character that shows nothing, or
// moves what is around it, becomes its name.
func exact(text string) []piece { return pieces(text, display.Visible) }

// prose splits a text that nobody decides on. Spaces of other widths and the joiners of emoji and of Persian stay.
func prose(text string) []piece {
	return pieces(text, func(c rune) bool {
		return display.Visible(c) || unicode.Is(unicode.Zs, c) || c == '\u200c' || c == '\u200d'
	})
}

func pieces(text string, visible func(rune) bool) (all []piece) {
	var seen strings.Builder
	flush := func() {
		if seen.Len() > 0 {
			all = append(all, piece{text: seen.String()})
			seen.Reset()
		}
	}
	for _, c := range text {
		if c == '\n' || c == '\t' || visible(c) {
			seen.WriteRune(c)
			continue
		}
		flush()
		all = append(all, piece{characterName(c), true})
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

// plain returns prose as one text, for a place that can hold no element.
func plain(text string) string {
	var b strings.Builder
	for _, p := range prose(text) {
		b.WriteString(p.text)
	}
	return b.String()
}

// plainLine is plain on one line.
func plainLine(text string) string { return strings.Join(strings.Fields(plain(text)), " ") }

func roleName(role string) string { return roleNames[role] }

func chatTitle(title string) string {
	if line := plainLine(title); line != "" {
		return line
	}
	return textUntitled
}

// machineTime returns the time of a row as HTML wants it, "" for none.
func machineTime(at string) string {
	t, err := time.Parse(events.TimeFormat, at)
	if err != nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// humanTime returns the time of a row to the minute, in UTC.
func humanTime(at string) string {
	t, err := time.Parse(events.TimeFormat, at)
	if err != nil {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04") + " UTC"
}
