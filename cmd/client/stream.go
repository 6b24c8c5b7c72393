package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers"
	"pocketcoder/web/api"
)

// streamEvent is an event of an event stream.
type streamEvent struct {
	name string
	data []byte
}

// silence is how long a stream may send nothing, not even a ping.
const silence = 3 * api.PingEvery

// stream calls each with the events of an event stream, until the stream or ctx ends or each returns an error.
func (s *System) stream(ctx context.Context, method, path string, body any, each func(streamEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answer, err := s.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	silent := time.AfterFunc(silence, cancel)
	defer silent.Stop()
	lines, e := bufio.NewReader(answer.Body), streamEvent{}
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		silent.Reset(silence)
		switch line = bytes.TrimRight(line, "\n"); {
		case len(line) == 0:
			if e.name != "" {
				if err := each(e); err != nil {
					return err
				}
			}
			e = streamEvent{}
		case bytes.HasPrefix(line, []byte("event: ")):
			e.name = string(line[len("event: "):])
		case bytes.HasPrefix(line, []byte("data: ")):
			e.data = line[len("data: "):]
		}
	}
}

func eventsOf(chat string, query url.Values) string {
	return "/api/chats/" + url.PathEscape(chat) + "/events?" + query.Encode()
}

// caughtUp is the name of the event after the stored ones.
const caughtUp = "caught-up"

// Read calls each with the events of a chat that are stored after a sequence, and with new ones until ctx ends or each
// returns an error. A batch whose Behind is 0 says that every stored event came. It connects again after the connection
// is lost, and says so on the channel of Connected. If kinds are given, events of other kinds are left out; a kind may
// have wildcards.
func (s *System) Read(ctx context.Context, chat string, after uint64, each func(log.Batch) error,
	kinds ...string) error {
	behind := uint64(1)
	return s.again(ctx, func() error {
		query := url.Values{"after": {fmt.Sprint(after)}, "kinds": {strings.Join(kinds, ",")}}
		defer s.tell(false)
		return s.stream(ctx, http.MethodGet, eventsOf(chat, query), nil, func(e streamEvent) error {
			s.tell(true)
			if e.name == caughtUp {
				behind = 0
				return stop(each(log.Batch{}))
			}
			var one events.Event
			if err := json.Unmarshal(e.data, &one); err != nil {
				return stop(fmt.Errorf("read an event of chat %s: %w", chat, err))
			}
			after = one.Seq
			return stop(each(log.Batch{Events: []events.Event{one}, Behind: behind}))
		})
	})
}

// ReadDeltas calls each with the live deltas of a chat until ctx ends, and with the stored ones since a time unless it
// is zero.
func (s *System) ReadDeltas(ctx context.Context, chat string, since time.Time, each func(log.Delta)) error {
	return s.again(ctx, func() error {
		query := url.Values{"deltas": {"only"}}
		if !since.IsZero() {
			query.Set("since", since.Format(time.RFC3339Nano))
		}
		return s.stream(ctx, http.MethodGet, eventsOf(chat, query), nil, func(e streamEvent) error {
			d, err := deltaOf(e.data)
			if err == nil {
				each(d)
			}
			return stop(err)
		})
	})
}

// OutputDeltas calls each with the deltas of the output of a command that are stored, and with new ones until ctx ends
// if follow is set.
func (s *System) OutputDeltas(ctx context.Context, exec string, follow bool, each func(log.Delta) error) error {
	path := fmt.Sprintf("/api/executions/%s/deltas?follow=%t", url.PathEscape(exec), follow)
	read := func() error {
		return s.stream(ctx, http.MethodGet, path, nil, func(e streamEvent) error {
			d, err := deltaOf(e.data)
			if err == nil {
				err = each(d)
			}
			return stop(err)
		})
	}
	if follow {
		return s.again(ctx, read)
	}
	err := read()
	var by stopped
	switch {
	case errors.As(err, &by):
		return by.error
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}

// Output opens the stored output of a command that has ended.
func (s *System) Output(ctx context.Context, exec, stream string) (io.ReadCloser, error) {
	answer, err := s.open(ctx, http.MethodGet, fmt.Sprintf("/api/executions/%s/output?stream=%s", url.PathEscape(exec),
		stream), nil)
	if err != nil {
		return nil, err
	}
	return answer.Body, nil
}

func deltaOf(b []byte) (d log.Delta, err error) {
	var f struct {
		Subject, Type, Stream string
		Offset                int64
		Data                  json.RawMessage
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return d, err
	}
	d = log.Delta{Subject: f.Subject, Type: f.Type, Stream: f.Stream, Offset: f.Offset, Data: f.Data}
	if f.Type == log.ExecOutput {
		d.Data = nil
		err = json.Unmarshal(f.Data, &d.Data)
	}
	return d, err
}

// Fold calls each with the raw JSON of the events of a chat that are stored after a sequence, and returns the sequence
// up to which there are no more. ErrStop of each ends it without an error. If kinds are given, it leaves out other
// kinds; every chat must have an event of one of the kinds.
func (s *System) Fold(ctx context.Context, chat string, after uint64,
	each func(e events.Event, raw []byte) error, kinds ...string) (last uint64, err error) {
	query, found := url.Values{"after": {fmt.Sprint(after)}, "kinds": {strings.Join(kinds, ",")}}, false
	err = s.stream(ctx, http.MethodGet, eventsOf(chat, query), nil, func(e streamEvent) error {
		if e.name == caughtUp {
			var at struct{ Seq uint64 }
			if err := json.Unmarshal(e.data, &at); err != nil {
				return err
			}
			last = at.Seq
			return events.ErrStop
		}
		var one events.Event
		if err := json.Unmarshal(e.data, &one); err != nil {
			return fmt.Errorf("read an event of chat %s: %w", chat, err)
		}
		found = true
		return each(one, e.data)
	})
	switch code := handlers.CodeOf(err); {
	case errors.Is(err, events.ErrStop) && (found || after > 0), code == handlers.Conflict: // the log ends before after
		err = nil
	case errors.Is(err, events.ErrStop), code == handlers.NotFound:
		err = fmt.Errorf("there is no chat %s in the log", chat)
	}
	return last, err
}

// stopped is an error of the caller's function, after which no further connection is made.
type stopped struct{ error }

func stop(err error) error {
	if err == nil {
		return nil
	}
	return stopped{err}
}

// reconnectPause is the time between two attempts to connect.
const reconnectPause = 500 * time.Millisecond

// again calls read until ctx ends, the system refuses what it asks for, or read returns a stopped.
func (s *System) again(ctx context.Context, read func() error) error {
	for {
		err := read()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var by stopped
		if errors.As(err, &by) {
			return by.error
		}
		if code := handlers.CodeOf(err); code != "" && code != handlers.Unavailable {
			return err
		}
		if err := sleep.For(ctx, reconnectPause); err != nil {
			return err
		}
	}
}

// Connected returns a channel that receives false when Read has lost its connection, and true when it is back.
func (s *System) Connected() <-chan bool { return s.states }

// tell reports a change of the connection, unless nobody has taken the last ones.
func (s *System) tell(up bool) {
	if s.lost.Swap(!up) != up {
		return
	}
	select {
	case s.states <- up:
	default:
	}
}

// Rebuild computes the read models again. It calls progress while it does, and decodes the result into rebuilt.
func (s *System) Rebuild(ctx context.Context, progress func(body []byte) error, rebuilt any) error {
	err := s.stream(ctx, http.MethodPost, "/api/pocketcoder/rebuild", nil, func(e streamEvent) error {
		switch e.name {
		case "progress":
			return progress(e.data)
		case "failed":
			var text string
			return errors.Join(json.Unmarshal(e.data, &text), errors.New(text))
		}
		if err := json.Unmarshal(e.data, rebuilt); err != nil {
			return err
		}
		return events.ErrStop
	})
	if errors.Is(err, events.ErrStop) {
		return nil
	}
	return err
}

// Watch calls each with the records that change in some collections, until ctx ends or each returns an error. Changes
// while there is no connection are missed.
func (s *System) Watch(ctx context.Context, collections []string, each func(record json.RawMessage) error) error {
	return s.again(ctx, func() error {
		return s.stream(ctx, http.MethodGet, "/api/realtime", nil, func(e streamEvent) error {
			var m struct {
				ClientID string `json:"clientId"`
				Record   json.RawMessage
			}
			if err := json.Unmarshal(e.data, &m); err != nil {
				return stop(err)
			}
			if m.ClientID == "" {
				return stop(each(m.Record))
			}
			topics := make([]string, len(collections))
			for i, name := range collections {
				topics[i] = name + "/*"
			}
			return s.Send(ctx, http.MethodPost, "/api/realtime", map[string]any{"clientId": m.ClientID,
				"subscriptions": topics}, nil)
		})
	})
}
