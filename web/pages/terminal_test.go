package pages_test

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestATerminalShowsTheCommandsOfAChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	ended := func(exec string, code int, stdout, stderr string) {
		s.AppendExecution(t, chat, exec, &events.ExecFinished{
			ExitCode: code, DurationMS: 1200, Stdout: events.Output{Bytes: int64(len(stdout)), Text: stdout}, Stderr: events.Output{Bytes: int64(len(stderr)), Text: stderr},
		})
	}
	ended("good", 0, "\x1b[1;32mok\x1b[0m <b>\x1b[2J\u202e\n", "")
	s.AppendExecution(t, chat, "left", &events.ExecFinished{Left: &events.LeftProcesses{Processes: 2,
		Programs: []string{"no\u202ede", "sleep"}}})
	ended("bad", 3, "", "10%\r20%\n")
	s.AppendExecution(t, chat, "gone", &events.ExecFinished{Reason: "lost", Error: "the worker is gone"})
	s.Append(t, chat, events.ExecRefused{Exec: "no", Session: "ses_1", Call: "no", Command: "rm x", Cwd: "/",
		Reason: "a person said no"})
	s.Append(t, chat, events.ExecRequested{Exec: "shell", Cwd: "/", Terminal: true, Private: true})

	page := b.visit(t, "/chats/"+chat+"/terminal")
	is.Equal(page.status, http.StatusOK)
	for _, text := range []string{
		`<span class="bold green">ok</span> &lt;b&gt;<b class="hidden">␛</b>[2J<b class="hidden">&lt;U+202E&gt;</b>`,
		`exit code 0`, `1.2 s`,
		`<b class="hidden">␍</b>20%`, `exit code 3`, "lost: nothing is known about its end", "the worker is gone", "refused",
		"a person said no", "shell of a person",
		"Its output is not recorded.",
		`The command left 2 processes, which the sandbox ended: no<b class="hidden">&lt;U+202E&gt;</b>de, sleep. Start a server`,
	} {
		expect.Contains(t, page.body, text)
	}
	is.Equal(regexp.MustCompile(`id="x-(\w+)"`).FindAllString(page.body, -1),
		[]string{`id="x-good"`, `id="x-left"`, `id="x-bad"`, `id="x-gone"`, `id="x-no"`, `id="x-shell"`})
	expect.Contains(t, b.visit(t, "/chats/"+chat).body, `href="/chats/`+chat+`/terminal"`)

	is.Equal(newBrowser(t, s).visit(t, "/chats/"+chat+"/terminal").path, "/login?next=%2Fchats%2F"+chat+"%2Fterminal")
	other := loggedIn(t, s, "bob")
	for _, path := range []string{"/terminal", "/ports/3000"} {
		is.Equal(other.visit(t, "/chats/"+chat+path).status, http.StatusNotFound)
	}
}

func TestATerminalFollowsWhatRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	s.AppendExecution(t, chat, "one", nil)
	page := b.visit(t, "/chats/"+chat+"/terminal")
	expect.Contains(t, page.body, `<pre id="part-output-one" class="writing output"></pre>`)
	stream := b.follow(t, page)
	stream.until("requests-link")
	webtest.Check(t, s.Log.PublishDelta(log.Delta{
		Subject: events.ExecDeltaSubject(chat, "one"), Type: log.ExecOutput, Stream: "stdout", Data: []byte("\x1b[31mhel\x1b[0mlo\x1b[2J\n"),
	}))
	name, data := stream.next()
	is.Equal([]string{name, data}, []string{"text", `{"part":"output-one","text":"hello␛[2J\n"}`})
	s.AppendExecution(t, chat, "two", nil)
	expect.Contains(t, stream.until(`id="x-two"`), "data-order=")
	s.Append(t, chat, events.ExecFinished{Exec: "one", ExitCode: 0, Stdout: events.Output{Bytes: 6, Text: "hello\n"}})
	all := stream.until("exit code 0")
	expect.Contains(t, all, `id="x-one"`)
	expect.Lacks(t, all, `id="x-two"`)
}

func TestALargeTerminalShowsItsNewestCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	for i := range 35 {
		s.AppendExecution(t, chat, "x"+strconv.Itoa(i), &events.ExecFinished{Stdout: events.Output{Bytes: 100_000,
			Text: strings.Repeat("0123456789", 10_000)}})
	}
	blob, err := s.Log.Blobs.Put(t.Context(), "big.stdout",
		strings.NewReader("It begins."+strings.Repeat("Ü", 99_990)+"It ends."))
	is.NoErr(err)
	s.AppendExecution(t, chat, "big", &events.ExecFinished{Stdout: events.Output{Bytes: blob.Size, Blob: &blob}})
	page := b.visit(t, "/chats/"+chat+"/terminal")
	is.Equal(strings.Count(page.body, "<article"), 30)
	is.True(len(page.body) < 700_000)
	expect.Contains(t, page.body, "bytes left out")
	expect.Contains(t, page.body, ">It begins.ÜÜ")
	expect.Contains(t, page.body, "ÜÜ\n… 183614 bytes left out …\nÜÜ")
	expect.Contains(t, page.body, "ÜÜIt ends.<")
	expect.Contains(t, page.body, "… 183614 bytes more: pocketcoder sandbox logs big")
	expect.Lacks(t, page.body, "\uFFFD")
	_, rest, _ := strings.Cut(page.body, "?before=")
	before, _, _ := strings.Cut(rest, `"`)
	page = b.visit(t, "/chats/"+chat+"/terminal?before="+before)
	is.Equal(strings.Count(page.body, "<article"), 6)
	expect.Contains(t, page.body, `id="x-x5"`)
	expect.Lacks(t, page.body, "data-live")
}

func TestATerminalLeadsToThePortsOfItsCommands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	s.Append(t, chat, events.ExecRequested{Exec: "serve", Session: "ses_1", Call: "serve",
		Command: "detach python3 -m http.server 8123", Cwd: "/", Detached: true})
	expect.Contains(t, b.visit(t, "/chats/"+chat+"/terminal").body, `href="/chats/`+chat+`/ports/8123"`)
	expect.Contains(t, b.visit(t, "/chats/"+chat+"/terminal?port=3000").body, `href="/chats/`+chat+`/ports/3000"`)
	is.Equal(b.visit(t, "/chats/"+chat+"/terminal?port=99999").status, http.StatusBadRequest)
	b.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	led := b.visit(t, "/chats/"+chat+"/ports/8123")
	is.Equal(led.status, http.StatusSeeOther)
	expect.Contains(t, led.header.Get("Location"), "://8123-")
	expect.Contains(t, led.header.Get("Location"), "/.pocketcoder/")
}
