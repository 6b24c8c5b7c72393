package exec

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/sandbox/wire"
)

// Limits of the output that is published live, in bytes. All output is recorded. Detached commands and shells may run
// for days, so their limit is higher.
const (
	maxLive     = 8 << 20
	maxLiveLong = 64 << 20
)

// maxOutput limits the output of a command, both streams together, in bytes. Useful output is far below it. It keeps a
// command that prints forever from filling the disk of the log.
const maxOutput = 4 << 30

var errMaxOutput = errors.New("the command printed more than is recorded")

// recorder records an execution's output in constant memory: small output inline, large output in BLOBS, and the
// beginning live in DELTAS. It redacts secrets. Output beyond the limit is an error of the writer, which ends the
// command. A private execution is not recorded.
type recorder struct {
	log        *log.Log
	chat, exec string
	live       int64 // limit of the published bytes of each stream
	most       int64 // limit of the recorded bytes of both streams
	taken      atomic.Int64
	hasRoom    func() bool // Executions.HasRoom
	outOfSpace atomic.Bool // hasRoom has returned false
	private    bool
	streams    map[string]*recordedOutput
}

func (x *Executions) newRecorder(chat string, d events.ExecRequested) *recorder {
	r := &recorder{log: x.Log, hasRoom: x.HasRoom, chat: chat, exec: d.Exec, live: maxLive, most: maxOutput,
		private: d.Private, streams: map[string]*recordedOutput{}}
	if d.Detached || d.Terminal {
		r.live = maxLiveLong
	}
	return r
}

// tee returns a writer that records what is written and forwards it to w. It ignores errors of w: the result is
// recorded even if the caller is gone.
func (r *recorder) tee(stream string, w io.Writer) io.Writer {
	if r.private {
		return w
	}
	s := &recordedOutput{recorder: r, stream: stream}
	s.redact = r.log.Writer(writer(s.write))
	r.streams[stream] = s
	return writer(func(p []byte) (int, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		before := r.taken.Add(int64(len(p))) - int64(len(p))
		p, err := p[:max(0, min(int64(len(p)), r.most-before))], error(nil)
		if r.checkRoom(before, before+int64(len(p))); r.isFull() {
			err = errMaxOutput
		}
		s.redact.Write(p)
		w.Write(p)
		return len(p), err
	})
}

// roomPause is how many bytes a command prints between two checks of the free space.
const roomPause = 1 << 20

// checkRoom records whether a large output would use the last free space of the disk.
func (r *recorder) checkRoom(before, after int64) {
	if r.hasRoom != nil && before/roomPause != after/roomPause && !r.hasRoom() {
		r.outOfSpace.Store(true)
	}
}

// isFull reports whether the output exceeds the limit or the free space.
func (r *recorder) isFull() bool { return r.taken.Load() > r.most || r.outOfSpace.Load() }

// withOutputLimit sets the reason of the result of a command that was ended because of its output.
func (r *recorder) withOutputLimit(result wire.Result) wire.Result {
	if r.isFull() && (result.Reason == wire.Cancelled || result.Reason == wire.Exited) {
		result.Reason = wire.OutputSize
		// a command that handles SIGTERM and exits with 0 has not succeeded
		result.ExitCode = cmp.Or(result.ExitCode, 128+int(syscall.SIGTERM))
	}
	return result
}

type writer func([]byte) (int, error)

func (f writer) Write(p []byte) (int, error) { return f(p) }

// finish returns exec.finished for a result. It must be called after the last write.
func (r *recorder) finish(result wire.Result) events.ExecFinished {
	d := events.ExecFinished{
		Exec: r.exec, ExitCode: result.ExitCode, Signal: result.Signal, Reason: string(result.Reason), Error: result.Error,
		DurationMS: result.DurationMS, Left: (*events.LeftProcesses)(result.Left),
	}
	for name, to := range map[string]*events.Output{"stdout": &d.Stdout, "stderr": &d.Stderr} {
		s, ok := r.streams[name]
		if !ok {
			continue
		}
		var err error
		if *to, err = s.finish(); err != nil && d.Error == "" {
			d.Error = err.Error()
		}
	}
	return d
}

// recordedOutput records one stream of an execution.
type recordedOutput struct {
	*recorder
	stream string
	redact io.WriteCloser
	mu     sync.Mutex
	bytes  int64
	inline bytes.Buffer
	blob   *io.PipeWriter // set once the output has outgrown inline
	stored chan storedOutput
}

type storedOutput struct {
	blob events.Blob
	err  error
}

func (s *recordedOutput) write(p []byte) (int, error) {
	if s.bytes < s.live {
		// An error is ignored, because exec.finished holds the whole output.
		_ = s.log.PublishDelta(log.Delta{
			Subject: events.ExecDeltaSubject(s.chat, s.exec), Type: log.ExecOutput, Stream: s.stream, Offset: s.bytes, Data: bytes.Clone(p),
		})
	}
	s.bytes += int64(len(p))
	if s.blob == nil && s.inline.Len()+len(p) > log.MaxInline {
		s.spill()
	}
	if s.blob == nil {
		return s.inline.Write(p)
	}
	s.blob.Write(p) // finish returns the error of the store
	return len(p), nil
}

// spill moves the output to BLOBS, beginning with the inline output.
func (s *recordedOutput) spill() {
	r, w := io.Pipe()
	s.blob, s.stored = w, make(chan storedOutput, 1)
	head := bytes.NewReader(bytes.Clone(s.inline.Bytes()))
	go func() {
		b, err := s.log.Blobs.Put(context.Background(), s.exec+"."+s.stream, io.MultiReader(head, r))
		r.CloseWithError(err)
		s.stored <- storedOutput{b, err}
	}()
}

func (s *recordedOutput) finish() (events.Output, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redact.Close()
	out := events.Output{Bytes: s.bytes}
	if s.blob != nil {
		s.blob.Close()
		got := <-s.stored
		if got.err == nil {
			out.Blob = &got.blob
			return out, nil
		}
		out.Text = strings.ToValidUTF8(s.inline.String(), "\uFFFD")
		return out, got.err
	}
	if b := s.inline.Bytes(); utf8.Valid(b) {
		out.Text = string(b)
	} else {
		out.Base64 = bytes.Clone(b)
	}
	return out, nil
}
