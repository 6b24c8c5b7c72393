package stream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/web/api"
	"pocketcoder/web/query"
)

// executionOutput answers with one output stream of a command. If the command has ended, the answer is the stored
// output or ranges of it. Otherwise it is the output so far, and new output until the end.
func (s *Streams) executionOutput(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	stream := cmp.Or(r.URL.Query().Get("stream"), stdout)
	if stream != stdout && stream != stderr {
		return api.BadField("stream", "validation_invalid_value", "want stdout or stderr, got %q", api.Truncate(stream, 40))
	}
	since := s.API.Model.Seq() // taken before the record is read, so the end is in the record or follows
	x, err := s.API.Find(r.Context(), caller, "executions", r.PathValue("id"))
	if err != nil {
		return err
	}
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if x.Text("status") != events.ExecutionRunning {
		return s.serveStored(w, r, x, stream)
	}
	chat := x.Text("chat")
	ctx, cancel := s.API.WhileAllowed(r, caller, chat, since, func() error {
		return s.API.MayView(r.Context(), caller, "executions", x.ID())
	})
	defer cancel()
	release, err := s.open.Acquire(caller, maxStreams,
		"Too many outputs of this account are being read. Close some of them.")
	if err != nil {
		return err
	}
	defer release()
	w.Header().Set("Content-Type", plainText)
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	w.WriteHeader(http.StatusOK)
	live := &liveOutput{log: s.Log, chat: chat, exec: x.ID(), stream: stream, out: api.NewDeadlineWriter(w)}
	if err := live.serve(ctx, s.API.Tail, since); err != nil {
		if ctx.Err() == nil && !errors.Is(err, api.ErrGone) {
			s.API.Logger.Error("stream output", "exec", live.exec, "err", err)
		}
		panic(http.ErrAbortHandler) // only an aborted connection tells the client that the output is incomplete
	}
	return nil
}

const (
	stdout = "stdout"
	stderr = "stderr"

	plainText = "text/plain; charset=utf-8"
)

// serveStored answers with the output of an execution that has ended.
func (s *Streams) serveStored(w http.ResponseWriter, r *http.Request, x query.Record, stream string) error {
	var outputs map[string]events.Output
	if err := json.Unmarshal(x.Get("outputs").(json.RawMessage), &outputs); err != nil {
		return fmt.Errorf("read outputs of execution %s: %w", x.ID(), err)
	}
	o := outputs[stream]
	content, err := OpenOutput(r.Context(), s.Log, o)
	if err != nil {
		return err
	}
	defer content.Close()
	w.Header().Set("Content-Type", plainText)
	if o.Base64 != nil {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	dropMultipleRanges(r)
	http.ServeContent(api.NewDeadlineWriter(w), r, "", time.Time{}, content)
	return nil
}

// dropMultipleRanges removes a request for several ranges: each would read the blob from the beginning.
func dropMultipleRanges(r *http.Request) {
	if strings.Contains(r.Header.Get("Range"), ",") {
		r.Header.Del("Range")
	}
}

// liveOutput writes one output stream of a running command, every byte once. It reads stored deltas while the command
// runs, and the stored output for bytes that are missing in the deltas. A slow client costs no memory.
type liveOutput struct {
	log          *log.Log
	chat, exec   string
	stream       string
	out          *api.DeadlineWriter
	written      int64  // bytes
	nextFragment uint64 // sequence after which to read fragments
}

// A fragment is stored shortly after it is published, so a reader waits storeDelay. Without a published fragment it
// reads after pollInterval.
const (
	storeDelay   = 10 * time.Millisecond
	pollInterval = time.Second
)

// serve returns when the command has ended. The end comes after the sequence since.
func (l *liveOutput) serve(ctx context.Context, tail *log.Tail, since uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	woken, ended, failed := make(chan struct{}, 1), make(chan events.ExecFinished, 1), make(chan error, 2)
	go func() {
		failed <- l.log.FollowDeltas(ctx, []string{events.ExecDeltaSubject(l.chat, l.exec)}, func(log.Delta) {
			select {
			case woken <- struct{}{}:
			default:
			}
		})
	}()
	go func() {
		if err := l.followEnd(ctx, tail, since, ended); err != nil {
			failed <- err
		}
	}()
	for wait := pollInterval; ; {
		if err := l.writeFragments(ctx); err != nil {
			return err
		}
		select {
		case <-woken:
			wait = storeDelay
		case <-time.After(wait):
			wait = pollInterval
		case d := <-ended:
			return l.writeRest(ctx, d)
		case err := <-failed:
			return err
		}
	}
}

func (l *liveOutput) followEnd(ctx context.Context, tail *log.Tail, since uint64,
	ended chan<- events.ExecFinished) error {
	return tail.Follow(ctx, since, events.ChatSubject(l.chat, events.ExecFinished{}.Kind()), func(e events.Event) error {
		body, _ := events.Decode(e) // any other event does not end this execution
		if d, ok := body.(events.ExecFinished); ok && d.Exec == l.exec {
			ended <- d
			return events.ErrStop
		}
		return nil
	}, func(uint64) error { return nil })
}

// writeFragments writes the deltas that continue the output. It skips a delta after a gap: the missing bytes are only
// in the stored output.
func (l *liveOutput) writeFragments(ctx context.Context) (err error) {
	l.nextFragment, err = l.log.FoldDeltas(ctx, events.ExecDeltaSubject(l.chat, l.exec), l.nextFragment,
		func(d log.Delta) error {
			have := l.written - d.Offset // bytes of it
			if d.Stream != l.stream || have < 0 || have >= int64(len(d.Data)) {
				return nil
			}
			n, err := l.out.Write(d.Data[have:])
			l.written += int64(n)
			return err
		})
	if err != nil {
		return err
	}
	return l.out.Flush()
}

func (l *liveOutput) writeRest(ctx context.Context, d events.ExecFinished) error {
	o := d.Stdout
	if l.stream == stderr {
		o = d.Stderr
	}
	content, err := OpenOutput(ctx, l.log, o)
	if err != nil {
		return err
	}
	defer content.Close()
	if size, err := content.Seek(0, io.SeekEnd); err != nil || size <= l.written { // less may be stored of a lost command
		return err
	}
	if _, err := content.Seek(l.written, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(l.out, content)
	return err
}

// OpenOutput opens the stored output of an execution.
func OpenOutput(ctx context.Context, log *log.Log, o events.Output) (io.ReadSeekCloser, error) {
	if o.Blob != nil {
		return openBlob(ctx, log, o.Blob.Name, o.Blob.Size)
	}
	if o.Base64 != nil {
		return inlineContent{bytes.NewReader(o.Base64)}, nil
	}
	return inlineContent{bytes.NewReader([]byte(o.Text))}, nil
}

func openBlob(ctx context.Context, log *log.Log, name string, size int64) (io.ReadSeekCloser, error) {
	b := &blobContent{open: func() (io.ReadCloser, error) { return log.Blobs.Open(ctx, name) }, size: size}
	return b, b.reopen()
}

type inlineContent struct{ *bytes.Reader }

func (inlineContent) Close() error { return nil }

// blobContent is a blob with random access. Each reader of a blob starts at the beginning, so a seek back opens a new
// one.
type blobContent struct {
	open   func() (io.ReadCloser, error)
	size   int64
	at     int64 // where the next read begins
	reader io.ReadCloser
	place  int64 // where reader is
}

func (b *blobContent) reopen() (err error) {
	b.Close()
	b.reader, err = b.open()
	b.place = 0
	return err
}

func (b *blobContent) Read(p []byte) (int, error) {
	if b.at < b.place {
		if err := b.reopen(); err != nil {
			return 0, err
		}
	}
	skipped, err := io.CopyN(io.Discard, b.reader, b.at-b.place)
	b.place += skipped
	if err != nil {
		return 0, err
	}
	n, err := b.reader.Read(p)
	b.place += int64(n)
	b.at += int64(n)
	return n, err
}

func (b *blobContent) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	b.at = max(offset, 0)
	return b.at, nil
}

func (b *blobContent) Close() error {
	if b.reader == nil {
		return nil
	}
	return b.reader.Close()
}
