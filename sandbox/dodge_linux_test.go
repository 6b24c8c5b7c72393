package sandbox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/proc"
	"pocketcoder/sandbox/wire"
)

func init() {
	// behead ends the first thread of this process, which then looks dead, and has others that stay, and bytes of memory.
	attempts["behead"] = func(a []string) error {
		go func() {
			for proc.Stat(os.Getpid())[0] != "Z" {
				time.Sleep(time.Millisecond)
			}
			fmt.Println(os.Getpid())
			for range number(a[0]) {
				go sleepInKernel(time.Minute)
			}
			full := bytes.Repeat([]byte("x"), number(a[1]))
			sleepInKernel(time.Minute)
			runtime.KeepAlive(full)
		}()
		_, _, errno := unix.Syscall(unix.SYS_EXIT, 0, 0, 0)
		return failed(errno)
	}
	if len(os.Args) > 1 && os.Args[1] == attemptName {
		runtime.LockOSThread() // the attempts are made by the first thread
	}
}

func TestProcessWithoutItsFirstThreadIsCounted(t *testing.T) {
	expect.Long(t, "uses much of the machine")
	t.Parallel()
	limited(t, limit.Limits{Processes: 50, Memory: 80 << 20}, func(t *testing.T, w *Worker) {
		t.Parallel()
		expectLimit(t, w, "exec "+attempting(t, w, "behead 100 0"), wire.Processes)
		expectLimit(t, w, "exec "+attempting(t, w, "behead 0 "+strconv.Itoa(160<<20)), wire.Memory)
	})
}

func TestProcessWithoutItsFirstThreadIsKilled(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := withoutCgroups(open(t))
	ctx, cancel := context.WithCancel(t.Context())
	pids, done := background(t, ctx, w, w.request("setsid "+attempting(t, w, "behead 5 0")+" & wait"), 1)
	cancel()
	<-done
	is.True(!alive(pids[0]))
}

// attempting is a command that makes attempts in isolation.
func attempting(t *testing.T, w *Worker, lines string) string {
	t.Helper()
	program := filepath.Join(w.workspace, "attempt")
	copySelf(t, program)
	return program + " " + attemptName + " '" + lines + "'"
}
