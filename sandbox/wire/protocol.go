// Package wire is the exec protocol. A command travels over NATS from the shell of OpenCode to the handler that checks
// it, and from there to the worker that runs it. Its output travels back.
//
// Both legs speak the same protocol, with Call on one side and Serve on the other:
//
//	caller                                                  server
//	  ── Request (reply = inbox) ──────────────────────────▶  exec.request.<engine> (one of a queue group gets it) or
//	                                                          exec.run.<pool> (every worker gets it)
//	  ◀──────────────────────── offer, queued or declined ──  from each server that got it
//	  ── grant: names the offer that is taken ─────────────▶  <subject>.<id>: the other servers drop out
//	  ◀─────────────────────── started, or withdrawn ───────  withdrawn: it did not and will not run, ask the others
//	  ◀── stdout / stderr chunks, in order, ≤ ChunkSize ───
//	  ── credit (consumed so far), cancel ─────────────────▶  <subject>.<id>
//	  ── stdin chunks, size, signal, in order; end ────────▶  <subject>.<id>
//	  ◀──────────────── credit (input consumed so far) ────
//	  ◀────────────────────────────── finished (Result) ───
//
// <id> is the id of the execution, or a fresh one for another Op.
//
// Promises:
//   - No command runs twice, whatever messages are lost, late or repeated. A server runs only what was granted to it.
//     A caller grants one offer, and another one only after the first server has withdrawn.
//   - Output and input arrive whole and in order, or the Result is Lost. Window and InputWindow bound the memory of
//     both sides.
//   - A cancelled context cancels the command. Each side notices within seconds that the other was killed, and waits
//     up to Silence for one that is slow or stopped.
//
// An idle worker offers at once and a busy one a little later (see slots). A worker at its capacity says queued and
// offers when one of its commands has ended.
//
// A server repeats its last message four times a second, and the caller answers each time: an offer with the grant,
// started with a credit. Started names how much output came before it and how much input was taken; the credit names
// how much input came before it. So no lost grant or credit stalls a side, and lost output or input is noticed,
// because NATS keeps the order of one connection's messages to one subscription. A caller that hears only of full
// workers repeats its request every few seconds, because a new worker may have started.
//
// Liveness: the NATS server answers 503 to a message without a subscriber. The caller probes <subject>.<id>, and the
// server probes <subject>.<id>.caller, because reply subjects of an account (_R_.>) never answer 503 (measured,
// nats-server 2.15.2). A side that lost its connection answers 503 too. It gives the command up after CutOff, and so
// does the caller after 503 answers for CutOff.
//
// The package must not know what a permission or an event is, or how a process is run.
package wire

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Limits of the protocol, shared by both sides.
const (
	ChunkSize   = 64 << 10  // bytes in one message of output or input: as many as a pipe holds (pipe(7))
	Window      = 1 << 20   // bytes a server may have in flight before the caller's credit comes back
	InputWindow = 256 << 10 // bytes a caller may have in flight before the server's credit comes back
	MaxCommand  = 120 << 10 // bytes of a command: Linux takes 128 KiB in one argument (MAX_ARG_STRLEN)

	KillGrace    = time.Second     // from asking a cancelled process to end to killing it
	CancelWait   = 2 * time.Second // how long a cancelled Call still waits for the result
	StartTimeout = 5 * time.Second // how long a Call waits for an offer, or for the next word of somebody who is full
	StopTimeout  = 5 * time.Second // how long a stopping Serve waits for the handlers it has cancelled
	// a side without a connection to NATS for this long gives its execs up, and so does the other side then
	CutOff    = 5 * time.Second
	Silence   = 12 * time.Second // a worker nothing is heard of for this long is lost
	Gathering = time.Second / 4  // how long Workers listens
)

const (
	frameCost    = 512 // what a message takes besides its bytes, so that many small writes stay within Window too
	callerProbe  = 250 * time.Millisecond
	serverProbe  = time.Second
	declinedWait = 500 * time.Millisecond // how long a Call still waits for an offer when somebody has declined
	// consecutive 503 answers before the start: one may be a subscription still spreading through a cluster
	goneAfter   = 2
	maxAttempts = 16 // how often a Call asks, when one server after the other withdraws
	resendEvery = 3  // probes from one asking of a Call that stands in line to the next
	maxPath     = 4096
	maxCallID   = 256
	maxError    = 1024
)

// ExitRefused is the shell's exit code for a command that was not run: "found but not executable" in POSIX shells.
const ExitRefused = 126

// ExitLost is the exit code in a Result whose Reason is Lost.
const ExitLost = 255

// Frame kinds, in the header frameHeader.
const (
	frameHeader = "Exec-Frame"
	// names one asking of a call, in the request and in what is said about it: words of an earlier one are stale
	askHeader = "Exec-Ask"
	// names an offer: in what its server says until the output starts and in finished, and in the grant
	offerHeader = "Exec-Offer"
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

// oneLine makes the words of a peer fit for a terminal: valid UTF-8, at most maxError bytes, nothing that controls it,
// ends a line or changes how other characters are shown.
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
