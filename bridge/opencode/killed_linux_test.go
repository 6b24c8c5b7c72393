package opencode

import (
	"bytes"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
)

var killAll = flag.Bool("kill.all", false, "kill at many moments of a start instead of three")

// TestNothingOutlivesAProcessKilledWhileItStartsOpenCode runs itself as the process that is killed, at some moments
// after the first start. Bubblewrap needs a few milliseconds until its processes end with their parent.
func TestNothingOutlivesAProcessKilledWhileItStartsOpenCode(t *testing.T) {
	const variable = "POCKETCODER_TEST_STARTS"
	if dir := os.Getenv(variable); dir != "" {
		startMany(t, dir)
		return
	}
	if _, err := isolation.Choose(string(isolation.Bwrap)); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	is := is.New(t)
	step := 8 * time.Millisecond
	if *killAll {
		step = 2 * time.Millisecond
	}
	for delay := time.Duration(0); delay < 24*time.Millisecond; delay += step {
		dir := t.TempDir()
		process := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		process.Env = append(os.Environ(), variable+"="+dir, "TMPDIR="+dir) // the killed process removes nothing
		is.NoErr(process.Start())
		t.Cleanup(func() { killMentioning(dir) })
		expect.Eventually(t, "the first start", func() bool {
			started, _ := filepath.Glob(filepath.Join(dir, "*", "pid"))
			return len(started) > 0
		})
		time.Sleep(delay) // the moment of the kill
		is.NoErr(process.Process.Kill())
		process.Wait()
		expect.Eventually(t, fmt.Sprintf("no process is left after %s of %v", delay, len(mentioning(dir))), func() bool {
			return len(mentioning(dir)) == 0
		})
	}
}

// OpenCode starts each command as the leader of a process group.
func TestStopKillsCommandsWithGroupsOfTheirOwn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newTestSupervisor(t, t.TempDir(), "setsid sh -c 'echo $$ >started; exec sleep 600' & wait")
	stop := s.runInBackground(t)
	command := writtenPID(t, s.path("home", "started"))
	is.NoErr(stop())
	is.Equal(processID(command), "")
}

// startMany starts scripts in OpenCode's place, each in bubblewrap, until the process is killed.
func startMany(t *testing.T, dir string) {
	var running sync.WaitGroup
	for i := range 8 {
		s := newTestSupervisor(t, filepath.Join(dir, strconv.Itoa(i)), "exec sleep 600")
		s.Isolation = isolation.Choice{Level: isolation.Bwrap}
		s.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		running.Go(func() {
			if err := s.Run(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	running.Wait()
}

// mentioning returns the processes with a directory in their arguments or environment.
func mentioning(dir string) (pids []int) {
	for _, file := range []string{"cmdline", "environ"} {
		paths, _ := filepath.Glob("/proc/[0-9]*/" + file)
		for _, path := range paths {
			text, _ := os.ReadFile(path)
			if pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path))); bytes.Contains(text, []byte(dir)) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func killMentioning(dir string) {
	for _, pid := range mentioning(dir) {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}
