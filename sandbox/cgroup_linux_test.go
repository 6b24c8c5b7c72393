package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/limit"
)

// needGroups skips the test where a worker can make no cgroups, as in most containers.
func needGroups(t *testing.T, w *Worker) {
	t.Helper()
	if w.groups == nil {
		t.Skip("no cgroups can be made here")
	}
}

func TestCgroupOfACommandIsRemovedAfterItsLastProcess(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	needGroups(t, w)
	_, stdout, _ := run(t, w, "grep -o '^0::.*' /proc/self/cgroup; setsid sleep 600 >/dev/null 2>&1 </dev/null & echo $!")
	lines := strings.Fields(stdout)
	is.Equal(len(lines), 2)
	if strings.HasPrefix(lines[1], "0::") {
		lines[0], lines[1] = lines[1], lines[0]
	}
	group := filepath.Base(lines[0])
	is.Equal(filepath.Base(filepath.Dir(lines[0])), filepath.Base(w.groups.Dir))
	_, err := os.Stat(filepath.Join(w.groups.Dir, group))
	is.NoErr(err) // the daemon is in it
	daemon, err := strconv.Atoi(lines[1])
	is.NoErr(err)
	is.NoErr(exec.Command("kill", strconv.Itoa(daemon)).Run())
	expect.Eventually(t, "the cgroup is removed", func() bool {
		_, err := os.Stat(filepath.Join(w.groups.Dir, group))
		return os.IsNotExist(err)
	})
}

func TestIsolatedCommandCannotLeaveItsCgroup(t *testing.T) {
	t.Parallel()
	limitedAtAll(t, limit.Limits{}, func(t *testing.T, w *Worker) {
		t.Parallel()
		needGroups(t, w)
		is := is.New(t)
		result, _, stderr := run(t, w, "echo $$ > '"+filepath.Dir(w.groups.Dir)+"/cgroup.procs'")
		if w.config.Isolation.Level == isolation.None {
			is.Equal(result.ExitCode == 0, os.Getuid() == 0) // else this proves nothing
			return
		}
		is.True(result.ExitCode != 0)
		// the kernel's words
		is.True(slices.ContainsFunc([]error{unix.ENOENT, unix.EACCES, unix.EROFS}, func(err error) bool {
			return strings.Contains(strings.ToLower(stderr), err.Error())
		}))
	})
}

func TestOpenKillsStraysInTheCgroupsOfADeadWorker(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	needGroups(t, open(t))
	workspace := t.TempDir()
	out := newLines()
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "SANDBOX_TEST_WORKSPACE="+workspace,
		// it has removed both labels
		`SANDBOX_TEST_COMMAND=ulimit -R 1000000; env -i setsid sh -c 'echo $$; exec sleep 600' & wait`)
	worker.Stdout = out
	is.NoErr(worker.Start())
	stray := out.pids(t, 1)[0]
	is.NoErr(worker.Process.Kill())
	worker.Wait()
	other := open(t)
	is.True(alive(stray)) // another workspace's
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(other.groups.Dir),
		"pocketcoder-*-"+strconv.Itoa(worker.Process.Pid)+"-*"))
	is.Equal(len(left), 1)
	next, err := Open(Config{Isolation: unprotected, Workspace: workspace, Home: t.TempDir()})
	is.NoErr(err)
	t.Cleanup(next.Close)
	is.True(!alive(stray))
	_, err = os.Stat(left[0])
	is.True(os.IsNotExist(err))
}

// The top is no worker's own, where it gives no controllers.
func TestCgroupsAreMadeInOneDirectory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	needGroups(t, w)
	top := filepath.Dir(w.groups.Dir)
	own := filepath.Join(top, fmt.Sprintf("test-%d", os.Getpid()))
	if err := os.Mkdir(own, 0o755); err != nil {
		t.Skip("no cgroup can be made for a worker: ", err)
	}
	t.Cleanup(func() { (&limit.Groups{Dir: own}).Close() })
	dir, err := os.Open(own)
	is.NoErr(err)
	defer dir.Close()
	out := newLines()
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), "SANDBOX_TEST_WORKSPACE="+t.TempDir(),
		"SANDBOX_TEST_COMMAND=echo $$; exec sleep 600")
	worker.Stdout, worker.SysProcAttr = out, &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	is.NoErr(worker.Start())
	out.pids(t, 1)
	var made []string
	for _, parent := range []string{own, top} {
		entries, err := os.ReadDir(parent)
		is.NoErr(err)
		for _, e := range entries {
			if strings.Contains(e.Name(), fmt.Sprintf("-%d-", worker.Process.Pid)) {
				made = append(made, filepath.Join(parent, e.Name()))
			}
		}
	}
	is.NoErr(worker.Process.Kill())
	worker.Wait()
	for _, dir := range made {
		(&limit.Groups{Dir: dir}).Close()
	}
	is.Equal(len(made), 1)
}
