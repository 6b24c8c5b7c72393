package web_test

import (
	"bufio"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

func TestHistorySendsStoredEventsThenTheMarkerThenNewEvents(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat, other := s.Chat(t, token, "mine"), s.Chat(t, token, "another")
	s.Fill(t, chat, 50)
	s.Fill(t, other, 2)
	stream := s.Stream(t, token, webtest.EventsOf(chat), "")
	want, got := s.Wire(t, events.ChatFilter(chat), 0), ""
	for len(got) < len(want) {
		raw, _, err := stream.Frame()
		is.NoErr(err)
		got += raw
	}
	is.Equal(got, want)
	marker := stream.Next(t)
	is.Equal(marker["event"], "caught-up")
	_, hasID := marker["id"]
	is.True(!hasID) // what a client resumes from is an event
	var at struct{ Seq uint64 }
	is.NoErr(json.Unmarshal([]byte(marker["data"]), &at))
	last, err := s.Log.Last(t.Context())
	is.NoErr(err)
	is.True(at.Seq > 50 && at.Seq <= last)
	s.Fill(t, other, 2)
	s.Append(t, chat, events.TurnLost{Session: "ses_1"})
	raw, fields, err := stream.Frame()
	is.NoErr(err)
	is.Equal(fields["event"], "turn.lost")
	is.Equal(raw, s.Wire(t, events.ChatSubject(chat, "turn.lost"), 0)) // live and stored are the same bytes
}

func TestInterruptedAndResumedHistoryIsComplete(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat := s.Chat(t, token, "mine")
	s.Fill(t, chat, 100)
	go s.Fill(t, chat, 100) // while a client reads
	random := rand.New(rand.NewPCG(1, 2))
	got, last, end := "", "", ""
	for got == "" || !strings.Contains(got, end) || end == "" {
		resp := s.Open(t, token, webtest.EventsOf(chat), last)
		is.Equal(resp.StatusCode, http.StatusOK)
		cut := &cutReader{resp.Body, random.IntN([]int{2_000, 50_000, 2_000_000}[random.IntN(3)])}
		for stream := (webtest.SSE{Reader: bufio.NewReader(cut)}); ; {
			raw, fields, err := stream.Frame()
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
		if count := strings.Count(got, "\n\n"); count > 200 && end == "" {
			s.Append(t, chat, events.TurnLost{Session: "ses_end"})
			end = s.Wire(t, events.ChatSubject(chat, "turn.lost"), 0)
		}
	}
	is.True(got == s.Wire(t, events.ChatFilter(chat), 0)) // every byte, once
}

// cutReader returns a number of bytes and then io.EOF.
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

func TestHistoryNeedsAccessToTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ada := s.User(t, "ada", account.User)
	bob, eve := s.User(t, "eve", account.User)
	chat := s.Chat(t, ada, "mine")
	for _, path := range []string{webtest.EventsOf(chat), "/api/chats/" + chat + "/replay"} {
		is.Equal(s.Open(t, eve, path, "1").StatusCode, http.StatusNotFound)
		is.Equal(s.Open(t, eve, path+"?after=0", "").StatusCode, http.StatusNotFound)
		is.Equal(s.Open(t, "", path, "1").StatusCode, http.StatusUnauthorized)
	}
	is.Equal(s.Open(t, ada, webtest.EventsOf("*"), "").StatusCode, http.StatusNotFound)
	is.Equal(s.Open(t, ada, webtest.EventsOf("%3E"), "").StatusCode, http.StatusNotFound)
	is.Equal(s.Open(t, ada, "/api/events", "").StatusCode, http.StatusForbidden)
	is.Equal(s.Open(t, ada, "/api/events?subject="+events.ChatFilter(chat), "").StatusCode, http.StatusForbidden)

	stream := s.Stream(t, ada, webtest.EventsOf(chat), "")
	s.Append(t, chat, events.ChatUpdated{User: &bob})
	for {
		fields, last := stream.Next(t), false
		if last = fields["event"] == "updated"; last {
			break
		}
	}
	_, _, err := stream.Frame()
	is.Equal(err, io.EOF) // the chat now belongs to another account
	is.Equal(s.Open(t, ada, webtest.EventsOf(chat), "").StatusCode, http.StatusNotFound)
}

func TestSequenceToResumeAfterIsChecked(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.Admin)
	chat := s.Chat(t, token, "mine")
	for _, c := range []struct {
		query, lastEventID, field string
		status                    int
	}{
		{"after=-1", "", "after", 400}, {"after=x", "", "after", 400}, {"after=1.0", "", "after", 400}, {"after=99999999999999999999", "", "after", 400},
		{"after=x", "1", "after", 400}, {"after=1", "evt_1", "Last-Event-ID", 400}, {"", "-1", "Last-Event-ID", 400},
		{"after=18446744073709551615", "", "after", 409}, {"after=0", "4000000", "Last-Event-ID", 409},
		{"deltas=yes", "", "deltas", 400}, {"after=4000000", "1", "", 200}, {"after=0", "", "", 200}, {"deltas=1", "", "", 200},
	} {
		for _, path := range []string{webtest.EventsOf(chat), "/api/events"} {
			resp := s.Open(t, token, path+"?"+c.query, c.lastEventID)
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
	for _, subject := range []string{"evt", ">", "delta.>", "evt..x", "evt.>.x", "$JS.API.>", "evt.a%20b",
		"evt.chat%0d%0aPUB"} {
		if status, p := s.Call(t, token, "GET", "/api/events?subject="+subject, nil); status != 400 ||
			p["data"].(map[string]any)["subject"] == nil {
			t.Errorf("%s: %d %v", subject, status, p)
		}
	}
}

func TestWholeLogIsStreamedByFilterAndMalformedMessagesShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.Admin)
	chat := s.Chat(t, token, "mine")
	is.NoErr(s.Conn.Publish("evt.chat."+chat+".created", []byte("no event\r\n\r\nid: 1\xff")))
	is.NoErr(s.Conn.Flush())
	s.Append(t, chat, events.TurnLost{Session: "ses_1"})
	for filter, path := range map[string]string{
		events.AllEvents: "/api/events", "evt.user.>": "/api/events?subject=evt.user.%3E", "evt.*.*.created": "/api/events?subject=evt.*.*.created",
		events.ChatFilter(chat): webtest.EventsOf(chat),
	} {
		stream, want, got := s.Stream(t, token, path, ""), s.Wire(t, filter, 0), ""
		for raw, fields, err := stream.Frame(); fields["event"] != "caught-up"; raw, fields, err = stream.Frame() {
			is.NoErr(err)
			got += raw
		}
		is.Equal(got, want)
		is.Equal(strings.Contains(got, "event: malformed\n"), filter != "evt.user.>")
	}
}

func TestHistorySendsOnlyTheKindsThatAreAskedFor(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat := s.Chat(t, token, "mine")
	happen := func() {
		s.Append(t, chat, events.ModelReplaced{Reason: "another"})
		s.Append(t, chat, events.TurnLost{Session: "ses_1"})
		s.Append(t, chat, events.ExecFinished{Exec: "exec1"})
	}
	happen()
	stream := s.Stream(t, token, webtest.EventsOf(chat)+"?kinds=turn.lost,exec.*", "")
	for _, kind := range []string{"turn.lost", "exec.finished", "caught-up"} {
		is.Equal(stream.Next(t)["event"], kind)
	}
	happen()
	is.Equal(stream.Next(t)["event"], "turn.lost")
}
