package api_test

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

// follower is a client of realtime, as the official ones are.
type follower struct {
	s      *system
	id     string
	first  string // the first frame as it came
	frames chan frame
	close  context.CancelFunc
}

// frame is an event as it came.
type frame struct {
	raw, id, event string
	data           struct {
		Action string
		Record map[string]any
		Event  string         // of a hot stream
		Data   map[string]any // likewise
	}
}

// connect opens a connection and reads what it begins with.
func (s *system) connect(t testing.TB) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/api/realtime", nil)
	check(t, err)
	resp, err := http.DefaultTransport.RoundTrip(r)
	check(t, err)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s %s", resp.Status, resp.Header)
	}
	f := &follower{s: s, frames: make(chan frame, 10_000), close: cancel}
	lines := bufio.NewReader(resp.Body)
	begin, err := readFrame(lines)
	check(t, err)
	f.id, f.first = begin.id, begin.raw
	go func() {
		defer close(f.frames)
		defer resp.Body.Close()
		for {
			got, err := readFrame(lines)
			if err != nil {
				return
			}
			f.frames <- got
		}
	}()
	return f
}

// readFrame reads one event; comments are no events.
func readFrame(lines *bufio.Reader) (f frame, err error) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return f, err
		}
		if line == ": ping\n" || line == ": bye\n" {
			lines.ReadString('\n')
			continue
		}
		f.raw += line
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		switch name {
		case "id":
			f.id = value
		case "event":
			f.event = value
		case "data":
			if err := json.Unmarshal([]byte(value), &f.data); err != nil {
				return f, err
			}
		case "":
			return f, nil
		}
	}
}

// follow says what the client follows.
func (f *follower) follow(t testing.TB, token string, topics ...string) *follower {
	t.Helper()
	if status, answer := f.try(t, token, topics...); status != http.StatusNoContent {
		t.Fatalf("follow %q: %d %v", topics, status, answer)
	}
	return f
}

func (f *follower) try(t testing.TB, token string, topics ...string) (int, map[string]any) {
	t.Helper()
	return f.s.call(t, token, "POST", "/api/realtime", map[string]any{"clientId": f.id, "subscriptions": topics})
}

// next is the next event, which comes.
func (f *follower) next(t testing.TB) frame {
	t.Helper()
	select {
	case got, open := <-f.frames:
		if !open {
			t.Fatal("the connection has ended")
		}
		return got
	case <-time.After(20 * time.Second):
		t.Fatal("nothing came within 20 s")
	}
	return frame{}
}

// until reads events up to one whose record has this value, and describes those before it.
func (f *follower) until(t testing.TB, field, value string) (before []string) {
	t.Helper()
	for {
		got := f.next(t)
		if got.data.Record[field] == value {
			return before
		}
		before = append(before, got.String())
	}
}

func (f *follower) ends(t testing.TB) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case _, open := <-f.frames:
			if !open {
				return
			}
		case <-deadline:
			t.Fatal("the connection has not ended within 20 s")
		}
	}
}

func (f frame) String() string {
	return fmt.Sprintf("%s %s %v", f.event, f.data.Action, f.data.Record["title"])
}

// rename changes a chat's title by way of the API.
func (s *system) rename(t testing.TB, token, chat, title string) {
	t.Helper()
	if status, answer := s.call(t, token, "PATCH", "/api/collections/chats/records/"+chat, map[string]any{"title": title}); status != http.StatusOK {
		t.Fatalf("rename: %d %v", status, answer)
	}
}

func (s *system) remove(t testing.TB, token, chat string) {
	t.Helper()
	if status, answer := s.call(t, token, "DELETE", "/api/collections/chats/records/"+chat, nil); status != http.StatusNoContent {
		t.Fatalf("delete: %d %v", status, answer)
	}
}
