package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of the event stream.
const (
	// Silence ends a stream on which nothing arrives: OpenCode sends a heartbeat every 10 s (behaviour stream).
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

type Event struct {
	ID         string // evt_…, ascending in order of arrival
	Type       string // without the version that a durable event has in the history: "message.updated"
	Form       int    // that version; 0 when the event is not durable
	Session    string // empty if the event belongs to no session
	Seq        int64  // the session's gapless count of durable events, from 0; -1 when the event is not durable
	Properties json.RawMessage
}

// size estimates the size of an event in a buffer, in bytes.
func (e Event) size() int { return len(e.Properties) + 256 }

// durable reports whether OpenCode stores events of this type and announces each twice on the live stream: plain, and
// right after it as a sync twin with the same id and the sequence number (behaviour durable-twins).
func durable(typ string) bool {
	switch typ {
	case "session.created", "session.updated", "session.deleted",
		"message.updated", "message.removed", "message.part.updated", "message.part.removed":
		return true
	}
	return strings.HasPrefix(typ, "session.next.") && !strings.HasSuffix(typ, ".delta")
}

// ParseEvent reads one event of /global/event. ok is false for the plain half of a durable pair, which its twin
// replaces.
func ParseEvent(data []byte) (e Event, ok bool, err error) {
	var in struct {
		Payload struct {
			ID, Type   string
			Properties json.RawMessage
			SyncEvent  struct {
				Type, AggregateID string
				Seq               int64
				Data              json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return e, false, fmt.Errorf("read event %q: %w", data[:min(len(data), 200)], err)
	}
	p := in.Payload
	switch {
	case p.Type == "":
		return e, false, fmt.Errorf("read event %q: no type", data[:min(len(data), 200)])
	case p.Type == "sync":
		s := p.SyncEvent
		typ, form := splitVersion(s.Type)
		return Event{ID: p.ID, Type: typ, Form: form, Session: s.AggregateID, Seq: s.Seq, Properties: s.Data}, true, nil
	case durable(p.Type):
		return e, false, nil
	}
	return Event{ID: p.ID, Type: p.Type, Session: sessionOf(p.Properties), Seq: -1, Properties: p.Properties}, true, nil
}

// sessionOf returns the session that an event names, if any. The event is not durable.
func sessionOf(properties json.RawMessage) string {
	var p struct{ SessionID string }
	if json.Unmarshal(properties, &p) != nil {
		return "" // properties of another shape name no session
	}
	return p.SessionID
}

// splitVersion splits the type of a durable event, "session.created.1". The version is 0 if there is none.
func splitVersion(typ string) (name string, form int) {
	i := strings.LastIndexByte(typ, '.')
	form, err := strconv.Atoi(typ[i+1:])
	if i < 1 || err != nil || form < 1 {
		return typ, 0
	}
	return typ[:i], form
}

// maxDepth limits how deep the JSON from OpenCode may be nested. A model chooses the arguments of a tool call, and
// package json reads at most 10,000 levels. Without the limit, one such call would end the stream of events for all
// chats, again and again.
const maxDepth = 1000

// depthReader reads JSON values and leaves "" in place of what is nested deeper than maxDepth.
type depthReader struct {
	io.ReadCloser
	depth    int
	inString bool
	escaped  bool
}

func (s *depthReader) Read(p []byte) (int, error) {
	for {
		n, err := s.ReadCloser.Read(p)
		if n = s.cut(p[:n]); n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// cut removes values that are nested too deep from p, in place, and returns the length of the rest.
func (s *depthReader) cut(p []byte) (left int) {
	for _, c := range p {
		keep := s.depth <= maxDepth
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped, s.inString = c == '\\', c != '"'
		case c == '"':
			s.inString = true
		case c == '{', c == '[':
			if s.depth++; s.depth == maxDepth+1 {
				c = '"'
			}
		case c == '}', c == ']':
			if s.depth--; s.depth == maxDepth {
				c, keep = '"', true
			}
		}
		if keep {
			p[left] = c
			left++
		}
	}
	return left
}

// errStopped tells the reader that the consumer wants no more.
var errStopped = errors.New("the consumer stopped")

// queue holds what one goroutine has read until another takes it, in order, bounded by bytes. An event over the bound
// is let in alone.
type queue struct {
	mu     sync.Mutex
	change *sync.Cond
	events []Event
	bytes  int
	limit  int
	end    error // why no more will come
	done   bool  // the consumer stopped
}

func newQueue(limit int) *queue {
	q := &queue{limit: limit}
	q.change = sync.NewCond(&q.mu)
	return q
}

// push adds an event, waiting for room.
func (q *queue) push(e Event) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for !q.done && len(q.events) > 0 && q.bytes+e.size() > q.limit {
		q.change.Wait()
	}
	if q.done {
		return errStopped
	}
	q.events = append(q.events, e)
	q.bytes += e.size()
	q.change.Broadcast()
	return nil
}

// finish records that no more events will come, and why.
func (q *queue) finish(end error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end = end
	q.change.Broadcast()
}

// stop makes push fail from now on.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.done = true
	q.change.Broadcast()
}

// drain calls fn with all events, in batches of those that have arrived. It returns fn's error, or the one given to
// finish.
func (q *queue) drain(fn func([]Event) error) error {
	for {
		batch, end := q.take()
		if len(batch) == 0 {
			return end
		}
		if err := fn(batch); err != nil {
			return err
		}
	}
}

// take waits for events and returns up to maxBatch of them. It returns none at the end.
func (q *queue) take() ([]Event, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.events) == 0 && q.end == nil {
		q.change.Wait()
	}
	n := min(len(q.events), maxBatch)
	batch := q.events[:n:n]
	if q.events = q.events[n:]; len(q.events) == 0 {
		q.events = nil // releases the memory of the events
	}
	for _, e := range batch {
		q.bytes -= e.size()
	}
	q.change.Broadcast()
	return batch, q.end
}
