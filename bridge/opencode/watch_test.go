package opencode

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/install"
	"pocketcoder/ops/expect"
)

func TestUnresponsiveOpenCodeIsReportedAndRestarted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	var silent atomic.Bool
	answers := make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if silent.Load() {
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, `{"healthy":true,"version":%q}`, install.OpenCodeVersion)
		answers <- struct{}{}
	}))
	t.Cleanup(server.Close)
	s := newTestSupervisor(t, t.TempDir(), "")
	s.Limits = HealthLimits{Interval: 10 * time.Millisecond, Report: 2 * time.Second, Restart: 6 * time.Second}
	troubles := make(chan string, 10)
	s.Changed = func() { troubles <- s.Trouble() }
	idle := exec.Command("sleep", "600") // OpenCode does not wait for a processor
	is.NoErr(idle.Start())
	t.Cleanup(func() { idle.Process.Kill(); idle.Wait() })
	ended := make(chan error, 1)
	go func() { ended <- s.watch(t.Context(), client.New(server.URL, ""), idle.Process.Pid) }()
	for range 5 {
		<-answers
	}
	is.Equal(s.Trouble(), "")
	silent.Store(true)
	is.Equal(<-troubles, "OpenCode has not answered for 2 s")
	silent.Store(false)
	is.Equal(<-troubles, "") // it answers again
	silent.Store(true)
	is.Equal(<-troubles, "OpenCode has not answered for 2 s")
	is.Equal((<-ended).Error(), "OpenCode has not answered for 6 s")
	is.Equal(s.Trouble(), "") // the next run answers
}

// healthServer names, in the process that the test pauses, the server that it watches.
const healthServer = "POCKETCODER_TEST_HEALTH"

func TestPausedSupervisorKeepsOpenCode(t *testing.T) {
	limits := HealthLimits{Interval: 10 * time.Millisecond, Report: time.Second, Restart: 2 * time.Second}
	if url := os.Getenv(healthServer); url != "" {
		s := newTestSupervisor(t, t.TempDir(), "")
		s.Limits = limits
		t.Fatal(s.watch(t.Context(), client.New(url, ""), os.Getppid()))
	}
	t.Parallel()
	is := is.New(t)
	fault := expect.CountFault(t, "requests to OpenCode afterwards")
	asked, hold := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
			<-hold
		case <-r.Context().Done():
		}
		fmt.Fprintf(w, `{"healthy":true,"version":%q}`, install.OpenCodeVersion)
	}))
	t.Cleanup(server.Close)
	watching := exec.Command(os.Args[0], "-test.run=^TestPausedSupervisorKeepsOpenCode$")
	watching.Env = append(os.Environ(), healthServer+"="+server.URL)
	is.NoErr(watching.Start())
	ended := make(chan error, 1)
	go func() { ended <- watching.Wait() }()
	t.Cleanup(func() { watching.Process.Kill() })
	<-asked
	is.NoErr(watching.Process.Signal(syscall.SIGSTOP))
	<-time.After(limits.Restart + 2*maxLate) // the pause
	is.NoErr(watching.Process.Signal(syscall.SIGCONT))
	close(hold)
	fault.Tried()
	for range 3 {
		select {
		case <-asked: // it goes on
			fault.Saw(1)
		case err := <-ended:
			t.Fatal("the watch ended:", err)
		}
	}
}
