package pages_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/net/html"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// replayed is a chat with a message, two requests, one of which was approved, and a command that ran.
type replayed struct {
	*webtest.System
	*browser
	token, chat string
	first       uint64 // sequence of its first event
	asked       uint64 // of the first request, which waits for a person
	decided     uint64 // of its approval
}

func newReplayed(t *testing.T) (r replayed) {
	t.Helper()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	r = replayed{System: s, browser: loggedIn(t, s, "ada"), token: token, first: s.Model.Seq() + 1}
	r.chat = s.Chat(t, token, "Tidy <up>")
	s.Append(t, r.chat, events.SessionBound{Session: "ses_" + r.chat, Directory: "/workspace"})
	s.Append(t, r.chat, events.MessageSubmitted{Message: "m1", Parts: []events.Part{{Type: "text", Text: "please tidy"}}})
	s.Append(t, r.chat, events.MessageFailed{Message: "m1", Domain: "infrastructure", Error: "no engine"})
	submitMessage(t, s, r.chat, "msg_1", written("I **will**."), map[string]any{"type": "tool", "tool": "bash",
		"callID": "call_per_1", "state": map[string]any{"status": "running",
			"input": map[string]any{"command": "rm -r build"}}})
	request := needed(t, s, r.chat, "per_1", "rm -r build")
	r.asked = s.Model.Seq()
	status, _ := s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+request,
		webtest.Object{"status": "authorized"})
	if status != http.StatusOK {
		t.Fatalf("approve: %d", status)
	}
	r.decided = s.Model.Seq()
	s.Append(t, r.chat, events.ExecRequested{Exec: "exec1", Permission: "per_1", Session: "ses_" + r.chat,
		Call: "call_per_1", Command: "rm -r build", Cwd: "/workspace"})
	s.Append(t, r.chat, events.ExecFinished{Exec: "exec1", ExitCode: 3, DurationMS: 1500,
		Stdout: events.Output{Bytes: 24, Text: "gone\n\x1b]52;c;AAAA\a\x1b[31mred"}})
	submitMessage(t, s, r.chat, "msg_2", written("Done."))
	needed(t, s, r.chat, "per_2", "touch x")
	s.AppendOpenCode(t, r.chat, "question.asked", `{"id":"que_1","sessionID":"ses_`+r.chat+
		`","questions":[{"question":"Which?","header":"Colour","options":[{"label":"Red"},{"label":"Blue"}]}]}`)
	return r
}

func (r replayed) at(t *testing.T, seq uint64) string {
	t.Helper()
	page := r.browser.visit(t, fmt.Sprintf("/chats/%s/replay?seq=%d", r.chat, seq))
	is.New(t).Equal(page.status, http.StatusOK)
	return page.body
}

// entriesOf returns the HTML of the conversation on a page without what changes something: forms, menus, and the
// choices of a question.
func entriesOf(t *testing.T, page string) string {
	t.Helper()
	document, err := html.Parse(strings.NewReader(page))
	webtest.Check(t, err)
	var entries *html.Node
	var drop []*html.Node
	for n := range document.Descendants() {
		for _, a := range n.Attr {
			if a.Key == "id" && a.Val == "entries" {
				entries = n
			}
			if a.Key == "class" && slices.ContainsFunc(strings.Fields(a.Val), func(c string) bool {
				return slices.Contains([]string{"menu", "more", "decide", "answer", "choices", "new-line"}, c)
			}) {
				drop = append(drop, n)
			}
		}
		if n.Data == "form" {
			drop = append(drop, n)
		}
	}
	for _, n := range drop {
		if n.Parent != nil {
			n.Parent.RemoveChild(n)
		}
	}
	var b strings.Builder
	webtest.Check(t, html.Render(&b, entries))
	return strings.Join(strings.Fields(b.String()), " ")
}

func TestTheLastMomentOfAReplayIsTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := newReplayed(t)
	live := r.browser.visit(t, "/chats/"+r.chat).body
	last := r.browser.visit(t, "/chats/"+r.chat+"/replay").body
	is.Equal(entriesOf(t, last), entriesOf(t, live))
	expect.Contains(t, last, "approved by ada@example.org")
	is.Equal(strings.Count(last, "<form"), 2) // to log out, and the scrubber
	is.Equal(strings.Count(last, "<textarea")+strings.Count(last, `type="radio"`), 0)
	expect.Contains(t, live, `href="/chats/`+r.chat+`/replay"`)
}

func TestAReplayShowsTheChatAsItWasAndWhy(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := newReplayed(t)
	page := r.at(t, r.asked)
	for _, text := range []string{"waits for you", "rm -r build", "permission.referred", "no rule allows it",
		"event 9 of 17", fmt.Sprintf(`replay?seq=%d" aria-label="Next event"`, r.decided)} {
		expect.Contains(t, page, text)
	}
	for _, text := range []string{"approved by", "Done.", "touch x"} {
		expect.Lacks(t, page, text)
	}
	page = r.at(t, r.decided)
	for _, text := range []string{"approved by ada@example.org", "permission.decided", `class="event decision"`,
		"<dt>decision</dt><dd>approved</dd>", "<dt>by</dt><dd>ada@example.org</dd>",
		fmt.Sprintf(`replay?seq=%d" data-step>#%[1]d opencode.permission.asked</a>`, r.asked-1)} {
		expect.Contains(t, page, text)
	}
	// why the command ran
	expect.Contains(t, r.at(t, r.decided+1), fmt.Sprintf(`replay?seq=%d" data-step>#%[1]d permission.decided</a>`,
		r.decided))
	page = r.at(t, r.decided+2)
	for _, text := range []string{"exec.finished", "exit code 3 after 1.5s",
		"<dt>allowed by</dt><dd>ada@example.org</dd>", "<dt>command</dt><dd>rm -r build</dd>", "/executions/exec1/cast",
		fmt.Sprintf(`data-step>#%d exec.requested</a>`, r.decided+1)} {
		expect.Contains(t, page, text)
	}
	first := r.at(t, r.first)
	expect.Contains(t, first, `id="earlier" aria-label="Previous event" aria-disabled="true"`)
	is.Equal(strings.Count(first, "<article"), 0)
	is.Equal(r.browser.visit(t, "/chats/"+r.chat+"/replay?event=1").body, first)
	is.Equal(r.browser.visit(t, "/chats/"+r.chat+"/replay?event=0").body, first)
	is.Equal(r.at(t, 1), first) // before the chat began
	is.Equal(r.at(t, 99999), r.browser.visit(t, "/chats/"+r.chat+"/replay").body)
	is.Equal(r.browser.visit(t, "/chats/"+r.chat+"/replay?seq=x").status, http.StatusBadRequest)
	is.Equal(r.browser.visit(t, "/chats/none/replay").status, http.StatusNotFound)
}

func TestMomentsBehindEachOtherAreWhatAPageLacks(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := newReplayed(t)
	got := r.browser.visit(t, fmt.Sprintf("/chats/%s/replay/moments?seq=%d&more=99", r.chat, r.asked))
	var all []struct {
		Number   int
		Sequence uint64
		HTML     string
	}
	is.NoErr(json.Unmarshal([]byte(got.body), &all))
	is.Equal(len(all), 9) // to the end
	is.Equal([]any{all[0].Number, all[0].Sequence}, []any{9, r.asked})
	expect.Contains(t, all[0].HTML, `id="entries"`)
	expect.Contains(t, all[0].HTML, "waits for you")
	expect.Lacks(t, all[1].HTML, `id="entries"`)
	expect.Lacks(t, all[1].HTML, "please tidy") // which did not change
	expect.Contains(t, all[1].HTML, "approved by ada@example.org")
	expect.Contains(t, all[1].HTML, "permission.decided")
}

func TestAChatIsExported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := newReplayed(t)
	export := func(format string) shown {
		page := r.browser.visit(t, fmt.Sprintf("/chats/%s/export/%s?at=%d", r.chat, format, r.decided+2))
		is.Equal(page.status, http.StatusOK)
		is.Equal(page.header.Get("Content-Disposition"), `attachment; filename="chat-`+r.chat+"."+format+`"`)
		status, answer := r.Raw(t, r.token, "GET", fmt.Sprintf("/api/chats/%s/export/%s?at=%d", r.chat, format, r.decided+2),
			nil)
		is.Equal([]any{status, string(answer)}, []any{http.StatusOK, page.body}) // over the API the same
		return page
	}
	lines := strings.Split(strings.TrimSpace(export("jsonl").body), "\n")
	is.Equal(len(lines), 12)
	var last struct {
		Type     string
		Sequence uint64
	}
	is.NoErr(json.Unmarshal([]byte(lines[11]), &last))
	is.Equal(last.Sequence, r.decided+2)

	page := export("html").body
	for _, text := range []string{"Tidy &lt;up&gt;", "I <strong>will</strong>.", "approved by ada@example.org",
		"--ground:", "default-src 'none'"} {
		expect.Contains(t, page, text)
	}
	for _, text := range []string{"<script", "<link", "<form", "<img", "src=", "Done.", `href="/`} {
		expect.Lacks(t, page, text)
	}
	is.Equal(entriesOf(t, page), entriesOf(t, r.at(t, r.decided+2)))

	recording := export("cast").body
	alone := r.browser.visit(t, "/executions/exec1/cast").body
	for _, text := range []string{`{"version":2,"width":80,"height":24,"timestamp":`,
		`[0.000000,"o","\u001b[1m$ rm -r build\u001b[0m\r\n"]`, `[1.500000,"o","gone\r\n\u001b[31mred"]`, "[exit 3]"} {
		expect.Contains(t, recording, text)
		expect.Contains(t, alone, text)
	}
	expect.Lacks(t, recording, "AAAA") // the clipboard
	is.Equal(r.browser.visit(t, "/chats/"+r.chat+"/export/pdf").status, http.StatusNotFound)
}

func TestAReplayIsForThoseWhoSeeTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := newReplayed(t)
	_, token := r.User(t, "eve", "user")
	eve := loggedIn(t, r.System, "eve")
	for _, path := range []string{"/chats/" + r.chat + "/replay", "/chats/" + r.chat + "/replay/moments",
		"/chats/" + r.chat + "/export/html", "/chats/" + r.chat + "/export/jsonl", "/chats/" + r.chat + "/export/cast",
		"/executions/exec1/cast"} {
		is.Equal(eve.visit(t, path).status, http.StatusNotFound)
		is.True(strings.HasPrefix(newBrowser(t, r.System).visit(t, path).path, "/login?next="))
	}
	for _, path := range []string{"/api/chats/" + r.chat + "/export/html", "/api/executions/exec1/cast"} {
		status, _ := r.Call(t, token, "GET", path, nil)
		is.Equal(status, http.StatusNotFound)
	}
}

// articles matches the place of a message in the order of a chat.
var articles = regexp.MustCompile(`data-order="[^"]+" class="message`)

func TestAReplayOfALongChatIsBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "long")
	s.Append(t, chat, events.SessionBound{Session: "ses_" + chat, Directory: "/"})
	var all []events.Event
	for i := range 500 {
		body := fmt.Sprintf(`{"sessionID":"ses_%s","info":{"id":"msg_%04d","sessionID":"ses_%[1]s","role":"assistant","time":{"created":1,"completed":2}}}`, chat, i)
		event, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1,
			events.OpenCode{Type: "message.updated", Properties: []byte(body)})
		is.NoErr(err)
		ran, err := events.New(chat, events.ActorSystem, events.ExecRequested{Exec: fmt.Sprint("exec", i),
			Session: "ses_" + chat, Command: "make", Cwd: "/"})
		is.NoErr(err)
		all = append(all, event, ran)
	}
	seq, err := s.Log.AppendAll(t.Context(), all)
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	page := b.visit(t, "/chats/"+chat+"/replay?event=800").body
	is.Equal(strings.Count(page, "<article"), 200)
	expect.Contains(t, page, "event 800 of 1002")
	is.True(len(page) < 100_000)
	address := regexp.MustCompile(`id="earlier-messages" href="([^"]+)"`)
	shown := articles.FindAllString(page, -1)
	for link := address.FindStringSubmatch(page); link != nil; link = address.FindStringSubmatch(page) {
		page = b.visit(t, html.UnescapeString(link[1])).body
		shown = append(articles.FindAllString(page, -1), shown...)
		expect.Contains(t, page, "event 800 of 1002")
	}
	is.Equal(len(shown), 399)                 // the messages of event 800
	is.True(slices.IsSorted(shown))           // in order
	is.Equal(len(slices.Compact(shown)), 399) // each once
	var moments []json.RawMessage
	is.NoErr(json.Unmarshal([]byte(b.visit(t, "/chats/"+chat+"/replay/moments?event=10&more=100000").body), &moments))
	is.Equal(len(moments), 64)
}
