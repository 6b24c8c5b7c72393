package natsconf_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/wire"
)

// A service that is imported has one exporter, but any number of workers behind it: all hear a request, answer it, and
// hear whom it was granted.
func TestAllWorkersOfAPoolAreHeardAcrossTheAccounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	core, coreDenied := n.connect(natsconf.Core)
	var denied []<-chan error
	var mu sync.Mutex
	runs := map[string]int{} // by exec
	all := make(chan string, 3)
	release := make(chan struct{})
	for i := range 3 {
		nc, d := n.connect(natsconf.Worker)
		denied = append(denied, d)
		name := fmt.Sprint("w", i)
		serveAs(t, nc, wire.RunSubject("p1"), wire.Server{Info: wire.WorkerInfo{Name: name, Capacity: 8},
			Handle: func(_ context.Context, r wire.Request, stdout, _ io.Writer) wire.Result {
				if r.Op == wire.Dial {
					io.WriteString(stdout, name+" ")
					for in := range r.Input {
						stdout.Write(in.Data)
					}
					return wire.Result{}
				}
				mu.Lock()
				runs[r.Exec]++
				mu.Unlock()
				if r.Command == "wait" {
					all <- name
					<-release
				}
				return wire.Result{}
			}})
	}
	call := func(r wire.Request, stdout io.Writer) error {
		result, err := wire.Call(t.Context(), core, wire.RunSubject("p1"), r, stdout, io.Discard)
		if err == nil && result.Reason != wire.Exited {
			err = fmt.Errorf("%+v", result)
		}
		return err
	}
	var calls sync.WaitGroup
	for i := range 3 {
		exec := fmt.Sprint("long", i)
		calls.Go(func() {
			if err := call(wire.Request{Exec: exec, Command: "wait", Cwd: "/"}, io.Discard); err != nil {
				t.Error(err)
			}
		})
		name := <-all
		var out strings.Builder
		input := make(chan wire.Input, 1)
		input <- wire.Input{Data: []byte("hello")}
		close(input)
		is.NoErr(call(wire.Request{Op: wire.Dial, Exec: exec, Port: 1, Input: input}, &out))
		is.Equal(out.String(), name+" hello")
	}
	workers, err := wire.Workers(t.Context(), core, "p1")
	is.NoErr(err)
	is.Equal(len(workers), 3)
	sum := 0
	for _, w := range workers {
		sum += w.Running
	}
	is.Equal(sum, 3)
	for range 60 {
		calls.Go(func() {
			if err := call(wire.Request{Command: "x", Cwd: "/"}, io.Discard); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	calls.Wait()
	is.Equal(len(runs), 63)
	for exec, times := range runs {
		if times != 1 {
			t.Errorf("%s ran %d times", exec, times)
		}
	}
	is.Equal(len(coreDenied)+len(denied[0])+len(denied[1])+len(denied[2]), 0)
}
