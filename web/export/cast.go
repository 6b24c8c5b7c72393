package export

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/pages/visible"
	"pocketcoder/web/stream"
)

// The terminal of a recording, and the longest pause that a player makes.
const (
	castColumns = 80
	castRows    = 24
	castIdle    = 2 * time.Second
)

// castHeader is the first line of a recording in the format asciicast v2.
type castHeader struct {
	Version   int     `json:"version"`
	Width     int     `json:"width"`
	Height    int     `json:"height"`
	Timestamp int64   `json:"timestamp"` // Unix seconds
	Idle      float64 `json:"idle_time_limit"`
	Title     string  `json:"title,omitempty"`
}

// cast writes a recording.
type cast struct {
	w  io.Writer
	at time.Duration // of the last line
}

func (c *cast) line(values any) error {
	b, err := json.Marshal(values)
	if err != nil {
		return err
	}
	_, err = c.w.Write(append(b, '\n'))
	return err
}

func (c *cast) begin(title, started string) error {
	at, _ := time.Parse(events.TimeFormat, started) // zero for a chat without commands
	return c.line(castHeader{2, castColumns, castRows, max(at.Unix(), 0), castIdle.Seconds(), visible.Line(title)})
}

// print writes output at a time of the recording, which does not go back.
func (c *cast) print(at time.Duration, text string) error {
	if text == "" {
		return nil
	}
	c.at = max(c.at, at)
	return c.line([]any{json.Number(fmt.Sprintf("%.6f", c.at.Seconds())), "o", text})
}

// Cast writes the commands of the chat that had ended, one after the other, as an asciinema recording.
func (c Chat) Cast(ctx context.Context, w io.Writer) error {
	var runs []projections.ShownExecution
	title := ""
	err := projections.MomentAt(ctx, c.Log, c.ID, c.At, func(db dbx.Builder, _ events.Event) (err error) {
		row := db.NewQuery("SELECT title FROM chats WHERE id={:id}").Bind(dbx.Params{"id": c.ID})
		if err = row.WithContext(ctx).Row(&title); err != nil {
			return err
		}
		runs, err = timeline.Runs(ctx, db, c.ID)
		return err
	})
	if err != nil {
		return err
	}
	runs = slices.DeleteFunc(runs, func(x projections.ShownExecution) bool { return x.Started == "" || x.Finished == "" })
	out, started := &cast{w: w}, ""
	if len(runs) > 0 {
		started = runs[0].Started
	}
	if err := out.begin(title, started); err != nil {
		return err
	}
	for _, x := range runs {
		if err := out.execution(ctx, c.Log, x); err != nil {
			return err
		}
		out.at += castIdle / 2
	}
	return nil
}

// writeExecution writes a command that has ended as an asciinema recording.
func writeExecution(ctx context.Context, l *log.Log, x projections.ShownExecution, w io.Writer) error {
	out := &cast{w: w}
	if err := out.begin(cmp.Or(x.Text, x.ID), x.Started); err != nil {
		return err
	}
	return out.execution(ctx, l, x)
}

// execution writes a command, its output when it was printed, and how it ended.
func (c *cast) execution(ctx context.Context, l *log.Log, x projections.ShownExecution) error {
	began := c.at
	if x.Text != "" {
		command := strings.ReplaceAll(display.Prose(strings.TrimRight(x.Text, "\n")), "\n", "\r\n> ")
		if err := c.print(began, "\x1b[1m$ "+command+"\x1b[0m\r\n"); err != nil {
			return err
		}
	}
	if err := c.output(ctx, l, x, began); err != nil {
		return err
	}
	if text := x.LeftBehind; text != "" {
		if err := c.print(c.at, "\x1b[0m["+visible.Line(text)+"]\r\n"); err != nil {
			return err
		}
	}
	if x.Status == events.ExecutionCompleted {
		return nil
	}
	end := x.Status
	if x.Status == events.ExecutionFailed && x.Signal == "" {
		end = fmt.Sprintf("exit %d", x.ExitCode)
	}
	return c.print(c.at, "\x1b[0m["+visible.Line(end)+"]\r\n")
}

// segment is the next bytes of an output stream, which were printed together.
type segment struct {
	stream string
	bytes  int64
	at     time.Duration // since the command began
}

// output writes the stored output. The fragments have the times at which it was printed. Output without a fragment
// is written at the end.
func (c *cast) output(ctx context.Context, l *log.Log, x projections.ShownExecution, began time.Duration) error {
	var stored projections.ExecutionOutputs
	if err := json.Unmarshal([]byte(x.Outputs), &stored); err != nil {
		return fmt.Errorf("read the output of %s: %w", x.ID, err)
	}
	segments, err := segmentsOf(ctx, l, x)
	if err != nil {
		return err
	}
	printed := map[string]*printedStream{}
	for name, o := range map[string]events.Output{"stdout": stored.Stdout, "stderr": stored.Stderr} {
		content, err := stream.OpenOutput(ctx, l, o)
		if err != nil {
			return err
		}
		defer content.Close()
		printed[name] = &printedStream{content: content, terminal: x.Terminal}
	}
	for _, s := range segments {
		if p := printed[s.stream]; p != nil {
			if err := p.copy(c, s.bytes, began+s.at); err != nil {
				return fmt.Errorf("read the output of %s: %w", x.ID, err)
			}
		}
	}
	end := began + time.Duration(x.DurationMS)*time.Millisecond
	for _, name := range []string{"stdout", "stderr"} {
		if err := printed[name].copyRest(c, end); err != nil {
			return fmt.Errorf("read the output of %s: %w", x.ID, err)
		}
	}
	return nil
}

// segmentsOf returns how the output came, as far as fragments of it are stored.
func segmentsOf(ctx context.Context, l *log.Log, x projections.ShownExecution) (all []segment, err error) {
	covered := map[string]int64{}
	started, err := time.Parse(events.TimeFormat, x.Started)
	if err != nil {
		return nil, fmt.Errorf("read the start of %s: %w", x.ID, err)
	}
	_, err = l.FoldDeltas(ctx, events.ExecDeltaSubject(x.Chat, x.ID), 0, func(d log.Delta) error {
		more := d.Offset + int64(len(d.Data)) - covered[d.Stream]
		if more <= 0 {
			return nil
		}
		covered[d.Stream] += more
		all = append(all, segment{d.Stream, more, max(d.Stored.Sub(started), 0)})
		return nil
	})
	return all, err
}

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
