package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/wire"
)

func TestIsolationKillsAllProcessesOfAKilledWorker(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		workspace := t.TempDir()
		nap := fmt.Sprintf("600.%d%d", os.Getpid(), execs.Add(1)) // identifies the processes of this test
		out := newLines()
		worker := exec.Command("/proc/self/exe")
		worker.Env = append(os.Environ(), "SANDBOX_TEST_WORKSPACE="+workspace, "SANDBOX_TEST_ISOLATION="+string(choice.Level),
			fmt.Sprintf(`SANDBOX_TEST_COMMAND=sleep %[1]s & setsid sleep %[1]s & sh -c "exec sleep %[1]s" & echo started; wait`,
				nap))
		worker.Stdout, worker.Stderr = out, os.Stderr
		is.NoErr(worker.Start())
		is.Equal(out.next(t), "started")
		expect.Eventually(t, "the command runs", func() bool { return len(sleepers(nap)) == 3 })

		network, err := os.Readlink("/proc/" + strconv.Itoa(sleepers(nap)[0]) + "/ns/net")
		is.NoErr(err)
		is.True(users(network) >= 3)
		is.NoErr(worker.Process.Kill())
		worker.Wait()
		if choice.Level == isolation.Bwrap {
			expect.Eventually(t, "the kernel kills all that is in the command's namespaces", func() bool {
				return len(sleepers(nap)) == 0
			})
			is.Equal(users(network), 0) // nothing holds the network that the commands of the chat shared
		}
		next, err := Open(Config{Isolation: choice, Workspace: workspace, Home: t.TempDir(),
			Log: slog.New(slog.DiscardHandler)})
		is.NoErr(err)
		t.Cleanup(next.Close)
		is.Equal(len(sleepers(nap)), 0)
		entries, err := os.ReadDir(workspace)
		is.NoErr(err)
		for _, e := range entries { // no stubs of protected files
			is.Equal(e.Name(), ".tmp") // the commands' own, where there is no /tmp
		}
	})
}

// sleepers lists the processes that sleep for the time nap.
func sleepers(nap string) (pids []int) {
	for pid := range proc.All() {
		line, _ := os.ReadFile(proc.Path(pid, "cmdline"))
		if bytes.Equal(line, []byte("sleep\x00"+nap+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// users counts the processes in a namespace, and the open files of processes that keep it.
func users(namespace string) (n int) {
	for _, pattern := range []string{"/proc/[0-9]*/ns/net", "/proc/[0-9]*/fd/*"} {
		links, _ := filepath.Glob(pattern)
		for _, link := range links {
			if target, _ := os.Readlink(link); target == namespace {
				n++
			}
		}
	}
	return n
}

func TestIsolationAllowsSeveralWorkersInAWorkspace(t *testing.T) {
	t.Parallel()
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, nil)
		other, err := Open(Config{Isolation: choice, Workspace: j.workspace, Home: t.TempDir(),
			Expose: []string{filepath.Dir(j.program)}, Quarantine: filepath.Join(j.dir, "data", "other"),
			Log: slog.New(slog.DiscardHandler)})
		is.NoErr(err)
		wait := func(w *Worker) (result <-chan wire.Result) {
			out, done := newLines(), make(chan wire.Result, 1)
			go func() {
				done <- w.Exec(t.Context(), j.request(j.program+" "+attemptName+" 'wait sub/go'"), out, io.Discard)
			}()
			is.Equal(out.next(t), "waiting")
			return done
		}
		one, two := wait(j.Worker), wait(other)
		three, _, _ := run(t, other, "mkdir .claude; echo > sub/go")
		taken := slices.Concat((<-one).Quarantined, (<-two).Quarantined, three.Quarantined)
		other.Close()
		is.Equal(len(taken), 1) // one of the workers has it
		is.Equal(j.entries(""), []string{"file", "sub"})
	})
}
