package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// choose is isolation.Choose, which runs programs, once for each level.
var choose = map[isolation.Level]func() (isolation.Choice, error){
	isolation.None: chooseOnce(isolation.None), isolation.Landlock: chooseOnce(isolation.Landlock), isolation.Bwrap: chooseOnce(isolation.Bwrap),
}

func chooseOnce(level isolation.Level) func() (isolation.Choice, error) {
	return sync.OnceValues(func() (isolation.Choice, error) { return isolation.Choose(string(level)) })
}

// levels returns bwrap and landlock if they work here. In CI both must work.
func levels(t *testing.T) (choices []isolation.Choice) {
	t.Helper()
	for _, level := range []isolation.Level{isolation.Bwrap, isolation.Landlock} {
		choice, err := choose[level]()
		if err == nil {
			choices = append(choices, choice)
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Log(err)
	}
	if len(choices) == 0 {
		t.Skip("no isolation works here")
	}
	return choices
}

// needLevel returns a level. The test is skipped where the level does not work, and fails in CI.
func needLevel(t *testing.T, level isolation.Level) isolation.Choice {
	t.Helper()
	choice, err := choose[level]()
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return choice
}

// testWorker is a worker with isolation, with files and sockets that its commands must not reach.
type testWorker struct {
	*Worker
	t       *testing.T
	release func() // closes the worker
	level   isolation.Level
	mounts  bool   // protected names are taken out of their folders by mounts
	dir     string // holds all other files; not below /tmp, because commands have their own /tmp
	program string // see attempt
	network string // of the requests that run makes
}

// newTestWorker opens a worker. prepare fills the workspace before the worker opens it.
func newTestWorker(t *testing.T, choice isolation.Choice, prepare func(workspace string)) *testWorker {
	t.Helper()
	is := is.New(t)
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-jail-")
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{"workspace/sub", "home", "other", "data"} {
		is.NoErr(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for _, f := range []string{"other/file", "data/keys", "workspace/file", "workspace/sub/file"} {
		is.NoErr(os.WriteFile(filepath.Join(dir, f), []byte("secret"), 0o644))
	}
	if prepare != nil {
		prepare(filepath.Join(dir, "workspace"))
	}
	program := filepath.Join(attemptDir(), "attempt")
	w, err := Open(Config{
		Isolation: choice, Workspace: filepath.Join(dir, "workspace"), Home: filepath.Join(dir, "home"),
		Expose: []string{attemptDir()}, Quarantine: filepath.Join(dir, "data", "quarantine"),
		Log: slog.New(slog.DiscardHandler),
	})
	is.NoErr(err)
	release := sync.OnceFunc(w.Close)
	t.Cleanup(release)
	return &testWorker{
		Worker: w, t: t, release: release, level: choice.Level, mounts: choice.Mounts(),
		dir: dir, program: program,
	}
}

// endVictim ends what victim has started.
var endVictim = func() {}

// victim returns the pid of a process of the same user, for all tests.
var victim = sync.OnceValue(func() int {
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		panic(err)
	}
	endVictim = func() { sleep.Process.Kill(); sleep.Wait() }
	return sleep.Process.Pid
})

// removeAttempt removes what attemptDir has made.
var removeAttempt = func() {}

// attemptDir returns a directory with the program attempt, for all tests.
var attemptDir = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-attempt-")
	removeAttempt = func() { os.RemoveAll(dir) }
	if err == nil {
		err = errors.Join(copyTo(filepath.Join(dir, "attempt")), os.Chmod(dir, 0o755))
	}
	if err != nil {
		panic(err)
	}
	return dir
})

// copyTo copies the test binary, in another process: a file that a process forked meanwhile still has open for
// writing cannot be executed.
func copyTo(path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return errors.Join(exec.Command("cp", self, path).Run(), os.Chmod(path, 0o755))
}

func copySelf(t *testing.T, to string) {
	t.Helper()
	is.New(t).NoErr(copyTo(to))
}

// try makes attempts in isolation, one after the other, and returns the results of the kernel.
func (j *testWorker) try(attempts ...string) []string {
	return j.tryAs(j.request(fmt.Sprintf("%s %s '%s'", j.program, attemptName, strings.Join(attempts, "\n"))))
}

// tryAs is try for a request with more than a command.
func (j *testWorker) tryAs(r wire.Request) []string {
	j.t.Helper()
	r.Network = j.network
	var stdout, stderr bytes.Buffer
	result := j.Exec(j.t.Context(), r, &stdout, &stderr)
	if result.Reason != wire.Exited || result.ExitCode != 0 || stderr.Len() > 0 { // the kernel must refuse the attempt
		j.t.Fatalf("%s: %+v\n%s%s", r.Command, result, stdout.String(), stderr.String())
	}
	return strings.Split(strings.TrimSpace(stdout.String()), "\n")
}

// escape is an attempt and how the kernel may answer to it. Names in the attempt stand for files in the test's dir:
// %o another workspace, %d a data directory, %w the workspace; %v is the victim's pid, and others are made by the test.
type escape struct {
	attempt string
	denied  string // accepted errnos
	control bool   // it is harmless, and works without isolation
}

func (j *testWorker) run(t *testing.T, escapes []escape, names ...string) {
	names = append(names, "%o", j.dir+"/other", "%d", j.dir+"/data", "%w", j.workspace, "%v", fmt.Sprint(victim()))
	expand := strings.NewReplacer(names...)
	var attempts, harmless []string
	for _, e := range escapes {
		attempts = append(attempts, expand.Replace(e.attempt))
		if e.control {
			harmless = append(harmless, expand.Replace(e.attempt))
		}
	}
	for i, got := range j.try(attempts...) {
		if !slices.Contains(strings.Fields(escapes[i].denied), got) {
			t.Errorf("%s: the kernel says %s, want %s", attempts[i], got, escapes[i].denied)
		}
	}
	if harmless == nil {
		return
	}
	control := exec.Command(j.program, attemptName, strings.Join(harmless, "\n"))
	control.Dir = j.workspace
	out, err := control.CombinedOutput()
	is.New(t).NoErr(err)
	for i, got := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		if got != "ok" {
			t.Errorf("without isolation the kernel answers %s to %s: its denial proves nothing", got, harmless[i])
		}
	}
}

// eachLevel runs a test at each isolation level that works here.
func eachLevel(t *testing.T, test func(t *testing.T, choice isolation.Choice)) {
	t.Helper()
	atLevels(t, levels(t), test)
}

// eachLevelAndContainer is eachLevel, and behind what is added to a container: that works anywhere.
func eachLevelAndContainer(t *testing.T, test func(t *testing.T, choice isolation.Choice)) {
	t.Helper()
	atLevels(t, append(levels(t), isolation.Choice{Level: isolation.Container}), test)
}

// eachProtection is eachLevel, and as root also landlock without mounts. A test of what the worker undoes without
// mounts must use it unless TestIsolationWorksForAnotherUser, which runs without mounts, runs that test. Tests that
// cover most of what the worker undoes use it too, because file modes do not stop root.
func eachProtection(t *testing.T, test func(t *testing.T, choice isolation.Choice)) {
	t.Helper()
	eachLevel(t, test)
	if os.Geteuid() != 0 { // then it has no mounts anyway
		return
	}
	if _, err := choose[isolation.Landlock](); err == nil {
		t.Run("without mounts", func(t *testing.T) {
			t.Parallel()
			test(t, isolation.Choice{Level: isolation.Landlock})
		})
	}
}

func atLevels(t *testing.T, levels []isolation.Choice, test func(t *testing.T, choice isolation.Choice)) {
	for _, choice := range levels {
		t.Run(string(choice.Level), func(t *testing.T) {
			t.Parallel()
			test(t, choice)
		})
	}
}
