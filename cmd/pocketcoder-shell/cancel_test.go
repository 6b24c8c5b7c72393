package main_test

import (
	"io"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/wire"
)

func TestASignalCancelsAndIsTheExitCode(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		is := is.New(t)
		cmd := s.shell("-c", "echo running; sleep 1000")
		out, err := cmd.StdoutPipe()
		is.NoErr(err)
		is.NoErr(cmd.Start())
		_, err = io.ReadFull(out, make([]byte, 8))
		is.NoErr(err)
		is.NoErr(cmd.Process.Signal(sig))
		cmd.Wait()
		is.Equal(cmd.ProcessState.ExitCode(), 128+int(sig))
		is.Equal((<-s.results).Reason, wire.Cancelled)
	}
}

func TestAShellThatIsGoneCancels(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)

	quiet := s.shell("-c", "echo running; sleep 1000")
	out, err := quiet.StdoutPipe()
	is.NoErr(err)
	is.NoErr(quiet.Start())
	_, err = io.ReadFull(out, make([]byte, 8))
	is.NoErr(err)
	is.NoErr(quiet.Process.Kill())
	is.Equal((<-s.results).Reason, wire.Cancelled)
	quiet.Wait()

	loud := s.shell("-c", "yes")
	out, err = loud.StdoutPipe()
	is.NoErr(err)
	is.NoErr(loud.Start())
	_, err = io.ReadFull(out, make([]byte, 8))
	is.NoErr(err)
	is.NoErr(out.Close())
	is.Equal((<-s.results).Reason, wire.Cancelled)
	loud.Wait()
	is.Equal(loud.ProcessState.ExitCode(), 128+int(syscall.SIGPIPE))
}
