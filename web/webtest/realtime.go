package webtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Follower is a client of realtime, as the official ones are.
type Follower struct {
	S      *System
	ID     string
	First  string // the first frame as it came
	Frames chan Frame
	Close  context.CancelFunc
}

// Frame is an event as it came.
type Frame struct {
	Raw, ID, Event string
	Data           struct {
		Action string
		Record map[string]any
		Event  string         // of a hot stream
		Data   map[string]any // likewise
	}
}

// Connect opens a connection and reads what it begins with.
func (s *System) Connect(t testing.TB) *Follower {
	t.Helper()
	f, lines := s.ConnectSilent(t)
	go func() {
		defer close(f.Frames)
		for {
			got, err := ReadFrame(lines)
			if err != nil {
				return
			}
			f.Frames <- got
		}
	}()
	return f
}

// ConnectSilent opens a connection and reads only what it begins with.
func (s *System) ConnectSilent(t testing.TB) (*Follower, *bufio.Reader) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/api/realtime", nil)
	Check(t, err)
	resp, err := http.DefaultTransport.RoundTrip(r)
	Check(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s", resp.Status, resp.Header)
	}
	lines := bufio.NewReader(resp.Body)
	begin, err := ReadFrame(lines)
	Check(t, err)
	return &Follower{S: s, ID: begin.ID, First: begin.Raw, Frames: make(chan Frame, 10_000), Close: cancel}, lines
}

// ReadFrame reads one event; comments are no events.
func ReadFrame(lines *bufio.Reader) (f Frame, err error) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return f, err
		}
		if line == ": ping\n" || line == ": bye\n" {
			lines.ReadString('\n')
			continue
		}
		f.Raw += line
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		switch name {
		case "id":
			f.ID = value
		case "event":
			f.Event = value
		case "data":
			if err := json.Unmarshal([]byte(value), &f.Data); err != nil {
				return f, err
			}
		case "":
			return f, nil
		}
	}
}

// Follow sets what the client follows.
func (f *Follower) Follow(t testing.TB, token string, topics ...string) *Follower {
	t.Helper()
	if status, answer := f.Try(t, token, topics...); status != http.StatusNoContent {
		t.Fatalf("follow %q: %d %v", topics, status, answer)
	}
	return f
}

// Try sets what the client follows and returns the status and the answer.
func (f *Follower) Try(t testing.TB, token string, topics ...string) (int, map[string]any) {
	t.Helper()
	return f.S.Call(t, token, "POST", "/api/realtime", map[string]any{"clientId": f.ID, "subscriptions": topics})
}

// patience is how long a test waits for what must come. A busy machine takes its time.
const patience = 2 * time.Minute

// Next returns the next event. The test fails if none arrives.
func (f *Follower) Next(t testing.TB) Frame {
	t.Helper()
	select {
	case got, open := <-f.Frames:
		if !open {
			t.Fatal("the connection has ended")
		}
		return got
	case <-time.After(patience):
		t.Fatalf("nothing came within %s", patience)
	}
	return Frame{}
}

// Until reads events up to one whose record has this value, and describes those before it.
func (f *Follower) Until(t testing.TB, field, value string) (before []string) {
	t.Helper()
	for {
		got := f.Next(t)
		if got.Data.Record[field] == value {
			return before
		}
		before = append(before, got.String())
	}
}

// Ends waits for the end of the connection.
func (f *Follower) Ends(t testing.TB) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case _, open := <-f.Frames:
			if !open {
				return
			}
		case <-deadline:
			t.Fatalf("the connection has not ended within %s", patience)
		}
	}
}

func (f Frame) String() string {
	return fmt.Sprintf("%s %s %v", f.Event, f.Data.Action, f.Data.Record["title"])
}

// Rename changes a chat's title by way of the API.
func (s *System) Rename(t testing.TB, token, chat, title string) {
	t.Helper()
	if status, answer := s.Call(t, token, "PATCH", "/api/collections/chats/records/"+chat,
		map[string]any{"title": title}); status != http.StatusOK {
		t.Fatalf("rename: %d %v", status, answer)
	}
}

// Remove deletes a chat by way of the API.
func (s *System) Remove(t testing.TB, token, chat string) {
	t.Helper()
	if status, answer := s.Call(t, token, "DELETE", "/api/collections/chats/records/"+chat,
		nil); status != http.StatusNoContent {
		t.Fatalf("delete: %d %v", status, answer)
	}
}
