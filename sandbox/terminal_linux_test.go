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

	"pocketcoder/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// session is a command at a terminal, or at least with somebody who talks to it.
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

// awaits returns when a text stands on the screen, and takes all up to there away.
func (s *session) awaits(text string) (before string) {
	s.t.Helper()
	expect.Eventually(s.t, "shows "+text, func() bool { return strings.Contains(s.shown(), text) })
	s.mu.Lock()
	defer s.mu.Unlock()
	before, _, _ = strings.Cut(s.out.String(), text)
	s.out.Next(len(before) + len(text))
	return before
}

func (s *session) types(text string) { s.input <- wire.Input{Data: []byte(text)} }

func talk(t *testing.T, w *Worker, command string, terminal *wire.Terminal) *session {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &session{t: t, input: make(chan wire.Input), hangUp: cancel, ended: make(chan wire.Result, 1)}
	r := w.request(command)
	s.exec = r.Exec
	r.Terminal, r.Input = terminal, s.input
	go func() { s.ended <- w.Exec(ctx, r, s, s) }()
	return s
}

// everywhere runs a test at each isolation level that works here, and without isolation.
func everywhere(t *testing.T, test func(t *testing.T, w *Worker)) {
	t.Parallel()
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		test(t, open(t))
	})
	eachLevel(t, func(t *testing.T, choice isolation.Choice) { test(t, newTestWorker(t, choice, nil).Worker) })
}

func TestAPersonsShellIsAtATerminal(t *testing.T) { everywhere(t, aPersonsShellIsAtATerminal) }

func aPersonsShellIsAtATerminal(t *testing.T, w *Worker) {
	is := is.New(t)
	s := talk(t, w, "", &wire.Terminal{Rows: 33, Cols: 99, Kind: "vt220"})
	s.types("PS1='<>'; echo $((6*7)); tty; stty size; echo $TERM $-\n")
	s.awaits("42\r\n/dev/") // pts/0, or behind bubblewrap console
	s.awaits("33 99\r\nvt220")
	s.awaits("i") // interactive
	s.input <- wire.Input{Size: &wire.Terminal{Rows: 50, Cols: 120}}
	s.types("stty size\n")
	s.awaits("50 120\r\n")
	s.types("sh -c 'echo asleep$((40+2)); exec sleep 600'\n")
	s.awaits("asleep42\r\n")
	s.types("\x03") // Ctrl-C, of the terminal's own making
	s.awaits("<>")
	s.types("echo $?; exit 7\n")
	s.awaits("130\r\n")
	result := <-s.ended
	is.Equal(result.Reason, wire.Exited)
	is.Equal(result.ExitCode, 7)
}

func TestAllThatACommandPrintsAtATerminalIsShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	s := talk(t, w, "seq 100000; echo to stderr >&2; test -t 0 && test -t 1 && test -t 2",
		&wire.Terminal{Rows: 24, Cols: 80})
	result := <-s.ended
	is.Equal(result.ExitCode, 0)
	var want strings.Builder
	for i := range 100000 {
		want.WriteString(strconv.Itoa(i+1) + "\r\n")
	}
	is.True(s.shown() == want.String()+"to stderr\r\n")
}

// What a shell leaves behind does not keep its terminal.
func TestATerminalEndsWithItsShell(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	s := talk(t, w, "trap '' HUP; sleep 600 & echo pid $!.; echo last words", &wire.Terminal{Rows: 24, Cols: 80})
	result := <-s.ended
	is.Equal(result.Reason, wire.Exited)
	s.awaits("pid ")
	pid, err := strconv.Atoi(s.awaits("."))
	is.NoErr(err)
	s.awaits("last words\r\n")
	is.True(alive(pid))
}

func TestAPersonWhoIsGoneHangsUp(t *testing.T) { everywhere(t, aPersonWhoIsGoneHangsUp) }

func aPersonWhoIsGoneHangsUp(t *testing.T, w *Worker) {
	is := is.New(t)
	w.grace = time.Minute // however busy the machine is
	s := talk(t, w, "", &wire.Terminal{Rows: 24, Cols: 80})
	s.types("trap '' TERM; sleep 600 & echo rea''dy\n")
	s.awaits("ready")
	s.hangUp()
	result := <-s.ended
	is.Equal(result.Reason, wire.Cancelled)
	is.Equal(result.Signal, "SIGHUP") // it was not left to be killed
	expect.Eventually(t, "all processes are gone", func() bool { return len(leftOf(w, s.exec)) == 0 })
}

func TestASignalReachesAllProcessesOfACommand(t *testing.T) {
	everywhere(t, aSignalReachesAllProcesses)
}

func aSignalReachesAllProcesses(t *testing.T, w *Worker) {
	is := is.New(t)
	s := talk(t, w, `trap 'echo shell' USR1; setsid sh -c 'trap "echo child; exit" USR1; echo ready; while :; do sleep 0.01; done' & wait; wait; sleep 600 & echo "and on"; wait`, nil)
	s.awaits("ready")
	s.input <- wire.Input{Signal: "SIGNONE"} // is said in the log
	s.input <- wire.Input{Data: []byte("nobody reads this")}
	s.input <- wire.Input{Signal: "SIGUSR1"}
	s.awaits("and on")
	s.input <- wire.Input{Signal: "SIGTERM"}
	result := <-s.ended
	is.Equal(result.ExitCode, 143)
	is.Equal(result.Reason, wire.Exited) // by itself, as far as the worker is concerned
}

func TestAStoppedCommandHearsThatItIsToEnd(t *testing.T) { everywhere(t, aStoppedCommandHears) }

func aStoppedCommandHears(t *testing.T, w *Worker) {
	is := is.New(t)
	for _, signal := range []string{"SIGTERM", "SIGHUP"} {
		s := talk(t, w, `trap 'exit 7' TERM HUP; echo ready; while :; do sleep 0.01; done`, nil)
		s.awaits("ready")
		s.input <- wire.Input{Signal: "SIGSTOP"}
		s.input <- wire.Input{Signal: signal}
		result := <-s.ended
		is.Equal([]any{result.Reason, result.ExitCode}, []any{wire.Exited, 7})
	}
}

// Somebody else's command of the same worker hears nothing.
func TestASignalReachesNoOtherCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	other := talk(t, w, "echo ready; read x </dev/zero & wait", nil)
	other.awaits("ready")
	s := talk(t, w, "echo ready; sleep 600", nil)
	s.awaits("ready")
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

func TestInputNobodyReadsDoesNotKeepATerminal(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := talk(t, open(t), "stty raw -echo; echo ready; sleep 600", &wire.Terminal{Rows: 24, Cols: 80})
	s.awaits("ready")
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

func TestSignalsAndSizesPassWhatNobodyReads(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := talk(t, open(t), "stty raw -echo; trap 'stty size' WINCH; trap 'echo stopped; exit 3' USR1; echo ready; while :; do sleep 0.01; done", &wire.Terminal{Rows: 24, Cols: 80})
	s.awaits("ready")
	for range maxTyped / 2 / wire.ChunkSize {
		s.input <- wire.Input{Data: make([]byte, wire.ChunkSize)}
	}
	s.input <- wire.Input{Size: &wire.Terminal{Rows: 50, Cols: 120}}
	s.awaits("50 120")
	s.input <- wire.Input{Signal: "SIGUSR1"}
	result := <-s.ended
	s.awaits("stopped")
	is.Equal([]any{result.Reason, result.ExitCode}, []any{wire.Exited, 3})
}

func TestATerminalWhoseProgramReadsNothingOfVeryMuchIsEnded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := talk(t, open(t), "stty raw -echo; echo ready; sleep 600", &wire.Terminal{Rows: 24, Cols: 80})
	s.awaits("ready")
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

func TestAllThatIsTypedArrivesInOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := talk(t, open(t), "stty raw -echo; echo ready; head -c 600000 | sha256sum", &wire.Terminal{Rows: 24, Cols: 80})
	s.awaits("ready")
	var all []byte
	for i := 0; len(all) < 600000; i++ {
		all = append(all, strconv.Itoa(i)...)
	}
	all = all[:600000]
	for piece := range slices.Chunk(all, 1000) {
		s.input <- wire.Input{Data: piece}
	}
	is.Equal((<-s.ended).ExitCode, 0)
	s.awaits(fmt.Sprintf("%x", sha256.Sum256(all)))
}
