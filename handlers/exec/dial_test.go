package exec

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

// startServer starts a detached server, and returns its execution and its port.
func (s *system) startServer(greeting string) (exec string, port int) {
	s.t.Helper()
	r := s.authorized("detach HANDLERS_TEST_GREET='" + greeting + "' exec " + os.Args[0])
	result, _, _ := s.shell(s.t.Context(), r)
	is.New(s.t).Equal(result.ExitCode, 0)
	exec = s.execOf(r.Call)
	expect.Eventually(s.t, "it becomes true", func() bool {
		port, _ = strconv.Atoi(strings.TrimSpace(s.liveOutput(exec)))
		return port != 0
	})
	return exec, port
}

// liveOutput returns the published stdout of an execution.
func (s *system) liveOutput(exec string) string {
	s.t.Helper()
	var b strings.Builder
	_, err := s.Log.FoldDeltas(s.t.Context(), events.ExecDeltaSubject("c1", exec), 0, func(d log.Delta) error {
		b.Write(d.Data)
		return nil
	})
	is.New(s.t).NoErr(err)
	return b.String()
}

func TestDialReachesADetachedCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	_, err := s.exec.Dial(t.Context(), "c1", 80)
	is.True(errors.Is(err, ErrNotServed)) // nothing runs
	exec, port := s.startServer("hello")
	conn, err := s.exec.Dial(t.Context(), "c1", port)
	is.NoErr(err)
	defer conn.Close()
	lines := bufio.NewReader(conn)
	line, err := lines.ReadString('\n')
	is.NoErr(err)
	is.Equal(line, "hello\n")
	large := strings.Repeat("0123456789abcdef", 64<<10) + "\n" // 1 MiB there and back
	go io.WriteString(conn, large)
	line, err = lines.ReadString('\n')
	is.NoErr(err)
	is.True(line == large)

	_, err = s.exec.Dial(t.Context(), "c2", port)
	is.True(errors.Is(err, ErrNotServed)) // another chat
	_, err = s.exec.Dial(t.Context(), "c1", 1)
	is.True(errors.Is(err, ErrNotServed)) // another port

	_, err = s.exec.Signal(t.Context(), Signal{Command: handlers.Command{Actor: handlerstest.Alice}, Execution: exec})
	is.NoErr(err)
	_, err = io.ReadAll(lines)
	is.NoErr(err) // the connection ends with its command
	s.finished(exec)
	_, err = s.exec.Dial(t.Context(), "c1", port)
	is.True(errors.Is(err, ErrNotServed))
}

func TestDialReachesTheServerWithThePort(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, _ := withWorker(t)
	ports := map[string]int{}
	for i := range 3 {
		name := fmt.Sprint("server", i)
		_, ports[name] = s.startServer(name)
	}
	for name, port := range ports {
		conn, err := s.exec.Dial(t.Context(), "c1", port)
		is.NoErr(err)
		line, err := bufio.NewReader(conn).ReadString('\n')
		is.NoErr(err)
		is.Equal(line, name+"\n")
		is.NoErr(conn.Close())
	}
	_, err := s.exec.Dial(t.Context(), "c1", 1)
	is.True(errors.Is(err, ErrNotServed))
}
