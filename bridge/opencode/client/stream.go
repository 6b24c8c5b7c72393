package client

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Bounds of the event stream.
const (
	// Silence ends a stream on which nothing arrives: OpenCode sends a heartbeat every 10 s.
	Silence = 30 * time.Second

	maxEvent   = 256 << 20 // bytes of one event; the event is held in memory
	maxBatch   = 1000      // events of one call; an atomic batch of JetStream holds as many
	maxPending = 16 << 20  // bytes read ahead of the consumer; OpenCode queues the rest
)

// Stream connects to the live stream and calls fn with the events that have arrived, in order, always from this
// goroutine: one event at a time when few arrive, up to 1,000 in a burst. The first event is server.connected. No
// earlier event is sent again. While fn runs, the next 16 MiB are read ahead, then OpenCode waits. fn gets each durable
// event once (Event.Sync), and heartbeats.
//
// Stream returns fn's error, ctx's, or why the stream ended: OpenCode stopped, nothing arrived for silence (use
// Silence), an event over 256 MiB or one that cannot be read. fn has received all that arrived before that.
func (c *Client) Stream(ctx context.Context, silence time.Duration, fn func([]Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := newQueue(maxPending)
	read := make(chan struct{})
	go func() {
		defer close(read)
		q.finish(c.read(ctx, cancel, silence, q.push))
	}()
	err := q.drain(fn)
	q.stop()
	cancel(nil)
	<-read
	return err
}

// read gives every event to push until the stream ends, and says why it did.
func (c *Client) read(ctx context.Context, cancel context.CancelCauseFunc, silence time.Duration,
	push func(Event) error) error {
	watch := time.AfterFunc(silence, func() {
		cancel(fmt.Errorf("nothing arrived for %s, not even a heartbeat", silence))
	})
	defer watch.Stop()
	const op = "read events"
	resp, err := c.send(ctx, call{op: op, path: "/global/event"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	first := true
	err = eachData(watchedReader{resp.Body, watch, silence}, maxEvent, func(data []byte) error {
		e, ok, err := ParseEvent(data)
		if err != nil {
			return err
		}
		if first && e.Type != "server.connected" {
			return fmt.Errorf("the first event is %q, not server.connected", e.Type)
		}
		if first = false; !ok {
			return nil
		}
		return push(e)
	})
	if err == nil {
		err = errors.New("opencode closed the stream")
	}
	return failed(ctx, op, err)
}

// watchedReader lets the watch run only while a read waits: a slow consumer is not a silent server.
type watchedReader struct {
	io.Reader
	watch   *time.Timer
	silence time.Duration
}

func (w watchedReader) Read(p []byte) (int, error) {
	w.watch.Reset(w.silence)
	n, err := w.Reader.Read(p)
	w.watch.Stop()
	return n, err
}

// eachData calls fn with the data of every server-sent event of r, until EOF. OpenCode writes each event as one line of
// data, and uses no other field. A line may have up to limit bytes. data is valid until fn returns.
func eachData(r io.Reader, limit int, fn func(data []byte) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var long []byte // a line longer than the reader's buffer
	for {
		line, err := in.ReadSlice('\n')
		if len(long)+len(line) > limit {
			return fmt.Errorf("an event is longer than %d bytes", limit)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long, line...)
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil // the rest is not a whole line
		}
		if err != nil {
			return err
		}
		if long != nil {
			line, long = append(long, line...), nil
		}
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			if err := fn(bytes.TrimSpace(data)); err != nil {
				return err
			}
		}
	}
}
