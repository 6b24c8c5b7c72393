// Package wire is the exec protocol: how a command travels over NATS from the bridge to the handler that checks it, and
// from there to the sandbox worker that runs it, and how its output comes back.
//
// Both legs speak the same protocol (Call on one side, Serve on the other):
//
//	caller                                                  server
//	  ── Request (reply = inbox) ──────────────────────────▶  exec.request.<engine> (one of a queue group hears it) or
//	                                                          exec.run.<pool> (every worker hears it)
//	  ◀──────────────────────── offer, queued or declined ──  of each that heard it
//	  ── grant: the one it names runs it ──────────────────▶  <subject>.<id>: the others drop out
//	  ◀─────────────────────── started, or withdrawn ───────  withdrawn: it did not and will not run, ask the others
//	  ◀── stdout / stderr chunks, in order, ≤ ChunkSize ───
//	  ── credit (consumed so far), cancel ─────────────────▶  <subject>.<id>
//	  ── stdin chunks, size, signal, in order; end ────────▶  <subject>.<id>
//	  ◀──────────────── credit (input consumed so far) ────
//	  ◀────────────────────────────── finished (Result) ───
//
// Promises: a command runs only after its caller, having heard an offer, granted it, and a caller grants one offer; it asks
// again, and grants another, only when that server says that it did not and will not run the command. So no command runs
// twice, whatever is lost, late or repeated on the way. Output and input arrive whole, in order and byte for byte, or the
// Result says Lost; memory on both sides is bounded by Window and InputWindow whatever their size; a cancelled context
// cancels the command. A side that is killed is noticed by the other within seconds. One that is slow or stopped is waited
// for, unless nothing is heard of it for Silence, by when NATS has dropped its connection too: its machine is as good as
// dead.
//
// An idle worker offers at once, a busy one a little later, so that the idle one is chosen (see slots). A worker at its
// capacity says so and offers when a command of its has ended; the caller waits for that as long as somebody says so.
// The servers repeat what they said last, four times a second, and the caller answers each time. Until it is settled who runs
// the command, the caller's answer to a repeated offer is the grant, and a caller that only hears of full workers repeats its request every few seconds,
// because one may have come since. After that started says how much output came before it and how much input was taken, and the
// credit that answers it says how much input came before it: so neither credit that is lost stalls the other side, and output
// or input that is lost is noticed, because NATS keeps the order of what one connection publishes to one subscription.
// <id> is that of the exec, or a fresh one when something else is asked about an exec (see Op).
//
// Liveness rests on two facts. The server of NATS answers 503 to a publish nobody is subscribed to: the caller sends
// probes to <subject>.<id>, the server to <subject>.<id>.caller. The second subject is there because an account's
// reply subjects (_R_.>) never answer 503, even when the caller behind them is gone (measured, nats-server 2.15.2); a
// service imported the other way does. And a server says something to its caller four times a second, whatever it does.
// A side that has lost its connection answers 503 as well. It has CutOff to come back, and then gives the command up by
// itself. The caller gives a running command up after 503 answers during CutOff.
//
// It must not know what a permission is, what an event is, or how a process is run.
package wire

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Limits of the protocol, shared by both sides.
const (
	ChunkSize   = 32 << 10  // bytes in one message of output or input: 333-462 MB/s over NATS, measured
	Window      = 1 << 20   // bytes a server may have in flight before the caller's credit comes back
	InputWindow = 256 << 10 // bytes a caller may have in flight before the server's credit comes back
	MaxCommand  = 120 << 10 // bytes of a command: Linux takes 128 KiB in one argument (MAX_ARG_STRLEN)

	KillGrace    = time.Second      // from asking a cancelled process to end to killing it
	CancelWait   = 2 * time.Second  // how long a cancelled Call still waits for the result
	StartTimeout = 5 * time.Second  // how long a Call waits for an offer, or for the next word of somebody who is full
	StopTimeout  = 5 * time.Second  // how long a stopping Serve waits for the handlers it has cancelled
	CutOff       = 5 * time.Second  // a side without a connection to NATS for this long gives its execs up, and so does the other side then
	Silence      = 12 * time.Second // a worker nothing is heard of for this long is lost
	Gathering    = time.Second / 4  // how long Workers listens
)

const (
	frameCost    = 512 // what a message takes besides its bytes, so that many small writes stay within Window too
	callerProbe  = 250 * time.Millisecond
	serverProbe  = time.Second
	declinedWait = 500 * time.Millisecond // how long a Call still waits for an offer when somebody has declined
	goneAfter    = 2                      // consecutive 503 answers before the start: one may be a subscription still spreading through a cluster
	maxAsks      = 16                     // how often a Call asks, when one server after the other withdraws
	askAgain     = 3                      // probes from one asking of a Call that stands in line to the next
	maxPath      = 4096
	maxCallID    = 256
	maxError     = 1024
)

// ExitRefused is the shell's exit code for a command that was not run: "found but not executable" in POSIX shells.
const ExitRefused = 126

// ExitLost is the exit code in a Result whose Reason is Lost.
const ExitLost = 255

// Frame kinds, in the header frameHeader.
const (
	frameHeader = "Exec-Frame"
	askHeader   = "Exec-Ask"   // names one asking of a call, in the request and in what is said about it: words of an earlier one are stale
	offerHeader = "Exec-Offer" // names an offer: in what its server says until the output starts and in finished, and in the grant
	orderHeader = "Exec-Order" // of input: 1 for the first, and so on. In the caller's credit: that of the last before it
	sentHeader  = "Exec-Sent"  // in what a server repeats: the cost of all output before it
	takenHeader = "Exec-Taken" // and of all input that was taken

	frameWho = "who" // sent to a pool; the answer is a WorkerInfo in JSON

	frameOffer     = "offer"     // of the server; no body
	frameQueued    = "queued"    // no body: there will be an offer
	frameDeclined  = "declined"  // why it does not offer, for a person
	frameWithdrawn = "withdrawn" // no body
	frameStarted   = "started"   // Start in JSON
	frameStdout    = "stdout"    // raw bytes
	frameStderr    = "stderr"
	frameFinished  = "finished" // Result in JSON

	frameGrant  = "grant"  // of the caller; no body
	frameCancel = "cancel" // no body
	frameProbe  = "probe"  // no body and no answer; the server sends it too
	frameStdin  = "stdin"  // raw bytes
	frameSize   = "size"   // Terminal in JSON
	frameSignal = "signal" // its name
	frameEnd    = "end"    // of input; no body

	frameCredit = "credit" // of both: the total cost consumed so far, in decimal
)

// RequestSubject is where the bridge of an engine asks for commands: exec.request.<engine>.
func RequestSubject(engine string) string { return "exec.request." + engine }

// RunSubject is where the workers of a pool listen: exec.run.<pool>.
func RunSubject(pool string) string { return "exec.run." + pool }

// PersonSubject is where the command line asks the handlers for a person's own shell.
const PersonSubject = "exec.shell"

// ControlSubject is where the servers of one call listen to its caller: <subject>.<id>.
func ControlSubject(subject, id string) string { return subject + "." + id }

// CallerSubject is where the caller is subscribed for as long as it wants the command: <subject>.<id>.caller.
func CallerSubject(subject, id string) string { return ControlSubject(subject, id) + ".caller" }

// IsToken reports whether s may stand in a subject: 1 to 64 of A-Z, a-z, 0-9, _ and -.
func IsToken(s string) bool {
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-') {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 64
}

// oneLine makes the words of a peer fit for a terminal: valid UTF-8, at most maxError bytes, nothing that controls it, ends a
// line or changes how other characters are shown.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), maxError)], "?"))
}

func refused(format string, a ...any) Result {
	return Result{ExitCode: ExitRefused, Reason: Refused, Error: fmt.Sprintf(format, a...)}
}

func lost(format string, a ...any) Result {
	return Result{ExitCode: ExitLost, Reason: Lost, Error: fmt.Sprintf(format, a...)}
}
