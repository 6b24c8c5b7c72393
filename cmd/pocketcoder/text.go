package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"pocketcoder/projections"
)

// What models and commands write is shown as text: nothing in it may move the cursor, change colours, hide or reorder
// what a person reads. Newlines and tabs stay; any other control or invisible character becomes a visible one.

// visible makes a whole text safe, and shows every carriage return: for what a person decides on.
func visible(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		b.WriteString(visibleRune(r, text[i:i+n]))
		i += n
	}
	return b.String()
}

// visibleLine makes a text safe and keeps it on one line: for paths and other names, which may hold line breaks that look like
// the rest of what a person decides on.
func visibleLine(text string) string {
	return strings.NewReplacer("\n", "␊", "\t", "␉").Replace(visible(text))
}

// visibleRune shows one rune, whose bytes are raw.
func visibleRune(r rune, raw string) string {
	switch {
	case r == '\n' || r == '\t':
		return raw
	case r < 0x20:
		return string(0x2400 + r) // Unicode's picture of the control character: ␛ for ESC
	case r == 0x7f:
		return "␡"
	case r == utf8.RuneError && len(raw) == 1:
		return fmt.Sprintf(`\x%02x`, raw[0])
	case r == 0x200c || r == 0x200d:
		return raw // the joiners of Persian and of emoji: they neither hide nor reorder
	case r == 0x034f || r == 0x115f || r == 0x1160 || r == 0x2800 || r == 0x3164 || r == 0xffa0: // blanks that Unicode counts as letters, marks or symbols
		return fmt.Sprintf(`\u%04x`, r)
	case unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co):
		return fmt.Sprintf(`\u%04x`, r)
	}
	return raw
}

// cleaner makes a stream safe that comes in pieces, cut anywhere. The carriage return of a line end is dropped, one
// within a line, as progress bars write it, is shown and ends the line.
type cleaner struct {
	rest []byte // the beginning of a rune, or a carriage return, that waits for what follows
}

func (c *cleaner) clean(piece []byte) string {
	c.rest = append(c.rest, piece...)
	return c.take(false)
}

// flush gives what still waited.
func (c *cleaner) flush() string { return c.take(true) }

func (c *cleaner) take(all bool) string {
	var b strings.Builder
	p := c.rest
	for len(p) > 0 && (all || utf8.FullRune(p)) {
		r, n := utf8.DecodeRune(p)
		if r != '\r' {
			b.WriteString(visibleRune(r, string(p[:n])))
			p = p[n:]
			continue
		}
		if len(p) == 1 && !all {
			break
		}
		if p = p[1:]; len(p) == 0 || p[0] != '\n' {
			b.WriteString("␍\n")
		}
	}
	c.rest = append(c.rest[:0], p...)
	return b.String()
}

// cleaned makes a whole text safe as a stream of its own.
func cleaned(text string) string {
	var c cleaner
	return c.clean([]byte(text)) + c.flush()
}

// oneLine makes a text one safe line of at most most runes.
func oneLine(text string, most int) string {
	line := []rune(visible(strings.Join(strings.Fields(text), " ")))
	if len(line) > most {
		line = append(line[:most-1], '…')
	}
	return string(line)
}

// clipped gives the first lines of a text, and says how many there are more.
func clipped(text string, most int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) <= most {
		return strings.Join(lines, "\n")
	}
	return strings.Join(lines[:most], "\n") + fmt.Sprintf("\n… %d more lines", len(lines)-most)
}

// localTime shows a row's time to the minute in this machine's time zone.
func localTime(s string) string {
	at, err := time.Parse(projections.TimeFormat, s)
	if err != nil {
		return s
	}
	return at.Local().Format("2006-01-02 15:04")
}

// size is a number of bytes for a person.
func size(bytes int64) string {
	unit, n := "bytes", float64(bytes)
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n < 1024 {
			break
		}
		unit, n = u, n/1024
	}
	if unit == "bytes" {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%.1f %s", n, unit)
}

// tabbedWidth counts a tab as the widest it can be.
func tabbedWidth(text string) int {
	return uniseg.StringWidth(strings.ReplaceAll(text, "\t", "        "))
}
