package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"pocketcoder/ops/expect"
)

// frame is one event of an event stream.
type frame struct {
	id, event, data string
	bytes           string // as they came
}

// follow opens a stream. Closing it ends the connection.
func (l login) follow(ctx context.Context, path, after string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, "GET", l.HTTP+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", l.token)
	if after != "" {
		r.Header.Set("Last-Event-ID", after)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, errors.New(path + ": " + resp.Status)
	}
	return resp.Body, nil
}

// open opens an event stream and reads it up to an event.
func (l login) open(t *testing.T, path, event string) (rest *bufio.Reader, f frame) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	t.Cleanup(cancel)
	stream, err := l.follow(ctx, path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	for rest = bufio.NewReader(stream); f.event != event; {
		if f, err = nextFrame(rest); err != nil {
			t.Fatalf("no %s came on %s: %v", event, path, err)
		}
	}
	return rest, f
}

// nextFrame reads an event that is whole: what comes after it when the connection ends is none.
func nextFrame(r *bufio.Reader) (f frame, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return frame{}, err
		}
		f.bytes += line
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		switch value = strings.TrimPrefix(value, " "); name {
		case "id":
			f.id = value
		case "event":
			f.event = value
		case "data":
			f.data = value
		case "":
			if line == "\n" && f.event != "" {
				return f, nil
			}
			f = frame{} // a comment
		}
	}
}

// read reads a stream from its event after, in one connection, until last says that a frame is the last, until the
// connection ends, or until it has brought so many bytes.
func (l login) read(ctx context.Context, path, after string, bytes int64,
	last func(frame) bool) (read []frame, found bool, err error) {
	stream, err := l.follow(ctx, path, after)
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	for r := bufio.NewReader(io.LimitReader(stream, bytes)); ; {
		f, err := nextFrame(r)
		if err != nil {
			return read, false, ctx.Err() // in time, it is the connection's end
		}
		if read = append(read, f); last(f) {
			return read, true, nil
		}
	}
}

// whole reads a stream from its beginning, in one connection, up to the frame that is the last.
func (l login) whole(t *testing.T, path string, last func(frame) bool) []frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	read, found, err := l.read(ctx, path, "", math.MaxInt64, last)
	if err != nil || !found {
		t.Fatalf("the stream ended after %d events: %v", len(read), err)
	}
	return read
}

// cutStream is a stream that is read in connections which are cut at random places, each resumed after the last whole
// event that came.
type cutStream struct {
	path     string
	random   *rand.Rand
	lengths  int64 // of a connection, in bytes: at most, and mostly much less
	received []frame
	cuts     int
}

func newCutStream(t *testing.T, path string) *cutStream {
	return &cutStream{path: path, random: expect.Rand(t), lengths: 16 << 10}
}

// until reads on to the frame that is the last.
func (s *cutStream) until(ctx context.Context, l login, last func(frame) bool) error {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	for {
		length := 1 + int64(float64(s.lengths)*math.Pow(s.random.Float64(), 4))
		found, err := s.connect(ctx, l, length, last)
		if found || err != nil {
			return err
		}
		s.cuts++
	}
}

// connect reads one connection to its end.
func (s *cutStream) connect(ctx context.Context, l login, length int64, last func(frame) bool) (found bool, err error) {
	after := ""
	if n := len(s.received); n > 0 {
		after = s.received[n-1].id
	}
	read, found, err := l.read(ctx, s.path, after, length, last)
	caughtUp := 0
	for _, f := range read {
		switch {
		case f.id != "":
			s.received = append(s.received, f)
		case f.event == "caught-up":
			caughtUp++
		}
	}
	if err == nil && caughtUp > 1 {
		err = fmt.Errorf("one connection has caught up %d times", caughtUp)
	}
	return found, err
}

// sent is the frames that have an id, byte for byte.
func sent(frames []frame) string {
	var b strings.Builder
	for _, f := range frames {
		if f.id != "" {
			b.WriteString(f.bytes)
		}
	}
	return b.String()
}

// facts is the events of the frames as "replay --json" writes them.
func facts(frames []frame) string {
	var b strings.Builder
	for _, f := range frames {
		if f.id != "" {
			b.WriteString(f.data + "\n")
		}
	}
	return b.String()
}

// kind is the frame of an event of a kind whose JSON has such a piece.
func kind(event, piece string) func(frame) bool {
	return func(f frame) bool { return f.event == event && strings.Contains(f.data, piece) }
}

// end puts an event at the end of a chat's history, and tells its frame.
func (l login) end(t testing.TB, chat string) func(frame) bool {
	t.Helper()
	l.must(t, "PATCH", recordPath("chats", chat), record{"tags": "the end"}, nil)
	return kind("updated", "the end")
}

// expectSameText holds when two long texts are equal; it shows where they begin to differ.
func expectSameText(t *testing.T, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("line %d of %d is\n%.300s\nand not, of %d,\n%.300s", i, len(g), g[i], len(w), w[i])
		}
	}
	t.Fatalf("%d lines, and not %d", len(g), len(w))
}
