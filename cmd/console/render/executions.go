package render

import (
	"fmt"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	execs "pocketcoder/handlers/exec"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/sandbox/wire"
)

// maxLiveOutput is how much of one stream of a command's output is shown in a conversation, in bytes: as much as an
// event holds.
const maxLiveOutput = log.MaxInline

// Execution is a command that was requested.
type Execution struct {
	id       string
	session  string
	command  string
	begun    bool // exec.requested was seen
	detached bool
	done     bool
	early    []log.Delta
	streams  map[string]*shownStream
	Since    time.Time // when it was requested
	signals  []string  // that were sent while no output was shown
	lines    int       // of output that are shown
	held     []pendingLine
	folded   int // lines of output that are not shown
}

// pendingLine is a line of output that is shown at the end of its command, unless too many follow.
type pendingLine struct{ stream, text string }

type shownStream struct {
	bytes   int64 // shown
	cleaner display.Cleaner
}

// executionEvent shows an event about a command, and reports whether e is one.
func (r *Renderer) executionEvent(e events.Event, d events.Data) bool {
	switch d := d.(type) {
	case events.ExecRequested:
		r.execRequested(d, e.Time)
	case events.ExecRefused:
		r.Note(d.Session, Red, "✗ refused to run: %s\n  %s", d.Command, d.Reason)
	case events.ExecStarted:
		if r.exec(d.Exec).detached {
			r.execNote(d.Exec, Dim, "runs by itself as %s (isolation %s)", d.Exec, d.Isolation)
		}
	case events.ExecSignalled:
		r.execSignalled(e, d)
	case events.ExecConnected:
		r.execConnected(d)
	case events.ExecFinished:
		r.execFinished(d)
	case events.ExecChanged:
		r.execChanged(d)
	default:
		return false
	}
	return true
}

func (r *Renderer) exec(id string) *Execution {
	if r.execs[id] == nil {
		r.execs[id] = &Execution{id: id, streams: map[string]*shownStream{"stdout": {}, "stderr": {}}}
	}
	return r.execs[id]
}

func (r *Renderer) execRequested(d events.ExecRequested, at time.Time) {
	x := r.exec(d.Exec)
	x.begun, x.session, x.command, x.Since = true, d.Session, d.Command, at
	if d.Call != "" {
		r.calls[d.Session+"/"+d.Call] = x
	}
	switch {
	case d.Private:
		x.command = "(a person's own shell, private)"
	case d.Terminal:
		x.command = "(a person's own shell)"
	case d.Detached:
		x.detached = true
		x.command += "  (in the background)"
	}
	r.execHeader(x, "")
	if d.Original != "" {
		r.Note(d.Session, Dim, "  (a person has changed it; the model gave: %s)", d.Original)
	}
	for _, early := range x.early {
		r.execOutput(early)
	}
	x.early = nil
}

// Running is the newest command that the turn waits for, or nil.
func (r *Renderer) Running() *Execution {
	var newest *Execution
	for _, x := range r.execs {
		if x.begun && !x.done && !x.detached && !x.Since.IsZero() && (newest == nil || x.Since.After(newest.Since)) {
			newest = x
		}
	}
	return newest
}

// execHeader says whose output follows.
func (r *Renderer) execHeader(x *Execution, more string) {
	r.latest = x
	r.Note(x.session, Bold, "$ %s%s", x.command, more)
}

// execOutput shows a chunk if it follows what was shown. After a gap the closing event shows the rest.
func (r *Renderer) execOutput(d log.Delta) {
	x := r.exec(d.Subject[strings.LastIndexByte(d.Subject, '.')+1:])
	s := x.streams[d.Stream]
	switch {
	case x.done || s == nil:
	case !x.begun:
		if len(x.early) < maxEarly {
			x.early = append(x.early, d)
		}
	case d.Offset == s.bytes && s.bytes+int64(len(d.Data)) <= r.MaxLive:
		r.execShow(x, d.Stream, d.Data)
	}
}

// FragmentAfterGap shows a fragment of output, and says how much is missing before it.
func (r *Renderer) FragmentAfterGap(d log.Delta) {
	x := r.exec(d.Subject[strings.LastIndexByte(d.Subject, '.')+1:])
	if s := x.streams[d.Stream]; x.begun && !x.done && s != nil && d.Offset > s.bytes {
		r.Note(x.session, Dim, "… %s of %s were missed", display.Size(d.Offset-s.bytes), d.Stream)
		s.bytes = d.Offset
	}
	r.Fragment(d)
}

// OutputMissing reports whether a command that ended has output that is neither shown nor in the event.
func (r *Renderer) OutputMissing(d events.ExecFinished) bool {
	x := r.exec(d.Exec)
	return d.Stdout.Blob != nil && x.streams["stdout"].bytes < d.Stdout.Bytes || d.Stderr.Blob != nil &&
		x.streams["stderr"].bytes < d.Stderr.Bytes
}

// maxEarly bounds the chunks kept of a command whose beginning was not seen.
const maxEarly = 64

func (r *Renderer) execShow(x *Execution, stream string, data []byte) {
	if r.latest != x {
		r.execHeader(x, "  (goes on)")
	}
	s := x.streams[stream]
	s.bytes += int64(len(data))
	r.execText(x, stream, s.cleaner.Clean(data))
}

// foldedTail is how many lines are shown below the fold of a long output.
const foldedTail = 8

// execText shows output, or holds it back once enough of it is shown.
func (r *Renderer) execText(x *Execution, stream, text string) {
	for line := range strings.SplitAfterSeq(text, "\n") {
		switch {
		case line == "":
		case r.Fold == 0 || x.lines < r.Fold:
			r.execLine(x, stream, line)
			x.lines += strings.Count(line, "\n")
		default:
			x.hold(stream, line)
		}
	}
}

// OutputLines returns the number of lines of output so far.
func (x *Execution) OutputLines() int { return x.lines + len(x.held) + x.folded }

// hold keeps a piece of a line, and the newest lines before it.
func (x *Execution) hold(stream, text string) {
	if n := len(x.held); n > 0 && x.held[n-1].stream == stream && !strings.HasSuffix(x.held[n-1].text, "\n") {
		x.held[n-1].text += text
		return
	}
	if x.held = append(x.held, pendingLine{stream, text}); len(x.held) > foldedTail {
		x.held = x.held[1:]
		x.folded++
	}
}

// unfold shows how much was left out of a command's output, and its end.
func (r *Renderer) unfold(x *Execution) {
	if x.folded > 0 {
		r.EndLine()
		r.Line(r.indent(x.session)+"  ", Dim, fmt.Sprintf("… %d lines (pocketcoder sandbox logs %s)", x.folded,
			display.Exact(x.id)))
	}
	for _, l := range x.held {
		r.execLine(x, l.stream, l.text)
	}
	x.held = nil
}

func (r *Renderer) execLine(x *Execution, stream, text string) {
	prefix, st := "  │ ", Plain
	if stream == "stderr" {
		prefix, st = "  ┆ ", Yellow
	}
	r.Flow(x.id+"."+stream, r.indent(x.session)+prefix, st, text)
}

// execFinished shows the rest of the output and how the command ended.
func (r *Renderer) execFinished(d events.ExecFinished) {
	x := r.exec(d.Exec)
	if !x.begun {
		x.command = "(a command that began earlier)"
	}
	r.execRest(x, "stdout", d.Stdout)
	r.execRest(x, "stderr", d.Stderr)
	r.unfold(x)
	r.execOmitted(x, "stdout", d.Stdout)
	r.execOmitted(x, "stderr", d.Stderr)
	r.execSignals(x)
	if d.Left != nil {
		r.execNote(d.Exec, Yellow, "%s", d.Left.Sentence())
	}
	x.done = true
	r.Line(r.indent(x.session)+"  └ ", EndStyle(d), display.Exact(ExecutionEnd(d)))
}

func (r *Renderer) execRest(x *Execution, stream string, out events.Output) {
	s := x.streams[stream]
	whole := []byte(out.Text)
	if len(out.Base64) > 0 {
		whole = out.Base64
	}
	if int64(len(whole)) > s.bytes {
		r.execShow(x, stream, whole[s.bytes:])
	}
	r.execText(x, stream, s.cleaner.Flush())
}

// execOmitted says that the event holds no output of a stream.
func (r *Renderer) execOmitted(x *Execution, stream string, out events.Output) {
	if out.Blob != nil {
		r.Line(r.indent(x.session)+"  ", Dim, fmt.Sprintf("… %s is %s in all (pocketcoder sandbox logs %s)", stream,
			display.Size(out.Bytes), display.Exact(x.id)))
	}
}

// execSignalled shows who sent a signal. In a replay the earlier output is in the event that ends the
// command.
func (r *Renderer) execSignalled(e events.Event, d events.ExecSignalled) {
	x := r.exec(d.Exec)
	x.signals = append(x.signals, r.Actor(e.Actor)+" sent "+execs.SignalName(d.Signal))
	if r.Live || x.detached {
		r.execSignals(x)
	}
}

func (r *Renderer) execSignals(x *Execution) {
	for _, text := range x.signals {
		r.execNote(x.id, Yellow, "%s", text)
	}
	x.signals = nil
}

// EndStyle returns the style of the line that says how a command ended.
func EndStyle(d events.ExecFinished) Style {
	if d.Succeeded() {
		return Dim
	}
	return Red
}

func (r *Renderer) execNote(exec string, st Style, format string, args ...any) {
	r.Line(r.indent(r.exec(exec).session)+"  · ", st, display.Exact(fmt.Sprintf(format, args...)))
}

func (r *Renderer) execConnected(d events.ExecConnected) {
	st, what := Dim, "was let to"
	if !d.Allowed {
		st, what = Yellow, "was kept from"
	}
	r.execNote(d.Exec, st, "%s %s:%d: %s", what, d.Host, d.Port, d.Reason)
}

// maxChangedShown is how many changed files are named.
const maxChangedShown = 10

func (r *Renderer) execChanged(d events.ExecChanged) {
	all := len(d.Files) + d.More
	names := make([]string, 0, maxChangedShown)
	for _, f := range d.Files[:min(len(d.Files), maxChangedShown)] {
		names = append(names, fmt.Sprintf("%s (%s)", display.OneLine(f.Path, 100), display.Size(f.Size)))
	}
	text := strings.Join(names, ", ")
	if more := all - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	r.execNote(d.Exec, Dim, "changed while %s ran: %s", d.Exec, text)
}

// ExecutionEnd returns how a command ended: "exit 1, 1.2s", "cancelled, KILL, 3s".
func ExecutionEnd(d events.ExecFinished) string {
	how := []string{fmt.Sprintf("exit %d", d.ExitCode)}
	if d.Reason != "" {
		how = []string{ReasonText(d.Reason)}
	}
	if d.Signal != "" {
		how = append(how, execs.SignalName(d.Signal))
	}
	how = append(how, (time.Duration(d.DurationMS) * time.Millisecond).String())
	if d.Error != "" {
		how = append(how, d.Error)
	}
	return strings.Join(how, ", ")
}

// ReasonText returns in words why a command did not end by itself. A limit's name alone would not say that it is one.
func ReasonText(reason string) string {
	text, ok := map[string]string{
		string(wire.TimedOut):   "stopped: it took longer than allowed",
		string(wire.Memory):     "stopped: more than it may have of memory",
		string(wire.Processes):  "stopped: more than it may have of processes",
		string(wire.FileSize):   "stopped: a file larger than allowed",
		string(wire.CPUTime):    "stopped: more than it may have of CPU time",
		string(wire.OpenFiles):  "stopped: more than it may have of open files",
		string(wire.OutputSize): "stopped: more output than allowed",

		string(wire.ProtectedName): "stopped: it created or changed protected files again and again",
	}[reason]
	if !ok {
		return reason
	}
	return text
}
