package main

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// style is the terminal sequence that begins it.
type style string

const (
	plain  style = ""
	bold   style = "\x1b[1m"
	dim    style = "\x1b[2m"
	red    style = "\x1b[31m"
	green  style = "\x1b[32m"
	yellow style = "\x1b[33m"
	cyan   style = "\x1b[36m"
)

// screen is where a person reads. Several write on it at once (an answer, commands, subagents), each on lines of its
// own. The text given to it is safe already.
type screen struct {
	w       io.Writer
	colours bool
	columns func() int // the width of the terminal; nil when it is none
	writing string     // who wrote the unfinished line; empty at the beginning of a line
	err     error      // the first one; nothing is written after it
}

// newScreen returns a screen that writes to w. Text is wrapped to the width of w if that is a terminal.
func newScreen(w io.Writer, isTerminal, colours bool) *screen {
	s := &screen{w: w, colours: colours}
	if out, ok := w.(*os.File); ok && isTerminal {
		s.columns = func() int {
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
func (s *screen) width(prefix int) int {
	if s.columns == nil {
		return 0
	}
	width := s.columns()
	if width == 0 {
		return 0
	}
	return max(width-prefix, minProse)
}

// minProse is the least width that prose is wrapped to.
const minProse = 20

// flow writes text that goes on where the same writer left off. Another writer's unfinished line is ended first. Each
// line begins with prefix.
func (s *screen) flow(writer, prefix string, st style, text string) {
	if text == "" {
		return
	}
	var b strings.Builder
	if s.writing != "" && s.writing != writer {
		b.WriteByte('\n')
		s.writing = ""
	}
	for line := range strings.SplitAfterSeq(text, "\n") {
		if line == "" {
			continue
		}
		if s.writing == "" {
			b.WriteString(prefix)
		}
		body, ended := strings.CutSuffix(line, "\n")
		b.WriteString(s.paint(st, body))
		s.writing = writer
		if ended {
			b.WriteByte('\n')
			s.writing = ""
		}
	}
	s.write(b.String())
}

// line writes text on lines of its own.
func (s *screen) line(prefix string, st style, text string) {
	s.flow("line", prefix, st, strings.TrimRight(text, "\n")+"\n")
}

// endLine ends an unfinished line.
func (s *screen) endLine() {
	if s.writing != "" {
		s.write("\n")
		s.writing = ""
	}
}

func (s *screen) paint(st style, text string) string {
	if !s.colours || st == plain || text == "" {
		return text
	}
	return string(st) + text + "\x1b[0m"
}

func (s *screen) write(text string) {
	if s.err == nil {
		_, s.err = io.WriteString(s.w, text)
	}
}
