package render

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Style is the terminal sequence that begins it.
type Style string

const (
	Plain  Style = ""
	Bold   Style = "\x1b[1m"
	Dim    Style = "\x1b[2m"
	Red    Style = "\x1b[31m"
	green  Style = "\x1b[32m"
	Yellow Style = "\x1b[33m"
	Cyan   Style = "\x1b[36m"
)

// Screen is the output that a person reads. Several writers (an answer, commands, subagents) use it at once, each on
// separate lines. The text given to it is safe already.
type Screen struct {
	Out     io.Writer
	colours bool
	Columns func() int // the width of the terminal; nil when it is none
	Writing string     // who wrote the unfinished line; empty at the beginning of a line
	Err     error      // the first one; nothing is written after it
}

// NewScreen returns a screen that writes to w. Text is wrapped to the width of w if that is a terminal.
func NewScreen(w io.Writer, isTerminal, colours bool) *Screen {
	s := &Screen{Out: w, colours: colours}
	if out, ok := w.(*os.File); ok && isTerminal {
		s.Columns = func() int {
			width, _, err := term.GetSize(int(out.Fd()))
			if err != nil {
				return 0 // nothing is wrapped
			}
			return width
		}
	}
	return s
}

// width is how many columns there are for text after a prefix of some columns; 0 is any.
func (s *Screen) width(prefix int) int {
	if s.Columns == nil {
		return 0
	}
	width := s.Columns()
	if width == 0 {
		return 0
	}
	return max(width-prefix, minProse)
}

// minProse is the least width that prose is wrapped to.
const minProse = 20

// Flow writes text that continues the last line of the same writer. Another writer's unfinished line is ended first.
// Each line begins with prefix.
func (s *Screen) Flow(writer, prefix string, st Style, text string) {
	if text == "" {
		return
	}
	var b strings.Builder
	if s.Writing != "" && s.Writing != writer {
		b.WriteByte('\n')
		s.Writing = ""
	}
	for line := range strings.SplitAfterSeq(text, "\n") {
		if line == "" {
			continue
		}
		if s.Writing == "" {
			b.WriteString(prefix)
		}
		body, ended := strings.CutSuffix(line, "\n")
		b.WriteString(s.Paint(st, body))
		s.Writing = writer
		if ended {
			b.WriteByte('\n')
			s.Writing = ""
		}
	}
	s.write(b.String())
}

// Line writes text on lines of its own.
func (s *Screen) Line(prefix string, st Style, text string) {
	s.Flow("line", prefix, st, strings.TrimRight(text, "\n")+"\n")
}

func (s *Screen) EndLine() {
	if s.Writing != "" {
		s.write("\n")
		s.Writing = ""
	}
}

// Paint returns a text in a style, if the screen has colours.
func (s *Screen) Paint(st Style, text string) string {
	if !s.colours || st == Plain || text == "" {
		return text
	}
	return string(st) + text + "\x1b[0m"
}

func (s *Screen) write(text string) {
	if s.Err == nil {
		_, s.Err = io.WriteString(s.Out, text)
	}
}
