package export

import (
	"bytes"
	"errors"
	"io"
	"time"
	"unicode/utf8"
)

// printedStream is an output stream on its way into a recording.
type printedStream struct {
	content  io.Reader
	terminal bool   // a terminal wrote it: its lines end with CR and LF already
	rest     []byte // the beginning of a character that waits for its end
	returned bool   // the last byte was a CR
	escape   escape
}

// castPiece is the largest number of bytes that one line of a recording holds.
const castPiece = 32 << 10

// copy writes the next n bytes of the stream.
func (p *printedStream) copy(c *cast, n int64, at time.Duration) error {
	b := make([]byte, castPiece)
	for n > 0 {
		read, err := io.ReadFull(p.content, b[:min(n, castPiece)])
		if err := c.print(at, p.text(b[:read], false)); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
		n -= int64(read)
	}
	return nil
}

// copyRest writes what is left of the stream.
func (p *printedStream) copyRest(c *cast, at time.Duration) error {
	b := make([]byte, castPiece)
	for {
		n, err := io.ReadFull(p.content, b)
		end := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err := c.print(at, p.text(b[:n], end)); err != nil {
			return err
		}
		if end {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// text returns what a terminal gets of the next bytes. last says that no more follow.
func (p *printedStream) text(b []byte, last bool) string {
	var out bytes.Buffer
	in := append(p.rest, b...)
	for len(in) > 0 && (last || utf8.FullRune(in)) {
		r, n := utf8.DecodeRune(in)
		in = in[n:]
		if r == '\n' && !p.returned && !p.terminal {
			out.WriteByte('\r')
		}
		p.returned = r == '\r'
		p.escape.write(&out, r)
	}
	p.rest = bytes.Clone(in)
	return out.String()
}

// escape follows the control sequences of a terminal. Those that colour text and move the cursor stay. Strings for the
// terminal itself, which set the clipboard or the title, and all other control characters are left out. A sequence is
// written when it is complete: a terminal begins a new one at an ESC within another.
type escape struct {
	state    byte
	sequence []rune // that is not complete yet
}

// maxSequence is the longest control sequence that is kept, in characters. A longer one is left out so far.
const maxSequence = 64

const (
	inText     = byte(iota)
	inEscape   // behind ESC
	inSequence // behind ESC [
	inSet      // behind ESC ( and the like: one character follows
	inString   // behind ESC ] and the like, until BEL or ST
	inStringST // behind an ESC in there
)

func (e *escape) write(out *bytes.Buffer, r rune) {
	switch e.state {
	case inText:
		switch {
		case r == 0x1b:
			e.state = inEscape
		case r >= 0x20 && (r < 0x7f || r > 0x9f), r == '\n', r == '\r', r == '\t', r == '\b', r == '\a':
			out.WriteRune(r)
		}
	case inEscape:
		e.begin(out, r)
	case inSequence, inSet:
		e.follow(out, r)
	case inString:
		switch r {
		case '\a':
			e.state = inText
		case 0x1b:
			e.state = inStringST
		}
	case inStringST:
		if e.state = inString; r == '\\' {
			e.state = inText
		}
	}
}

// begin handles the character behind ESC.
func (e *escape) begin(out *bytes.Buffer, r rune) {
	e.state, e.sequence = inText, []rune{0x1b, r}
	switch r {
	case 0x1b:
		e.state = inEscape
	case '[':
		e.state = inSequence
	case ']', 'P', 'X', '^', '_':
		e.state = inString
	case '(', ')', '*', '+', '#', '%':
		e.state = inSet
	case '7', '8', '=', '>', 'c', 'D', 'E', 'H', 'M':
		out.WriteString(string(e.sequence))
	}
}

// follow handles a later character of a sequence.
func (e *escape) follow(out *bytes.Buffer, r rune) {
	e.sequence = append(e.sequence, r)
	switch {
	case r == 0x1b:
		e.state = inEscape
	case r < 0x20 || r > 0x7e || len(e.sequence) > maxSequence:
		e.state = inText
	case e.state == inSet || r >= 0x40:
		out.WriteString(string(e.sequence))
		e.state = inText
	}
}
