package main_test

import (
	"bytes"
	"io"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
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

func TestASignalEndsAShellWhoseOutputIsNotRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	cmd := s.shell("-c", "yes")
	_, err := cmd.StdoutPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	for s.written.Load() < 64<<10 { // a pipe takes no more
		time.Sleep(time.Millisecond)
	}
	is.NoErr(cmd.Process.Signal(syscall.SIGTERM))
	cmd.Wait()
	is.Equal(cmd.ProcessState.ExitCode(), 128+int(syscall.SIGTERM))
	is.Equal((<-s.results).Reason, wire.Cancelled)
}

func TestABridgeThatStopsCancelsAndAnswers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.socket = filepath.Join(t.TempDir(), "shell.sock")
	stop := s.answer(t)
	cmd := s.shell("-c", "echo running; sleep 1000")
	cmd.Env = append(cmd.Env, "POCKETCODER_SOCKET=unix:"+s.socket)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	_, err = io.ReadFull(out, make([]byte, 8))
	is.NoErr(err)
	is.NoErr(stop())
	is.Equal((<-s.results).Reason, wire.Cancelled)
	cmd.Wait()
	is.Equal(cmd.ProcessState.ExitCode(), 137)
	is.Equal(errs.String(), "pocketcoder-shell: stopped: the command was cancelled\n")

	second := s.shell("-c", "true")
	second.Env = cmd.Env
	_, stderr, code := run(t, second)
	is.Equal(code, wire.ExitRefused)
	expect.Contains(t, stderr, "not run: connect to PocketCoder: "+s.socket+": connection refused")
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
