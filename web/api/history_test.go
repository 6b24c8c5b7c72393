package api_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

// open begins a request whose answer is read bit by bit. It is over with the test, or when the body is closed.
func (s *system) open(t testing.TB, token, path, lastEventID string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
	check(t, err)
	r.Header.Set("Authorization", token)
	if lastEventID != "" {
		r.Header.Set("Last-Event-ID", lastEventID)
	}
	resp, err := http.DefaultClient.Do(r)
	check(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// sse is an event stream as a client reads it.
type sse struct{ *bufio.Reader }

func (s *system) stream(t testing.TB, token, path, lastEventID string) sse {
	t.Helper()
	resp := s.open(t, token, path, lastEventID)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s %s", path, resp.Status, body)
	}
	return sse{bufio.NewReader(resp.Body)}
}

// frame gives the next whole event: its bytes, and its fields by name.
func (s sse) frame() (raw string, fields map[string]string, err error) {
	fields = map[string]string{}
	for {
		line, err := s.ReadString('\n')
		if err != nil {
			return "", nil, err
		}
		if raw += line; line == "\n" {
			return raw, fields, nil
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		fields[name] = value
	}
}

// next is the next event, which there is.
func (s sse) next(t testing.TB) map[string]string {
	t.Helper()
	_, fields, err := s.frame()
	check(t, err)
	return fields
}

// wire is what a stream of a filter says of the events stored after a sequence.
func (s *system) wire(t testing.TB, filter string, after uint64) string {
	t.Helper()
	var b strings.Builder
	_, err := s.log.Fold(t.Context(), filter, after, func(e events.Event) error {
		data, err := json.Marshal(e)
		name := e.Subject.Kind
		if e.Malformed != nil {
			name = "malformed"
		}
		fmt.Fprintf(&b, "id: %d\nevent: %s\ndata: %s\n\n", e.Seq, name, data)
		return err
	})
	check(t, err)
	return b.String()
}

// fill appends n OpenCode events of different sizes to a chat: one is too large for a message.
func (s *system) fill(t testing.TB, chat string, n int) {
	t.Helper()
	var all []events.Event
	for i := range n {
		size := i % 40 * 20
		if i == n/2 {
			size = 40 << 10
		}
		body, err := json.Marshal(map[string]string{"text": strings.Repeat("\u00e9\r\n<\u2028", size)})
		check(t, err)
		e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), int64(i), events.OpenCode{Type: "message.part.updated", Properties: body})
		check(t, err)
		all = append(all, e)
	}
	_, err := s.log.AppendAll(t.Context(), all)
	check(t, err)
}

func eventsOf(chat string) string { return "/api/chats/" + chat + "/events" }

func TestHistoryIsTheLogThenTheMarkerThenWhatComes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, token := s.user(t, "ada", account.User)
	chat, other := s.chat(t, token, "mine"), s.chat(t, token, "another")
	s.fill(t, chat, 50)
	s.fill(t, other, 2)
	stream := s.stream(t, token, eventsOf(chat), "")
	want, got := s.wire(t, events.ChatFilter(chat), 0), ""
	for len(got) < len(want) {
		raw, _, err := stream.frame()
		is.NoErr(err)
		got += raw
	}
	is.Equal(got, want)
	marker := stream.next(t)
	is.Equal(marker["event"], "caught-up")
	_, hasID := marker["id"]
	is.True(!hasID) // what a client resumes from is an event
	var at struct{ Seq uint64 }
	is.NoErr(json.Unmarshal([]byte(marker["data"]), &at))
	last, err := s.log.Last(t.Context())
	is.NoErr(err)
	is.True(at.Seq > 50 && at.Seq <= last)
	s.fill(t, other, 2)
	s.append(t, chat, events.TurnLost{Session: "ses_1"})
	raw, fields, err := stream.frame()
	is.NoErr(err)
	is.Equal(fields["event"], "turn.lost")
	is.Equal(raw, s.wire(t, events.ChatSubject(chat, "turn.lost"), 0)) // live and stored are the same bytes
}

func TestHistoryThatIsKilledAndResumedIsByteEqual(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, token := s.user(t, "ada", account.User)
	chat := s.chat(t, token, "mine")
	s.fill(t, chat, 300)
	go s.fill(t, chat, 300) // while it is read
	random := rand.New(rand.NewPCG(1, 2))
	got, last, end := "", "", ""
	for got == "" || !strings.Contains(got, end) || end == "" {
		resp := s.open(t, token, eventsOf(chat), last)
		is.Equal(resp.StatusCode, http.StatusOK)
		cut := &cutReader{resp.Body, random.IntN([]int{2_000, 50_000, 2_000_000}[random.IntN(3)])}
		for stream := (sse{bufio.NewReader(cut)}); ; {
			raw, fields, err := stream.frame()
			if err != nil || fields["event"] == "caught-up" && end == "" {
				break
			}
			if fields["event"] != "caught-up" {
				got, last = got+raw, fields["id"]
			}
			if end != "" && strings.HasSuffix(got, end) {
				break
			}
		}
		resp.Body.Close()
		if count := strings.Count(got, "\n\n"); count > 600 && end == "" {
			s.append(t, chat, events.TurnLost{Session: "ses_end"})
			end = s.wire(t, events.ChatSubject(chat, "turn.lost"), 0)
		}
	}
	is.True(got == s.wire(t, events.ChatFilter(chat), 0)) // every byte of it, once
}

// cutReader gives so many bytes, and then no more.
type cutReader struct {
	io.Reader
	left int
}

func (c *cutReader) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := c.Reader.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

func TestNobodyReadsTheHistoryOfAnothers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ada := s.user(t, "ada", account.User)
	bob, eve := s.user(t, "eve", account.User)
	chat := s.chat(t, ada, "mine")
	for _, path := range []string{eventsOf(chat), "/api/chats/" + chat + "/replay"} {
		is.Equal(s.open(t, eve, path, "1").StatusCode, http.StatusNotFound)
		is.Equal(s.open(t, eve, path+"?after=0", "").StatusCode, http.StatusNotFound)
		is.Equal(s.open(t, "", path, "1").StatusCode, http.StatusUnauthorized)
	}
	is.Equal(s.open(t, ada, eventsOf("*"), "").StatusCode, http.StatusNotFound)
	is.Equal(s.open(t, ada, eventsOf("%3E"), "").StatusCode, http.StatusNotFound)
	is.Equal(s.open(t, ada, "/api/events", "").StatusCode, http.StatusForbidden)
	is.Equal(s.open(t, ada, "/api/events?subject="+events.ChatFilter(chat), "").StatusCode, http.StatusForbidden)

	stream := s.stream(t, ada, eventsOf(chat), "")
	s.append(t, chat, events.ChatUpdated{User: &bob})
	for {
		fields, last := stream.next(t), false
		if last = fields["event"] == "updated"; last {
			break
		}
	}
	_, _, err := stream.frame()
	is.Equal(err, io.EOF) // the chat is another's now
	is.Equal(s.open(t, ada, eventsOf(chat), "").StatusCode, http.StatusNotFound)
}

func TestPlaceToResumeFromIsChecked(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	_, token := s.user(t, "ada", account.Admin)
	chat := s.chat(t, token, "mine")
	for _, c := range []struct {
		query, lastEventID, field string
		status                    int
	}{
		{"after=-1", "", "after", 400}, {"after=x", "", "after", 400}, {"after=1.0", "", "after", 400}, {"after=99999999999999999999", "", "after", 400},
		{"after=x", "1", "after", 400}, {"after=1", "evt_1", "Last-Event-ID", 400}, {"", "-1", "Last-Event-ID", 400},
		{"after=18446744073709551615", "", "after", 409}, {"after=0", "4000000", "Last-Event-ID", 409},
		{"deltas=yes", "", "deltas", 400}, {"after=4000000", "1", "", 200}, {"after=0", "", "", 200}, {"deltas=1", "", "", 200},
	} {
		for _, path := range []string{eventsOf(chat), "/api/events"} {
			resp := s.open(t, token, path+"?"+c.query, c.lastEventID)
			if resp.StatusCode != c.status {
				t.Errorf("%s?%s %s: %s", path, c.query, c.lastEventID, resp.Status)
			}
			if c.status == http.StatusOK {
				continue
			}
			var p struct{ Data map[string]any }
			if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || p.Data[c.field] == nil {
				t.Errorf("%s?%s %s: %v %v", path, c.query, c.lastEventID, p, err)
			}
		}
	}
	for _, subject := range []string{"evt", ">", "delta.>", "evt..x", "evt.>.x", "$JS.API.>", "evt.a%20b", "evt.chat%0d%0aPUB"} {
		if status, p := s.call(t, token, "GET", "/api/events?subject="+subject, nil); status != 400 || p["data"].(map[string]any)["subject"] == nil {
			t.Errorf("%s: %d %v", subject, status, p)
		}
	}
}

func TestWholeLogIsStreamedByFilterAndMalformedMessagesShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, token := s.user(t, "ada", account.Admin)
	chat := s.chat(t, token, "mine")
	is.NoErr(s.conn.Publish("evt.chat."+chat+".created", []byte("no event\r\n\r\nid: 1\xff")))
	is.NoErr(s.conn.Flush())
	s.append(t, chat, events.TurnLost{Session: "ses_1"})
	for filter, path := range map[string]string{
		events.AllEvents: "/api/events", "evt.user.>": "/api/events?subject=evt.user.%3E", "evt.*.*.created": "/api/events?subject=evt.*.*.created",
		events.ChatFilter(chat): eventsOf(chat),
	} {
		stream, want, got := s.stream(t, token, path, ""), s.wire(t, filter, 0), ""
		for raw, fields, err := stream.frame(); fields["event"] != "caught-up"; raw, fields, err = stream.frame() {
			is.NoErr(err)
			got += raw
		}
		is.Equal(got, want)
		is.Equal(strings.Contains(got, "event: malformed\n"), filter != "evt.user.>")
	}
}
