package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

func init() {
	// hoard keeps bytes in a file that has no name and is not mapped, and stays.
	attempts["hoard"] = func(a []string) error {
		fd, err := unix.MemfdCreate("hoard", 0)
		if err != nil {
			return err
		}
		file := os.NewFile(uintptr(fd), "hoard")
		if _, err := io.Copy(file, io.LimitReader(zeroes{}, int64(number(a[0])))); err != nil {
			return err
		}
		time.Sleep(time.Minute)
		return file.Close()
	}
	// behead ends the first thread of this process, which then looks dead, and has others that stay, and bytes of memory.
	attempts["behead"] = func(a []string) error {
		go func() {
			for statFields(os.Getpid())[0] != "Z" {
				time.Sleep(time.Millisecond)
			}
			fmt.Println(os.Getpid())
			for range number(a[0]) {
				go nap(time.Minute)
			}
			full := bytes.Repeat([]byte("x"), number(a[1]))
			nap(time.Minute)
			runtime.KeepAlive(full)
		}()
		_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
		return failed(errno)
	}
	if len(os.Args) > 1 && os.Args[1] == attemptName {
		runtime.LockOSThread() // the attempts are made by the first thread
	}
}

func TestAProcessWithoutItsFirstThreadCounts(t *testing.T) {
	t.Parallel()
	limited(t, Limits{Processes: 100, Memory: 200 << 20}, func(t *testing.T, w *Worker) {
		t.Parallel()
		ends(t, w, "exec "+attempting(t, w, "behead 200 0"), wire.Processes)
		ends(t, w, "exec "+attempting(t, w, "behead 0 "+strconv.Itoa(300<<20)), wire.Memory)
	})
}

func TestAProcessWithoutItsFirstThreadEndsWithItsCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := withoutGroups(open(t))
	ctx, cancel := context.WithCancel(t.Context())
	pids, done := background(t, ctx, w, w.request("setsid "+attempting(t, w, "behead 5 0")+" & wait"), 1)
	cancel()
	<-done
	is.True(!alive(pids[0]))
}

// The monitor of bubblewrap, which is outside, may have any pid: they begin anew when they have all been used.
func TestATemporaryFileIsFoundWhateverThePids(t *testing.T) {
	t.Parallel()
	limited(t, Limits{}, func(t *testing.T, w *Worker) {
		t.Parallel()
		if level := w.config.Isolation.Level; level != isolation.Bwrap && (level != isolation.Landlock || os.Getuid() != 0) {
			return // it has no /tmp of its own
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out, done := newLines(), make(chan wire.Result, 1)
		go func() {
			done <- w.Exec(ctx, w.request("head -c 1000000 /dev/zero > /tmp/file; echo written; sleep 60"), out, io.Discard)
		}()
		is := is.New(t)
		is.Equal(out.next(t), "written")
		w.mu.Lock()
		trees := slices.Collect(maps.Values(w.trees))
		w.mu.Unlock()
		is.Equal(len(trees), 1)
		is.True(tempFiles(append(trees[0].alive(), os.Getpid())) >= 1000000)
		cancel()
		<-done
	})
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) { return len(p), nil }

// attempting is a command that makes attempts inside the walls.
func attempting(t *testing.T, w *Worker, lines string) string {
	t.Helper()
	program := filepath.Join(w.workspace, "attempt")
	copySelf(t, program)
	return program + " " + attemptName + " '" + lines + "'"
}

// burn takes a fifth of a second of a processor's time, or less where others want it too.
const burn = `burn() { local end=$((${EPOCHREALTIME/./} + 200000)); while ((${EPOCHREALTIME/./} < end)); do :; done; }; `

func TestProcessorTimeOfTheDeadCountsWhenNobodyWaitsForThem(t *testing.T) {
	t.Parallel()
	limited(t, Limits{CPUTime: time.Second}, func(t *testing.T, w *Worker) {
		t.Parallel()
		ends(t, w, burn+"while :; do : $( (burn & ) ); done", wire.CPUTime) // each is an orphan, and over before the next
	})
}

func TestProcessorTimeOfTheDeadCountsOnceWhenTheyAreWaitedFor(t *testing.T) {
	t.Parallel()
	limited(t, Limits{CPUTime: 3 * time.Second}, func(t *testing.T, w *Worker) {
		t.Parallel()
		result, _, _ := run(t, w, burn+"for i in 1 2 3; do burn & burn & burn & burn & wait; done; exit 3") // 2.4 s
		is := is.New(t)
		is.Equal(result.Reason, wire.Exited)
		is.Equal(result.ExitCode, 3)
	})
}

func TestSpendingAddsUpEachTimeOnce(t *testing.T) {
	t.Parallel()
	type look map[string]times // processes by name
	for name, test := range map[string]struct {
		looks []look
		want  time.Duration
	}{
		"all live":                      {[]look{{"a": {5, 0}}, {"a": {7, 0}, "b": {3, 0}}}, 10},
		"nobody waits":                  {[]look{{"a": {1, 0}, "b": {5, 0}}, {"a": {1, 0}}, {"a": {2, 0}}}, 7},
		"the parent waits":              {[]look{{"a": {1, 0}, "b": {5, 0}}, {"a": {1, 5}}}, 6},
		"took more before it died":      {[]look{{"a": {1, 0}, "b": {5, 0}}, {"a": {1, 8}}}, 9},
		"died while looked at":          {[]look{{"a": {1, 0}, "b": {5, 0}}, {"a": {1, 0}}, {"a": {1, 8}}}, 9},
		"one dies in each look":         {[]look{{"a": {}, "b": {5, 0}, "c": {5, 0}}, {"a": {}, "c": {5, 0}}, {"a": {0, 5}}, {"a": {0, 10}}}, 10},
		"never seen, waited for":        {[]look{{"a": {1, 0}}, {"a": {1, 4}}}, 5},
		"waited for by one of the dead": {[]look{{"a": {}, "b": {1, 6}}, {"a": {}}, {"a": {}, "c": {1, 6}}, {"a": {}}}, 14},
		"through three generations":     {[]look{{"a": {}, "b": {1, 0}, "c": {5, 0}}, {"a": {}, "b": {1, 5}}, {"a": {0, 6}}}, 6},
		"lost, and later another":       {[]look{{"a": {}, "b": {5, 0}}, {"a": {}}, {"a": {}}, {"a": {0, 4}}}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			var s spending
			var sum time.Duration
			for _, l := range test.looks {
				took := map[process]times{}
				for name, its := range l {
					took[process{1, name}] = its
				}
				sum = s.add(took)
			}
			is.New(t).Equal(sum, test.want)
		})
	}
}

func TestATreeIsNotKilledAgainForWhatItTook(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w, err := Open(Config{Workspace: t.TempDir(), Home: t.TempDir(), Isolation: unprotected, Limits: Limits{CPUTime: time.Second}, Log: slog.New(slog.DiscardHandler)})
	is.NoErr(err)
	t.Cleanup(w.Close)
	dead := &tree{label: w.id.command("exec", 7), over: make(chan wire.Reason, 1), keep: w.isShell, leave: func() {}, spent: spending{sum: time.Minute}}
	dead.began.Store(true)
	dead.ended.Store(true)
	w.trees[dead.serial()] = dead
	w.look()
	is.Equal(len(dead.over), 0)
	is.Equal(len(w.trees), 0) // it is forgotten
}

func TestMemoryInFilesWithoutANameCounts(t *testing.T) {
	t.Parallel()
	limited(t, Limits{Memory: 128 << 20}, func(t *testing.T, w *Worker) {
		t.Parallel()
		ends(t, w, attempting(t, w, "hoard "+strconv.Itoa(300<<20)), wire.Memory)
		if w.config.Isolation.Level == isolation.None { // behind walls that is its own, and smaller
			ends(t, w, "exec 3<>/dev/shm/$$ && rm /dev/shm/$$; head -c 300M /dev/zero >&3; sleep 60", wire.Memory)
		}
	})
}

func TestMemoryInAFileWithoutANameCountsOnce(t *testing.T) {
	t.Parallel()
	limited(t, Limits{Memory: 300 << 20}, func(t *testing.T, w *Worker) {
		t.Parallel()
		is := is.New(t)
		out, done := newLines(), make(chan wire.Result, 1)
		// Each of them has the file open, which one of them wrote.
		r := w.request("exec 3<>/dev/shm/$$ && rm /dev/shm/$$; head -c 200M /dev/zero >&3; for i in 1 2 3; do sleep 1 & done; wait; echo over")
		go func() { done <- w.Exec(t.Context(), r, out, io.Discard) }()
		is.Equal(out.next(t), "over")
		is.Equal((<-done).Reason, wire.Exited)
	})
}
