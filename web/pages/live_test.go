package pages_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// live is the stream of a page.
type live struct {
	webtest.SSE
	t    *testing.T
	last string // id of the last message
}

// follow opens the stream of a page as the page does.
func (b *browser) follow(t *testing.T, page shown) *live {
	t.Helper()
	_, rest, found := strings.Cut(page.body, `data-live="`)
	if !found {
		t.Fatalf("the page has no stream: %s", page.body)
	}
	path, _, _ := strings.Cut(rest, `"`)
	return b.stream(t, strings.ReplaceAll(path, "&amp;", "&"), "")
}

func (b *browser) stream(t *testing.T, path, lastEventID string) *live {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a text that never arrives fails the test
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", b.url+path, nil)
	webtest.Check(t, err)
	if lastEventID != "" {
		r.Header.Set("Last-Event-ID", lastEventID)
	}
	resp, err := b.Client.Do(r)
	webtest.Check(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("stream %s: %d", path, resp.StatusCode)
	}
	return &live{SSE: webtest.SSE{Reader: bufio.NewReader(resp.Body)}, t: t}
}

// next returns the next event that is no ping.
func (l *live) next() (name, data string) {
	l.t.Helper()
	for {
		_, fields, err := l.Frame()
		if err != nil {
			l.t.Fatal(err)
		}
		if id, has := fields["id"]; has {
			l.last = id
		}
		if fields["event"] != "ping" {
			return fields["event"], fields["data"]
		}
	}
}

// elements returns the elements of the next message.
func (l *live) elements() (html string) {
	l.t.Helper()
	name, data := l.next()
	if name != "message" {
		l.t.Fatalf("got %s %s", name, data)
	}
	webtest.Check(l.t, json.Unmarshal([]byte(data), &html))
	return html
}

// until returns all elements up to those that contain a text.
func (l *live) until(text string) (all string) {
	l.t.Helper()
	for !strings.Contains(all, text) {
		all += l.elements()
	}
	return all
}

func TestAChatIsFollowedFromTheMomentOfItsPage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	submitMessage(t, s, chat, "msg_01", written("before the page"))
	page := b.visit(t, "/chats/"+chat)
	submitMessage(t, s, chat, "msg_02", written("after the page"))
	stream := b.follow(t, page)
	all := stream.until("after the page")
	is.True(!strings.Contains(all, "before the page"))
	expect.Contains(t, all, `id="head"`)

	id := needed(t, s, chat, "per_1", "make everything")
	expect.Contains(t, stream.until("make everything"), `id="r-`+id+`"`)
	missed := stream.last
	status, _ := s.Call(t, token, "PATCH", "/api/collections/permissions/records/"+id, map[string]any{"status": "denied"})
	is.Equal(status, http.StatusOK)
	expect.Contains(t, stream.until("denied by"), "ada@example.org")
	s.AppendOpenCode(t, chat, "message.removed", `{"sessionID":"ses_`+chat+`","messageID":"msg_02"}`)
	expect.Contains(t, stream.until("data-removed"), "<i id=\"m-")

	resumed := b.stream(t, "/chats/"+chat+"/live?after=1&from=0", missed)
	all = resumed.elements()
	is.True(strings.Contains(all, "denied by") && strings.Contains(all, "data-removed"))
	is.True(!strings.Contains(all, "before the page"))
	is.Equal(resumed.last, stream.last)
}

func TestTextIsSentWhileItIsWritten(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	s.Assistant(t, chat, "msg_1", "")
	s.TextPart(t, chat, "msg_1", "prt_1", "", "")
	s.Fragment(t, chat, "msg_1", "prt_1", "before the page, ")
	page := b.visit(t, "/chats/"+chat)
	expect.Contains(t, page.body, `data-part="prt_1"`)
	stream := b.follow(t, page)
	text := ""
	for _, piece := range []string{"after it\u202e, ", "\u009b2J\n"} {
		s.Fragment(t, chat, "msg_1", "prt_1", piece)
	}
	for !strings.HasSuffix(text, "\n") {
		name, data := stream.next()
		if name == "text" {
			var f struct{ Part, Text string }
			webtest.Check(t, json.Unmarshal([]byte(data), &f))
			is.Equal(f.Part, "prt_1")
			text += f.Text
		}
	}
	is.Equal(text, "before the page, after it<U+202E>, <U+009B>2J\n")
	s.TextPart(t, chat, "msg_1", "prt_1", "**whole**", `,"time":{"end":2}`)
	for all := ""; !strings.Contains(all, "<strong>whole</strong>"); {
		_, all = stream.next()
	}
}

func TestWhatACommandPrintsIsShownWhileItRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	tool := func(status, more string) {
		s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_1","messageID":"msg_1","sessionID":"ses_own","type":"tool","tool":"bash","callID":"x1","state":{"status":"`+status+`","input":{"command":"make"}`+more+`}}}`)
	}
	s.Assistant(t, chat, "msg_1", "")
	tool("running", "")
	s.AppendExecution(t, chat, "x1", nil)
	print := func(text string) {
		webtest.Check(t, s.Log.PublishDelta(log.Delta{Subject: events.ExecDeltaSubject(chat, "x1"), Type: log.ExecOutput,
			Stream: "stdout", Data: []byte(text)}))
	}
	print("one\x1b[2K\n")
	page := b.visit(t, "/chats/"+chat)
	expect.Contains(t, page.body, `<pre id="part-output-x1" class="writing output">`)
	stream := b.follow(t, page)
	print("two\xff\n")
	text := ""
	for !strings.Contains(text, "two") {
		if name, data := stream.next(); name == "text" {
			var f struct{ Part, Text string }
			webtest.Check(t, json.Unmarshal([]byte(data), &f))
			is.Equal(f.Part, "output-x1")
			text += f.Text
		}
	}
	is.Equal(text, "one␛[2K\ntwo\ufffd\n")
	for range 3 {
		print(strings.Repeat("x", 40<<10))
	}
	for !strings.Contains(text, "The command prints more.") { // and no more than that
		if name, data := stream.next(); name == "text" {
			text += data
		}
	}
	is.True(len(text) < 100<<10)
	tool("completed", `,"output":"one\\ntwo"`)
	for all := ""; !strings.Contains(all, "part-prt_1"); {
		_, all = stream.next()
		expect.Lacks(t, all, "writing output")
	}
}

func TestTheListsAreFollowed(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chats, requests := b.follow(t, b.visit(t, "/")), b.follow(t, b.visit(t, "/requests"))
	chat := s.Chat(t, token, "Tidy up")
	chats.until("Tidy up")
	needed(t, s, chat, "per_1", "make everything")
	requests.until("make everything")
	expect.Contains(t, chats.until(`<b class="count">1</b>`), "requests-link")
}

func TestAStreamEndsWithItsRights(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	bob, _ := s.User(t, "bob", "user")
	_, root := s.User(t, "root", "admin")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	page := b.visit(t, "/chats/"+chat)
	reloads := func(l *live) {
		t.Helper()
		for name := ""; name != "reload"; {
			var data string
			name, data = l.next()
			if strings.Contains(data, "secret") {
				t.Fatal("a page got what its account may not see")
			}
		}
	}
	stream := b.follow(t, page)
	stream.elements()
	status, _ := s.Call(t, root, "PATCH", "/api/collections/chats/records/"+chat,
		map[string]any{"user": bob, "title": "secret"})
	is.Equal(status, http.StatusOK)
	reloads(stream)
	reloads(b.follow(t, page))

	ownChat := s.Chat(t, token, "Mine")
	own := b.visit(t, "/chats/"+ownChat)
	stream = b.follow(t, own)
	stream.elements()
	b.submit(t, "/logout", nil)
	for err := error(nil); err == nil; {
		_, _, err = stream.Frame()
	}
	reloads(b.follow(t, own)) // which leads to the login
}

func TestAPageOfAnotherLogIsLoadedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	name, _ := b.stream(t, "/chats/"+chat+"/live?after="+strconv.FormatUint(s.Model.Seq()+1000, 10), "").next()
	is.Equal(name, "reload")
}
