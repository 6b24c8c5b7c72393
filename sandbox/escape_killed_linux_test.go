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

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/wire"
)

func TestIsolationKillsAllProcessesOfAKilledWorker(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		workspace := t.TempDir()
		repository(t)(workspace)
		git := names(t, filepath.Join(workspace, ".git"))
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

		hasPlaceholders := len(names(t, filepath.Join(workspace, ".git"))) > len(git)
		is.Equal(hasPlaceholders, choice.Level != isolation.None && choice.Mounts())
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
		is.Equal(names(t, filepath.Join(workspace, ".git")), git) // the placeholders are gone
		for _, name := range names(t, workspace) {
			is.True(name == ".git" || name == ".tmp") // the commands' own, where there is no /tmp
		}
	})
}

// names lists a directory.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	is.New(t).NoErr(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
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
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, repository(t))
		git := j.entries(".git")
		other, err := Open(Config{Isolation: choice, Workspace: j.workspace, Home: t.TempDir(),
			Expose: []string{filepath.Dir(j.program)}, Quarantine: filepath.Join(j.dir, "data", "other"),
			Log: slog.New(slog.DiscardHandler)})
		is.NoErr(err)
		wait := func(w *Worker, file string) (result <-chan wire.Result) {
			out, done := newLines(), make(chan wire.Result, 1)
			go func() {
				done <- w.Exec(t.Context(), j.request(j.program+" "+attemptName+" 'wait sub/"+file+"'"), out, io.Discard)
			}()
			is.Equal(out.next(t), "waiting")
			return done
		}
		one, two := wait(j.Worker, "end"), wait(other, "go")
		three, _, _ := run(t, other, "mkdir .claude; echo > sub/go")
		taken := slices.Concat((<-two).Quarantined, three.Quarantined)
		other.Close()
		is.Equal(len(j.entries(".git")) > len(git), choice.Mounts()) // the placeholders of the running command stay
		is.NoErr(os.WriteFile(filepath.Join(j.workspace, "sub", "end"), nil, 0o644))
		taken = append(taken, (<-one).Quarantined...)
		is.Equal(len(taken), 1) // one of the workers has it
		is.Equal(j.entries(""), []string{".git", "file", "sub"})
		expect.Eventually(t, "the placeholders are gone", func() bool { return slices.Equal(j.entries(".git"), git) })
	})
}
