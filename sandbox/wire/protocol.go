// Package wire is the exec protocol: how a command travels over NATS from the shell OpenCode runs to the handler that
// checks it, and from there to the sandbox worker that runs it, and how its output comes back.
//
// Both legs speak the same protocol (Call on one side, Serve on the other):
//
//	caller                                             server
//	  ── Request (reply = inbox) ─────────────────────▶  exec.request.<engine> or exec.run.<pool> (queue group)
//	  ◀──────────────────────── started ───────────────
//	  ◀── stdout / stderr chunks, in order, ≤ ChunkSize
//	  ── credit (bytes consumed), cancel ─────────────▶  <subject>.<exec>
//	  ◀──────────────────────── finished (Result) ─────
//
// Promises: output arrives whole, in order per stream and byte for byte; memory on both sides is bounded by Window
// whatever the output size, because a sender stops when Window bytes are unacknowledged; a cancelled context cancels the
// command; a caller or server that is gone is noticed and ends the call. A request is never sent twice.
//
// It must not know what a permission is, what an event is, or how a process is run. It links only nats.go, because the
// shell that imports it must start in milliseconds.
package wire

import "time"

// Limits of the protocol, shared by both sides.
const (
	ChunkSize = 32 << 10 // bytes in one output message: LIMITS.md measured 333-462 MB/s with 32 KiB chunks
	Window    = 4 << 20  // bytes a sender may have in flight before the receiver's credit comes back
	KillGrace = time.Second
)

// ExitRefused is the shell's exit code for a command that was not run: "found but not executable" in POSIX shells.
const ExitRefused = 126

// RequestSubject is where the shell of an engine asks: exec.request.<engine>.
func RequestSubject(engine string) string { return "exec.request." + engine }

// RunSubject is where the workers of a pool listen, as a queue group: exec.run.<pool>.
func RunSubject(pool string) string { return "exec.run." + pool }

// ControlSubject is where one running exec takes credit and cancel: <subject>.<exec>.
func ControlSubject(subject, exec string) string { return subject + "." + exec }

// Request asks for one command to be run. Exec and Workspace are set by the handler: what the shell writes there is
// ignored.
type Request struct {
	Exec      string `json:"exec,omitempty"`      // our id of this execution; one token
	Session   string `json:"session,omitempty"`   // OpenCode's session id
	Call      string `json:"call,omitempty"`      // the tool call's id, given by the model provider
	Command   string `json:"command"`             // passed to the shell's -c, byte for byte
	Cwd       string `json:"cwd"`                 // absolute
	Workspace string `json:"workspace,omitempty"` // absolute; Cwd must lie inside
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
}

// Reason says why a command ended other than by itself.
type Reason string

const (
	Exited    Reason = ""          // by itself: ExitCode, or Signal when something killed it
	Refused   Reason = "refused"   // never started; Error says why
	Cancelled Reason = "cancelled" // the caller gave up: signal, abort or death of the shell
	TimedOut  Reason = "timeout"
	Lost      Reason = "lost" // the worker vanished; whether the command ended is unknown
)

// Result is how a command ended.
type Result struct {
	ExitCode    int    `json:"exit_code"`        // 0-255; 128+n when killed by signal n; ExitRefused when refused
	Signal      string `json:"signal,omitempty"` // "SIGKILL", …
	Reason      Reason `json:"reason,omitempty"`
	Error       string `json:"error,omitempty"` // one line for a person, when Reason is Refused or Lost
	DurationMS  int64  `json:"duration_ms"`
	StdoutBytes int64  `json:"stdout_bytes"`
	StderrBytes int64  `json:"stderr_bytes"`
}
