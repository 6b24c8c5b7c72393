package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
)

const logsUsage = `pocketcoder sandbox logs EXEC: print the output of a command, from the log.

  pocketcoder sandbox logs 8f2k0x9c3v7m1q5
  pocketcoder sandbox logs 8f2k0x9c3v7m1q5 -f    follow the output until the command ends

The command's stdout goes to stdout, and its stderr to stderr. Stderr also says what is missing and how the command ended. Control
sequences are shown as text. After a command has ended, the log has all its output. While it runs, the log has the output of the
last seven days, at most the first 64 MiB of each stream (8 MiB for a foreground command). "pocketcoder sandbox ps --all" lists
finished commands.

Exit status: 0; 1 when there is no such command or it failed, 2 for wrong usage.
`

func runLogs(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "sandbox logs", logsUsage)
	at := ServerFlags(fs, env)
	follow := fs.Bool("f", false, "follow the output until the command ends")
	exec, err := ParseID(fs, args, whichExecution)
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	x, err := client.View[projections.ShownExecution](ctx, s, "executions", exec)
	if handlers.CodeOf(err) == handlers.NotFound {
		err = fmt.Errorf("there is no execution %s", exec)
	}
	if err != nil {
		return err
	}
	return newOutputPrinter(s, env, x).show(ctx, *follow)
}

// outputPrinter prints the output of a command, every byte once: live fragments while it runs, and the rest of the
// recorded output after its end.
type outputPrinter struct {
	system    *client.System
	run       projections.ShownExecution
	following bool // until the end, and then print the rest of the recorded output
	notes     io.Writer
	streams   map[string]*printedStream
}

// printedStreams is the default order of the streams.
var printedStreams = []string{"stdout", "stderr"}

type printedStream struct {
	to      io.Writer
	bytes   int64 // printed or missed
	hasGap  bool  // a fragment is missing; the rest is printed after the end
	cleaner display.Cleaner
}

func newOutputPrinter(s *client.System, env Environment, x projections.ShownExecution) *outputPrinter {
	return &outputPrinter{system: s, run: x, notes: env.Stderr, streams: map[string]*printedStream{
		"stdout": {to: env.Stdout},
		"stderr": {to: env.Stderr}}}
}

func (p *outputPrinter) show(ctx context.Context, follow bool) error {
	if p.run.Private {
		_, err := fmt.Fprintln(p.notes, "the shell is private, so its output is not recorded")
		return err
	}
	p.following = follow
	switch {
	case p.run.Started == "":
		_, err := fmt.Fprintln(p.notes, "it did not run:", display.Exact(p.run.Reason))
		return err
	case p.run.Status != events.ExecutionRunning:
		d := events.ExecFinished{ExitCode: int(p.run.ExitCode), Signal: p.run.Signal, Reason: p.run.Reason,
			Error: p.run.Error, DurationMS: p.run.DurationMS}
		if err := json.Unmarshal([]byte(p.run.Outputs), &d); err != nil {
			return fmt.Errorf("read the output of %s: %w", p.run.ID, err)
		}
		return p.finish(ctx, d, p.run.LeftBehind)
	case follow:
		return p.follow(ctx)
	}
	if err := p.system.OutputDeltas(ctx, p.run.ID, false, p.fragment); err != nil {
		return err
	}
	return p.flush()
}

// fragment prints the new bytes of a fragment. It reports missing bytes. A missing beginning, which is too old, is
// skipped. After a later gap, a follower prints the rest of the stream from the recorded output.
func (p *outputPrinter) fragment(d log.Delta) error {
	s := p.streams[d.Stream]
	if s == nil || s.hasGap || s.bytes >= d.Offset+int64(len(d.Data)) {
		return nil
	}
	if missed := d.Offset - s.bytes; missed > 0 {
		end := ""
		if s.hasGap = p.following && s.bytes > 0; s.hasGap {
			end = "; the rest of the output follows after the end of the command"
		}
		if _, err := fmt.Fprintf(p.notes, "… %s of %s were missed%s\n", display.Size(missed), d.Stream, end); err != nil ||
			s.hasGap {
			return err
		}
		if _, err := io.WriteString(s.to, s.cleaner.Flush()); err != nil {
			return err
		}
		s.bytes = d.Offset
	}
	return s.write(d.Data[s.bytes-d.Offset:])
}

func (s *printedStream) write(b []byte) error {
	s.bytes += int64(len(b))
	_, err := io.WriteString(s.to, s.cleaner.Clean(b))
	return err
}

// follow prints past and live fragments until the command has ended.
func (p *outputPrinter) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fragments, ended, failed := make(chan log.Delta), make(chan events.ExecFinished, 1), make(chan error, 2)
	go func() {
		failed <- p.system.OutputDeltas(ctx, p.run.ID, true, func(d log.Delta) error {
			return client.Send(ctx, fragments, d)
		})
	}()
	go func() {
		failed <- p.system.Read(ctx, p.run.Chat, uint64(p.run.Position), func(b log.Batch) error {
			for _, e := range b.Events {
				body, _ := events.Decode(e)
				if d, ok := body.(events.ExecFinished); ok && d.Exec == p.run.ID {
					ended <- d
				}
			}
			return nil
		})
	}()
	for {
		select {
		case d := <-fragments:
			if err := p.fragment(d); err != nil {
				return err
			}
		case d := <-ended:
			return p.finish(ctx, d, d.Left.Sentence())
		case err := <-failed:
			return err
		}
	}
}

// finish prints the recorded output that was not printed yet, and how the command ended. left is the sentence about the
// processes that it left, or empty.
func (p *outputPrinter) finish(ctx context.Context, d events.ExecFinished, left string) error {
	for i, out := range []events.Output{d.Stdout, d.Stderr} {
		if err := p.rest(ctx, printedStreams[i], out); err != nil {
			return err
		}
	}
	if err := p.flush(); err != nil {
		return err
	}
	if left != "" {
		if _, err := fmt.Fprintln(p.notes, display.Exact(left)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(p.notes, "ended:", display.Exact(render.ExecutionEnd(d)))
	return err
}

// rest prints the recorded output of a stream that was not printed yet.
func (p *outputPrinter) rest(ctx context.Context, name string, out events.Output) error {
	s, stored := p.streams[name], io.NopCloser(strings.NewReader(out.Text+string(out.Base64)))
	if out.Blob != nil {
		var err error
		if stored, err = p.system.Output(ctx, p.run.ID, name); err != nil {
			return err
		}
	}
	defer stored.Close()
	if _, err := io.CopyN(io.Discard, stored, s.bytes); errors.Is(err, io.EOF) { // less may be recorded of a lost command
		return nil
	} else if err != nil {
		return err
	}
	for b := make([]byte, 32<<10); ; {
		n, err := stored.Read(b)
		if n > 0 {
			if err := s.write(b[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *outputPrinter) flush() (err error) {
	for _, name := range printedStreams {
		s := p.streams[name]
		_, failed := io.WriteString(s.to, s.cleaner.Flush())
		err = errors.Join(err, failed)
	}
	return err
}
