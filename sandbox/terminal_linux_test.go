package sandbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// session is a command with input, usually at a terminal.
type session struct {
	t      *testing.T
	exec   string
	input  chan wire.Input
	hangUp context.CancelFunc
	ended  chan wire.Result

	mu  sync.Mutex
	out bytes.Buffer
}

func (s *session) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *session) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// waitForText waits for a text in the output. It returns and removes the output before it.
func (s *session) waitForText(text string) (before string) {
	s.t.Helper()
	expect.Eventually(s.t, "shows "+text, func() bool { return strings.Contains(s.shown(), text) })
	s.mu.Lock()
	defer s.mu.Unlock()
	before, _, _ = strings.Cut(s.out.String(), text)
	s.out.Next(len(before) + len(text))
	return before
}

func (s *session) typeText(text string) { s.input <- wire.Input{Data: []byte(text)} }

func startSession(t *testing.T, w *Worker, command string, terminal *wire.Terminal) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &session{t: t, input: make(chan wire.Input), hangUp: cancel, ended: make(chan wire.Result, 1)}
	r := w.request(command)
	s.exec = r.Exec
	r.Terminal, r.Input = terminal, s.input
	go func() { s.ended <- w.Exec(ctx, r, s, s) }()
	return s
}

// withAndWithoutBwrap runs a test without isolation and, where it works, behind bubblewrap. At landlock a command has
// the same processes and the same terminal as without isolation.
func withAndWithoutBwrap(t *testing.T, test func(t *testing.T, w *Worker)) {
	t.Helper()
	t.Parallel()
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		test(t, open(t))
	})
	t.Run("bwrap", func(t *testing.T) {
		t.Parallel()
		test(t, newTestWorker(t, needLevel(t, isolation.Bwrap), nil).Worker)
	})
}

func TestShellRunsAtATerminal(t *testing.T) { withAndWithoutBwrap(t, testShellAtTerminal) }

func testShellAtTerminal(t *testing.T, w *Worker) {
	is := is.New(t)
	s := startSession(t, w, "", &wire.Terminal{Rows: 33, Cols: 99, Kind: "vt220"})
	s.typeText("PS1='<>'; echo $((6*7)); tty; stty size; echo $TERM $-\n")
	s.waitForText("42\r\n/dev/") // pts/0, or behind bubblewrap console
	s.waitForText("33 99\r\nvt220")
	s.waitForText("i") // interactive
	s.input <- wire.Input{Size: &wire.Terminal{Rows: 50, Cols: 120}}
	s.typeText("stty size\n")
	s.waitForText("50 120\r\n")
	s.typeText("sh -c 'echo asleep$((40+2)); exec sleep 600'\n")
	s.waitForText("asleep42\r\n")
	s.typeText("\x03") // Ctrl-C, from the terminal
	s.waitForText("<>")
	s.typeText("echo $?; exit 7\n")
	s.waitForText("130\r\n")
	result := <-s.ended
	is.Equal(result.Reason, wire.Exited)
	is.Equal(result.ExitCode, 7)
}

func TestTerminalShowsAllOutput(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	s := startSession(t, w, "seq 20000; echo to stderr >&2; test -t 0 && test -t 1 && test -t 2",
		&wire.Terminal{Rows: 24, Cols: 80})
	result := <-s.ended
	is.Equal(result.ExitCode, 0)
	var want strings.Builder
	for i := range 20000 {
		want.WriteString(strconv.Itoa(i+1) + "\r\n")
	}
	is.True(s.shown() == want.String()+"to stderr\r\n")
}

// Processes that a shell leaves behind do not keep its terminal open.
func TestTerminalEndsWithItsShell(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	s := startSession(t, w, "trap '' HUP; sleep 600 & echo pid $!.; echo last words", &wire.Terminal{Rows: 24, Cols: 80})
	result := <-s.ended
	is.Equal(result.Reason, wire.Exited)
	s.waitForText("pid ")
	pid, err := strconv.Atoi(s.waitForText("."))
	is.NoErr(err)
	s.waitForText("last words\r\n")
	is.True(alive(pid))
}

func TestDisconnectSendsHangUp(t *testing.T) { withAndWithoutBwrap(t, testDisconnectSendsHangUp) }

func testDisconnectSendsHangUp(t *testing.T, w *Worker) {
	is := is.New(t)
	w.grace = time.Minute // even on a busy machine
	s := startSession(t, w, "", &wire.Terminal{Rows: 24, Cols: 80})
	s.typeText("trap '' TERM; sleep 600 & echo rea''dy\n")
	s.waitForText("ready")
	s.hangUp()
	result := <-s.ended
	is.Equal(result.Reason, wire.Cancelled)
	is.Equal(result.Signal, "SIGHUP") // it was not killed
	expect.Eventually(t, "all processes are gone", func() bool { return len(leftOf(w, s.exec)) == 0 })
}

func TestDisconnectEndsTheInput(t *testing.T) { withAndWithoutBwrap(t, testDisconnectEndsTheInput) }

func testDisconnectEndsTheInput(t *testing.T, w *Worker) {
	is := is.New(t)
	w.grace = time.Minute // even on a busy machine
	s := startSession(t, w, "", &wire.Terminal{Rows: 24, Cols: 80})
	s.typeText("trap '' TERM HUP; echo rea''dy\n")
	s.waitForText("ready")
	s.hangUp()
	result := <-s.ended
	is.Equal(result.Reason, wire.Cancelled)
	is.True(result.Signal != "SIGKILL") // it ended by itself
}

func TestSignalReachesAllProcessesOfACommand(t *testing.T) {
	withAndWithoutBwrap(t, testSignalReachesAllProcesses)
}

func testSignalReachesAllProcesses(t *testing.T, w *Worker) {
	is := is.New(t)
	s := startSession(t, w, `trap 'echo shell' USR1; setsid sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.01; done' & wait; wait; sleep 600 & echo "and on"; wait`, nil)
	s.waitForText("ready")
	s.input <- wire.Input{Signal: "SIGNONE"} // is logged
	s.input <- wire.Input{Data: []byte("no process reads this")}
	s.input <- wire.Input{Signal: "SIGUSR1"}
	s.waitForText("and on")
	s.input <- wire.Input{Signal: "SIGTERM"}
	result := <-s.ended
	is.Equal(result.ExitCode, 143)
	is.Equal(result.Reason, wire.Exited) // the worker did not end it
}

func TestStoppedCommandReceivesTheSignalToEnd(t *testing.T) {
	withAndWithoutBwrap(t, testStoppedCommandReceivesSignal)
}

func testStoppedCommandReceivesSignal(t *testing.T, w *Worker) {
	is := is.New(t)
	for _, signal := range []string{"SIGTERM", "SIGHUP"} {
		s := startSession(t, w, `trap 'exit 7' TERM HUP; echo ready; while :; do sleep 0.01; done`, nil)
		s.waitForText("ready")
		s.input <- wire.Input{Signal: "SIGSTOP"}
		s.input <- wire.Input{Signal: signal}
		result := <-s.ended
		is.Equal([]any{result.Reason, result.ExitCode}, []any{wire.Exited, 7})
	}
}

// Another command of the same worker gets no signal.
func TestSignalReachesNoOtherCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	other := startSession(t, w, "echo ready; read x </dev/zero & wait", nil)
	other.waitForText("ready")
	s := startSession(t, w, "echo ready; sleep 600", nil)
	s.waitForText("ready")
	s.input <- wire.Input{Signal: "SIGKILL"}
	is.Equal((<-s.ended).Signal, "SIGKILL")
	select {
	case r := <-other.ended:
		t.Fatal(r)
	default:
	}
	other.hangUp()
	<-other.ended
}

func TestUnreadInputDoesNotBlockTheTerminal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := startSession(t, open(t), "stty raw -echo; echo ready; sleep 600", &wire.Terminal{Rows: 24, Cols: 80})
	s.waitForText("ready")
	go func() {
		for {
			select {
			case s.input <- wire.Input{Data: make([]byte, wire.ChunkSize)}:
			case <-t.Context().Done():
				return
			}
		}
	}()
	s.hangUp()
	is.Equal((<-s.ended).Reason, wire.Cancelled)
}

func TestSignalsAndSizesPassUnreadInput(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := startSession(t, open(t), "stty raw -echo; trap 'stty size' WINCH; trap 'echo stopped; exit 3' USR1; echo ready; while :; do sleep 0.01; done", &wire.Terminal{Rows: 24, Cols: 80})
	s.waitForText("ready")
	for range maxInputBuffer / 2 / wire.ChunkSize {
		s.input <- wire.Input{Data: make([]byte, wire.ChunkSize)}
	}
	s.input <- wire.Input{Size: &wire.Terminal{Rows: 50, Cols: 120}}
	s.waitForText("50 120")
	s.input <- wire.Input{Signal: "SIGUSR1"}
	result := <-s.ended
	s.waitForText("stopped")
	is.Equal([]any{result.Reason, result.ExitCode}, []any{wire.Exited, 3})
}

func TestTooMuchUnreadInputEndsTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := startSession(t, open(t), "stty raw -echo; echo ready; sleep 600", &wire.Terminal{Rows: 24, Cols: 80})
	s.waitForText("ready")
	for {
		select {
		case s.input <- wire.Input{Data: make([]byte, wire.ChunkSize)}:
			continue
		case result := <-s.ended:
			is.Equal([]any{result.Reason, result.Error}, []any{wire.Cancelled, errUnread.Error()})
		}
		return
	}
}

func TestTypedInputArrivesInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := startSession(t, open(t), "stty raw -echo; echo ready; head -c 600000 | sha256sum",
		&wire.Terminal{Rows: 24, Cols: 80})
	s.waitForText("ready")
	var all []byte
	for i := 0; len(all) < 600000; i++ {
		all = append(all, strconv.Itoa(i)...)
	}
	all = all[:600000]
	for piece := range slices.Chunk(all, 1000) {
		s.input <- wire.Input{Data: piece}
	}
	is.Equal((<-s.ended).ExitCode, 0)
	s.waitForText(fmt.Sprintf("%x", sha256.Sum256(all)))
}
