package display

import (
	"bytes"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"pocketcoder/events"
)

// VisibleLine makes a text safe and keeps it on one line: for paths and other names, which may hold line breaks that
// look like the rest of what a person decides on.
func VisibleLine(text string) string {
	return strings.NewReplacer("\n", "␊", "\t", "␉").Replace(Exact(text))
}

// EscapeJSON escapes the characters of encoded JSON that a terminal obeys or does not show: DEL, the C1 controls, and
// what hides or reorders the text around it. The value stays the same.
func EscapeJSON(encoded []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(encoded) {
		joins := r == 0x200c || r == 0x200d
		if r >= 0x7f && !joins && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)) {
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
			continue
		}
		b.WriteRune(r)
	}
	return b.Bytes()
}

// Cleaner makes a stream of text safe for a terminal. The stream may be cut at any byte. Cleaner drops the carriage
// return of a line end. It shows any other carriage return, such as a progress bar writes, and ends the line there.
type Cleaner struct {
	rest []byte // the beginning of a rune, or a carriage return, that waits for what follows
}

// Clean returns the safe text of the next piece. It holds back an end that the next piece may complete.
func (c *Cleaner) Clean(piece []byte) string {
	c.rest = append(c.rest, piece...)
	return c.take(false)
}

// Flush returns the text that Clean has held back.
func (c *Cleaner) Flush() string { return c.take(true) }

func (c *Cleaner) take(all bool) string {
	end := len(c.rest)
	for start := max(end-utf8.UTFMax+1, 0); !all && start < end; start++ {
		if last := c.rest[start:]; utf8.RuneStart(last[0]) && !utf8.FullRune(last) {
			end = start
		}
	}
	if !all && end > 0 && c.rest[end-1] == '\r' {
		end--
	}
	text := lineEnds.Replace(string(c.rest[:end]))
	c.rest = append(c.rest[:0], c.rest[end:]...)
	return Prose(text)
}

// lineEnds drops the carriage return of a line end, and ends the line at each other.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "␍\n")

// Clean makes a whole text safe as a stream of its own.
func Clean(text string) string {
	var c Cleaner
	return c.Clean([]byte(text)) + c.Flush()
}

// OneLine makes a text one safe line of at most most runes.
func OneLine(text string, most int) string {
	return ShortLine(Exact(strings.Join(strings.Fields(text), " ")), most)
}

// FirstLines gives the first lines of a text, and says how many there are more.
func FirstLines(text string, most int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) <= most {
		return strings.Join(lines, "\n")
	}
	return strings.Join(lines[:most], "\n") + fmt.Sprintf("\n… %d more lines", len(lines)-most)
}

// LocalTime shows a row's time to the minute in this machine's time zone.
func LocalTime(s string) string {
	at, err := time.Parse(events.TimeFormat, s)
	if err != nil {
		return s
	}
	return at.Local().Format("2006-01-02 15:04")
}

// Size is a number of bytes for a person.
func Size(bytes int64) string {
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

// TextWidth counts a tab as the widest it can be.
func TextWidth(text string) int {
	return uniseg.StringWidth(strings.ReplaceAll(text, "\t", "        "))
}
