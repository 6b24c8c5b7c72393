package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/wire"
)

// leave runs two programs in the background and ends when both have started. It needs /proc, which Landlock hides from
// commands of other users than root.
const leave = `for command in 'sleep 600' 'tail -f /dev/null'; do $command >/dev/null 2>&1 & ` +
	`until read -r name </proc/$!/comm; [ "$name" = "${command%% *}" ]; do :; done; done; echo hi; exit 7`

func TestProcessesThatACommandLeavesAreReported(t *testing.T) {
	t.Parallel()
	both := []isolation.Choice{needLevel(t, isolation.Bwrap), unprotected}
	atLevels(t, both, func(t *testing.T, choice isolation.Choice) {
		j := newTestWorker(t, choice, nil)
		t.Run("in a cgroup", func(t *testing.T) { reportsLeftProcesses(t, j, choice.Level) })
		own := j.groups
		j.groups = nil
		defer func() { j.groups = own }()
		t.Run("without one", func(t *testing.T) { reportsLeftProcesses(t, j, choice.Level) })
	})
}

func reportsLeftProcesses(t *testing.T, j *testWorker, level isolation.Level) {
	is := is.New(t)
	for _, ports := range []bool{false, true} { // with ports another program runs the shell in bubblewrap
		r := j.request(leave)
		r.Ports = ports
		var out, stderr bytes.Buffer
		result := j.Exec(t.Context(), r, &out, &stderr)
		is.Equal(out.String()+stderr.String(), "hi\n")
		is.Equal(result.ExitCode, 7)
		is.Equal(result.Left, &wire.Left{Processes: 2, Programs: []string{"sleep", "tail"},
			Running: level != isolation.Bwrap})
		if level == isolation.Bwrap {
			expect.Eventually(t, "they end", func() bool { return len(leftOf(j.Worker, r.Exec)) == 0 })
		} else {
			is.Equal(len(leftOf(j.Worker, r.Exec)), 2)
		}
	}
	for _, command := range []string{"echo hi", "sleep 600 & kill $!; wait", "kill -9 $$",
		"(true & echo $! >orphan); read -r p <orphan; while read -r _ _ s _ </proc/$p/stat && [ $s != Z ]; do :; done"} {
		result := j.Exec(t.Context(), j.request(command), io.Discard, io.Discard)
		is.Equal(result.Left, nil) // it leaves no process
	}
}

func TestTheProcessThatIsWatchedReceivesSignals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signal  syscall.Signal
		exiting int
		status  string
	}{
		"one that it handles": {syscall.SIGTERM, 1, "exit status 5"},
		"one that ends it":    {syscall.SIGKILL, 0, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			r, w, err := os.Pipe()
			is.NoErr(err)
			defer r.Close()
			attr := &os.ProcAttr{Files: []*os.File{nil, w}, Sys: &syscall.SysProcAttr{}}
			exiting, exited := 0, make(chan error, 1)
			started := make(chan *os.Process, 1)
			isolation.RunOnThread(func() {
				p, err := startStopped([]string{"/bin/sh", "-c",
					`exec /bin/sh -c 'trap "exit 5" TERM; echo ready; while :; do sleep 0.01; done'`}, attr)
				w.Close()
				if err == nil {
					started <- p
					runToExit(p.Pid, func() {
						exiting++
						if state, _ := proc.State(p.Pid); state != "t" {
							err = fmt.Errorf("the process is in state %q", state)
						}
					})
				}
				exited <- err
			})
			_, err = io.ReadFull(r, make([]byte, len("ready\n")))
			is.NoErr(err)
			p := <-started
			is.NoErr(p.Signal(c.signal))
			is.NoErr(<-exited)
			state, err := p.Wait()
			is.NoErr(err)
			is.Equal(state.String(), c.status)
			is.Equal(exiting, c.exiting)
		})
	}
}
