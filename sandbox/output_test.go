package sandbox

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/sandbox/wire"
)

// counter hashes and counts its input, and stores the size of the largest piece.
type counter struct {
	hash.Hash
	n, largest int
}

func (c *counter) Write(p []byte) (int, error) {
	c.n += len(p)
	c.largest = max(c.largest, len(p))
	return c.Hash.Write(p)
}

func TestLargeOutputArrivesInLimitedPieces(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	const size = 16 << 20 // far more than all buffers hold
	const line = "0123456789abcdef\n"
	out, errs := &counter{Hash: sha256.New()}, &counter{Hash: sha256.New()}
	result := w.Exec(t.Context(), w.request(fmt.Sprintf("yes 0123456789abcdef | head -c %d; yes e | head -c 1000000 >&2",
		size)), out, errs)
	is.Equal(result.ExitCode, 0)
	want := sha256.Sum256([]byte(strings.Repeat(line, size/len(line)+1)[:size]))
	is.Equal(out.Sum(nil), want[:])
	is.Equal(errs.n, 1_000_000)
	is.True(out.largest <= bufferSize)
}

func TestSlowReaderBlocksTheCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	read, write := io.Pipe()
	done := make(chan wire.Result, 1)
	go func() {
		done <- w.Exec(t.Context(), w.request("head -c 5000000 /dev/zero; echo written >&2; touch written"), write,
			io.Discard)
		write.Close()
	}()
	_, err := io.CopyN(io.Discard, read, 2_000_000)
	is.NoErr(err)
	// The command has 3 MB to write, and pipe and buffer hold a fraction of one.
	_, err = os.Stat(filepath.Join(w.workspace, "written"))
	is.True(errors.Is(err, os.ErrNotExist))
	rest, err := io.Copy(io.Discard, read)
	is.NoErr(err)
	is.Equal(rest, int64(3_000_000))
	is.Equal((<-done).ExitCode, 0)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("reader is gone") }

func TestFailedWriteIsABrokenPipe(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	result := w.Exec(t.Context(), w.request("exec yes"), failingWriter{}, io.Discard)
	is.Equal(result.Reason, wire.Exited)
	is.Equal(result.Signal, "SIGPIPE")
}

// writerFunc is a function as a writer.
type writerFunc func(p []byte) (int, error)

func (w writerFunc) Write(p []byte) (int, error) { return w(p) }

// A command that is ended has a deadline for its output, which may pass while a Write waits for its reader.
func TestOutputBeforeTheDeadlineReachesASlowReader(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	read, write, err := os.Pipe()
	is.NoErr(err)
	defer write.Close() // like a process that was not killed
	piece := bytes.Repeat([]byte("x"), 30000)
	_, err = write.Write(piece)
	is.NoErr(err)
	blocked, free, got := make(chan bool, 10), make(chan bool), 0
	go func() {
		<-blocked
		write.Write(piece)
		read.SetReadDeadline(time.Unix(1, 0))
		close(free)
	}()
	w.copy(t.Context(), writerFunc(func(p []byte) (int, error) {
		blocked <- true
		<-free
		got += len(p)
		return len(p), nil
	}), &outputReader{File: read}, "exec")
	is.Equal(got, 2*len(piece))
}

func TestOutputIsSentAtOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	out := newLines()
	done := make(chan wire.Result, 1)
	go func() {
		done <- w.Exec(t.Context(), w.request("echo first; until [ -e go ]; do sleep 0.01; done; echo second"), out,
			io.Discard)
	}()
	is.Equal(out.next(t), "first") // while the command still runs
	is.NoErr(os.WriteFile(filepath.Join(w.workspace, "go"), nil, 0o644))
	is.Equal(out.next(t), "second")
	is.Equal((<-done).ExitCode, 0)
}

func TestOutputOfParallelCommandsDoesNotMix(t *testing.T) {
	t.Parallel()
	w := open(t)
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			want := strings.Repeat(fmt.Sprintf("%d\n", i), 200)
			result, stdout, stderr := run(t, w, fmt.Sprintf("for i in $(seq 200); do echo %d; echo %d >&2; done; exit %d", i,
				i, i))
			if stdout != want || stderr != want || result.ExitCode != i {
				t.Errorf("command %d: exit code %d, %d and %d bytes", i, result.ExitCode, len(stdout), len(stderr))
			}
		})
	}
	all.Wait()
}

// lines is a writer that hands out complete lines.
type lines struct {
	r *io.PipeReader
	*io.PipeWriter
	c chan string
}

func newLines() *lines {
	r, w := io.Pipe()
	l := &lines{r, w, make(chan string, 100)}
	go func() {
		var line []byte
		b := make([]byte, 1)
		for {
			if _, err := r.Read(b); err != nil {
				return
			}
			if b[0] != '\n' {
				line = append(line, b[0])
				continue
			}
			l.c <- string(line)
			line = nil
		}
	}()
	return l
}

// next waits for a line of a real process.
func (l *lines) next(t *testing.T) string {
	t.Helper()
	select {
	case line := <-l.c:
		return line
	case <-time.After(time.Minute):
		t.Fatal("no line came")
		return ""
	}
}
