// Package wire is the exec protocol: how a command travels over NATS from the shell OpenCode runs to the handler that
// checks it, and from there to the sandbox worker that runs it, and how its output comes back.
//
// Both legs speak the same protocol (Call on one side, Serve on the other):
//
//	caller                                                  server
//	  ── Request (reply = inbox) ──────────────────────────▶  exec.request.<engine> or exec.run.<pool> (queue group)
//	  ◀────────────────────────────── started ─────────────
//	  ── credit 0: run it ─────────────────────────────────▶  <subject>.<exec>
//	  ◀── stdout / stderr chunks, in order, ≤ ChunkSize ───
//	  ── credit (consumed so far), cancel ─────────────────▶  <subject>.<exec>
//	  ◀────────────────────────────── finished (Result) ───
//
// Promises: a command runs only after its caller, having heard "started", said so, and a request is never sent twice;
// output arrives whole, in order and byte for byte, or the Result says Lost; memory on both sides is bounded by Window
// whatever the output size; a cancelled context cancels the command; a side that is killed is noticed by the other within
// seconds, and a side that is only slow or stopped is waited for.
//
// Liveness rests on one fact alone: the server of NATS answers 503 to a publish nobody is subscribed to. The caller sends
// probes to <subject>.<exec>, the server to <subject>.<exec>.caller. The second subject is there because an account's
// reply subjects (_R_.>) never answer 503, even when the caller behind them is gone (measured, nats-server 2.15.2); a
// service imported the other way does.
//
// It must not know what a permission is, what an event is, or how a process is run. It links only nats.go, because the
// shell that imports it must start in milliseconds.
package wire

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of the protocol, shared by both sides.
const (
	ChunkSize  = 32 << 10  // bytes in one output message: 333-462 MB/s over NATS, measured
	Window     = 1 << 20   // bytes a server may have in flight before the caller's credit comes back
	MaxCommand = 120 << 10 // bytes of a command: Linux takes 128 KiB in one argument (MAX_ARG_STRLEN)

	KillGrace    = time.Second     // from asking a cancelled process to end to killing it
	CancelWait   = 2 * time.Second // how long a cancelled Call still waits for the result
	StartTimeout = 5 * time.Second // how long a Call waits for "started"
	DrainTimeout = 5 * time.Second // how long a stopping Serve waits for its handlers
	CutOff       = 5 * time.Second // a side without a connection to NATS for this long gives its execs up
)

const (
	frameCost   = 512 // what a message takes besides its bytes, so that many small writes stay within Window too
	callerProbe = 250 * time.Millisecond
	serverProbe = time.Second
	goneAfter   = 2 // consecutive 503 answers: one may be a subscription still spreading through a cluster
	maxPath     = 4096
	maxCallID   = 256
	maxError    = 1024
)

// ExitRefused is the shell's exit code for a command that was not run: "found but not executable" in POSIX shells.
const ExitRefused = 126

// ExitLost is the exit code in a Result whose Reason is Lost.
const ExitLost = 255

// ShellInbox is the inbox prefix of the shell's connection: the only one its NATS user may subscribe to.
const ShellInbox = "_INBOX_SHELL"

// Frame kinds, in the header frameHeader. Bodies: started and cancel none; stdout and stderr raw bytes; credit the total
// cost consumed so far, in decimal; finished a Result in JSON; probe none and no answer.
const (
	frameHeader = "Exec-Frame"

	frameStarted  = "started"
	frameStdout   = "stdout"
	frameStderr   = "stderr"
	frameFinished = "finished"
	frameCredit   = "credit"
	frameCancel   = "cancel"
	frameProbe    = "probe"
)

// RequestSubject is where the shell of an engine asks: exec.request.<engine>.
func RequestSubject(engine string) string { return "exec.request." + engine }

// RunSubject is where the workers of a pool listen, as a queue group: exec.run.<pool>.
func RunSubject(pool string) string { return "exec.run." + pool }

// ControlSubject is where one running exec takes credit and cancel: <subject>.<exec>.
func ControlSubject(subject, exec string) string { return subject + "." + exec }

// CallerSubject is where the caller of an exec is subscribed for as long as it wants the command: <subject>.<exec>.caller.
func CallerSubject(subject, exec string) string { return ControlSubject(subject, exec) + ".caller" }

// Request asks for one command to be run.
type Request struct {
	Exec      string `json:"exec,omitempty"`      // names the call on its leg, one token; Call makes one when empty. The handler uses its own towards the worker
	Session   string `json:"session,omitempty"`   // OpenCode's session id, one token
	Call      string `json:"call,omitempty"`      // the tool call's id, given by the model provider: at most 256 printable bytes
	Command   string `json:"command"`             // passed to the shell's -c, byte for byte; UTF-8 without NUL, at most MaxCommand bytes
	Cwd       string `json:"cwd"`                 // absolute
	Workspace string `json:"workspace,omitempty"` // absolute; Cwd must lie inside. Set by the handler: what the shell writes here is ignored
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
}

// Reason says why a command ended other than by itself.
type Reason string

const (
	Exited    Reason = ""          // by itself: ExitCode, or Signal when something killed it
	Refused   Reason = "refused"   // never started; Error says why
	Cancelled Reason = "cancelled" // the caller gave up: signal, abort or death of the shell
	TimedOut  Reason = "timeout"
	Lost      Reason = "lost" // the server vanished; whether the command ended is unknown
)

// Result is how a command ended. Serve fills the byte counts.
type Result struct {
	ExitCode    int    `json:"exit_code"`        // 0-255; 128+n when killed by signal n; ExitRefused when refused
	Signal      string `json:"signal,omitempty"` // "SIGKILL", …
	Reason      Reason `json:"reason,omitempty"`
	Error       string `json:"error,omitempty"` // one line for a person, when Reason is Refused or Lost
	DurationMS  int64  `json:"duration_ms"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
}

// IsToken reports whether s may stand in a subject: 1 to 64 of A-Z, a-z, 0-9, _ and -.
func IsToken(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-') {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 64
}

// validate names the first field that is wrong.
func (r Request) validate() error {
	switch {
	case !IsToken(r.Exec):
		return errors.New("exec must be 1 to 64 letters, digits, _ or -")
	case r.Session != "" && !IsToken(r.Session):
		return errors.New("session must be 1 to 64 letters, digits, _ or -")
	case len(r.Call) > maxCallID || !utf8.ValidString(r.Call) || strings.ContainsFunc(r.Call, unicode.IsControl):
		return fmt.Errorf("call must be at most %d printable bytes", maxCallID)
	case len(r.Command) > MaxCommand:
		return fmt.Errorf("command has %d bytes, at most %d are allowed", len(r.Command), MaxCommand)
	case strings.TrimSpace(r.Command) == "":
		return errors.New("command is empty")
	case !isText(r.Command):
		return errors.New("command must be UTF-8 without NUL")
	case !isAbsolute(r.Cwd):
		return errors.New("cwd must be an absolute path")
	case r.Workspace != "" && !isAbsolute(r.Workspace):
		return errors.New("workspace must be an absolute path")
	case r.TimeoutMS < 0:
		return errors.New("timeout is negative")
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

func isAbsolute(s string) bool { return path.IsAbs(s) && len(s) <= maxPath && isText(s) }

// validate refuses what no honest server sends.
func (r Result) validate() error {
	switch r.Reason {
	case Exited, Refused, Cancelled, TimedOut, Lost:
	default:
		return fmt.Errorf("unknown reason %q", r.Reason)
	}
	if r.ExitCode < 0 || r.ExitCode > 255 || r.DurationMS < 0 {
		return errors.New("a number is out of range")
	}
	return nil
}

// oneLine makes the words of a peer fit for a terminal: valid UTF-8, no control characters, at most maxError bytes.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s[:min(len(s), maxError)])
	return strings.ToValidUTF8(s, "?")
}

func refused(format string, a ...any) Result {
	return Result{ExitCode: ExitRefused, Reason: Refused, Error: fmt.Sprintf(format, a...)}
}

func lost(format string, a ...any) Result {
	return Result{ExitCode: ExitLost, Reason: Lost, Error: fmt.Sprintf(format, a...)}
}
