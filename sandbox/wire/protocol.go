// Package wire is the exec protocol. A command travels over NATS from the handler that has checked it to the worker
// that runs it, and a request for a person's own shell from the web server to the handler. The output travels back.
//
// Both ways use the same protocol, with Call on one side and Serve on the other:
//
//	caller                                                  server
//	  ── Request (reply = inbox) ──────────────────────────▶  exec.shell (one of a queue group gets it) or
//	                                                          exec.run.<pool> (every worker gets it)
//	  ◀──────────────────────── offer, queued or declined ──  from each server that got it
//	  ── grant: names the offer that is taken ─────────────▶  <subject>.<id>: the other servers withdraw
//	  ◀─────────────────────── started, or withdrawn ───────  withdrawn: the command did not run, ask again
//	  ◀── stdout / stderr chunks, in order, ≤ ChunkSize ───
//	  ── credit (consumed so far), cancel ─────────────────▶  <subject>.<id>
//	  ── stdin chunks, size, signal, in order; end ────────▶  <subject>.<id>
//	  ◀──────────────── credit (input consumed so far) ────
//	  ◀────────────────────────────── finished (Result) ───
//	  ── received ─────────────────────────────────────────▶  <subject>.<id>
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
// An idle worker offers at once and a busy one a little later (see slots). A worker at its capacity sends queued, and
// an offer when one of its commands has ended.
//
// A server repeats its last message four times a second, and the caller answers each time: an offer with the grant,
// started with a credit. Started names how much output came before it and how much input was taken; the credit names
// how much input came before it. So no lost grant or credit stalls a side, and lost output or input is noticed,
// because NATS keeps the order of one connection's messages to one subscription. Finished is repeated until the caller
// has received it or is gone, for ReceiptWait at most, so a connection that breaks at the end loses no result. A caller
// that receives only queued workers repeats its request every few seconds, because a new worker may have started.
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

	KillGrace = time.Second // from asking a cancelled process to end to killing it
	// how long a cancelled Call still waits for the result: KillGrace plus time for a busy machine
	CancelWait   = 4 * time.Second
	StartTimeout = 5 * time.Second // how long a Call waits for an offer, or for the next message of a full server
	StopTimeout  = 5 * time.Second // how long a stopping Serve waits for the cancelled handlers
	// a side without a connection to NATS for this long ends its commands, and so does the other side
	CutOff = 5 * time.Second
	// how long a server repeats a result without a receipt: both sides may have been without a connection for CutOff
	ReceiptWait = 2 * CutOff
	Silence     = 12 * time.Second // a worker is lost if no message of it arrives for this long
	Gathering   = time.Second / 4  // how long Workers waits for answers
)

const (
	frameCost    = 512 // cost of a message besides its bytes, so that many small writes stay within Window too
	callerProbe  = 250 * time.Millisecond
	serverProbe  = time.Second
	holderWait   = time.Second     // how much later a server offers Keep and Dismiss of an item that it does not have
	declinedWait = 2 * time.Second // how long a Call still waits for an offer after a server has declined
	// consecutive 503 answers before the start; a single one may come while a subscription spreads through a cluster
	goneAfter   = 2
	maxAttempts = 16 // attempts of a Call when servers withdraw
	resendEvery = 3  // probes between two requests of a queued Call
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
	// id of the attempt, in the request and in its answers: answers to an earlier attempt are stale
	askHeader = "Exec-Ask"
	// id of an offer, in the offer and the grant, and in the server's frames before the output and in finished
	offerHeader = "Exec-Offer"
	orderHeader = "Exec-Order" // number of an input frame, from 1; in the caller's credit: of the last frame before it
	sentHeader  = "Exec-Sent"  // in repeated frames of a server: cost of all output before it
	takenHeader = "Exec-Taken" // and of all input that was consumed

	frameWho = "who" // sent to a pool; the answer is a WorkerInfo in JSON

	frameOffer     = "offer"     // of the server; no body
	frameQueued    = "queued"    // no body; an offer follows
	frameDeclined  = "declined"  // the reason, for a person
	frameWithdrawn = "withdrawn" // no body
	frameStarted   = "started"   // Start in JSON
	frameStdout    = "stdout"    // raw bytes
	frameStderr    = "stderr"
	frameFinished  = "finished" // Result in JSON

	frameGrant  = "grant"  // of the caller; no body
	frameCancel = "cancel" // no body
	frameProbe  = "probe"  // no body and no answer; the server sends probes too
	frameStdin  = "stdin"  // raw bytes
	frameSize   = "size"   // Terminal in JSON
	frameSignal = "signal" // its name
	frameEnd    = "end"    // of input; no body

	frameReceived = "received" // of the caller: the result has arrived; no body

	frameCredit = "credit" // of both sides: the total cost consumed so far, in decimal
)

// RunSubject is where the workers of a pool listen: exec.run.<pool>.
func RunSubject(pool string) string { return "exec.run." + pool }

// PersonSubject is where the web server requests a person's own shell from the node that runs the engine.
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

// OneLine makes a peer's text safe for a terminal: one line of valid UTF-8, at most maxError bytes, without control and
// format characters.
func OneLine(s string) string {
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
