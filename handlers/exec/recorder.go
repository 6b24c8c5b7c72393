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

// How much of an execution's output, in bytes, is published for people who watch; all of it is recorded. One that goes
// on by itself, or is a person's shell, may take days.
const (
	maxLive     = 8 << 20
	maxLiveLong = 64 << 20
)

// maxOutput is how much a command may print, both streams together, in bytes: large for what anybody prints on
// purpose, and small beside the disk the log is on, which a command that prints for ever fills within minutes.
const maxOutput = 4 << 30

var errMaxOutput = errors.New("the command printed more than is recorded")

// recorder keeps an execution's output in constant memory: small output inline, large output in BLOBS, and the
// beginning of it live in DELTAS. Secrets are taken out. What is beyond its most it refuses, which ends the command.
// Of a private one it keeps nothing.
type recorder struct {
	log        *log.Log
	chat, exec string
	live       int64 // bytes that are published
	most       int64 // bytes that are taken, of both streams
	taken      atomic.Int64
	hasRoom    func() bool // Executions.HasRoom
	outOfSpace atomic.Bool // there was no room for more
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

// tee records what is written and passes it on to w. Losing w does not end the recording: that the caller is gone is
// noticed elsewhere, and the result is recorded all the same.
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

// roomPause is how many bytes a command prints between two looks at the room for them.
const roomPause = 1 << 20

// checkRoom notes that there is no room for a large output, which would take the last space from every chat.
func (r *recorder) checkRoom(before, after int64) {
	if r.hasRoom != nil && before/roomPause != after/roomPause && !r.hasRoom() {
		r.outOfSpace.Store(true)
	}
}

// isFull reports whether more was printed than is taken, or than there is room for.
func (r *recorder) isFull() bool { return r.taken.Load() > r.most || r.outOfSpace.Load() }

// withOutputLimit is the result of a command that was ended for its output, and any other as it is.
func (r *recorder) withOutputLimit(result wire.Result) wire.Result {
	if r.isFull() && (result.Reason == wire.Cancelled || result.Reason == wire.Exited) {
		result.Reason = wire.OutputSize
		// that it heard it and ended well does not make it whole
		result.ExitCode = cmp.Or(result.ExitCode, 128+int(syscall.SIGTERM))
	}
	return result
}

type writer func([]byte) (int, error)

func (f writer) Write(p []byte) (int, error) { return f(p) }

// finish gives the event of the result. Nothing is written any more.
func (r *recorder) finish(result wire.Result) events.ExecFinished {
	d := events.ExecFinished{
		Exec: r.exec, ExitCode: result.ExitCode, Signal: result.Signal, Reason: string(result.Reason), Error: result.Error,
		DurationMS: result.DurationMS,
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

// recordedOutput is the output of an execution on one stream, while it is recorded.
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
		// A fragment that is not published is no loss: the closing event has everything.
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
	s.blob.Write(p) // an error is that of the store, and finish reports it
	return len(p), nil
}

// spill moves the output to BLOBS, what is inline already first.
func (s *recordedOutput) spill() {
	r, w := io.Pipe()
	s.blob, s.stored = w, make(chan storedOutput, 1)
	head := bytes.NewReader(bytes.Clone(s.inline.Bytes()))
	go func() {
		b, err := s.log.PutBlob(context.Background(), s.exec+"."+s.stream, io.MultiReader(head, r))
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
