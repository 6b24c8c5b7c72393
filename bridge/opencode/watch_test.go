package opencode

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/install"
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
