package pages_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// newestOf returns the sequence that a page reports as seen when its end is visible.
func newestOf(t *testing.T, page string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `id="newest" data-seq="`)
	if !found {
		t.Fatalf("the page does not say what is newest: %s", page)
	}
	seq, _, _ := strings.Cut(rest, `"`)
	return seq
}

func TestWhatIsNewSinceAPersonWasHereIsMarked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	_, root := s.User(t, "root", "admin")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	other := s.Chat(t, token, "Other")
	line := `id="new-line"`
	row := func(chat string) string {
		_, rest, _ := strings.Cut(b.visit(t, "/").body, `id="chat-`+chat+`"`)
		one, _, _ := strings.Cut(rest, "</li>")
		return one
	}
	submitMessage(t, s, chat, "msg_1", written("One."))
	submitMessage(t, s, other, "msg_a", written("Before."))
	page := b.visit(t, "/chats/"+chat).body
	expect.Lacks(t, page, line) // of a person who has seen no chat yet, nothing is unread
	expect.Lacks(t, row(chat), "unread")

	is.Equal(b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {newestOf(t, page)}}).path, "/chats/"+chat)
	expect.Lacks(t, row(other), "unread") // it was there when the person saw the first chat
	submitMessage(t, s, chat, "msg_2", written("Two."))
	submitMessage(t, s, chat, "msg_3", written("Three."))
	submitMessage(t, s, other, "msg_b", written("After."))
	page = b.visit(t, "/chats/"+chat).body
	at := strings.Index(page, line)
	is.True(strings.Index(page, "One.") < at && at < strings.Index(page, "Two."))
	expect.Contains(t, row(chat), "2 new")
	expect.Contains(t, row(other), "1 new")
	expect.Contains(t, page, "Mark as read")

	status, list := s.Call(t, token, "GET", webtest.RecordsPath("seen_positions"), nil)
	is.Equal([]any{status, list["totalItems"]}, []any{200, 1.0})
	seen := list["items"].([]any)[0].(map[string]any)
	is.Equal([]any{seen["user"], seen["chat"]}, []any{ada, chat})
	// another device
	status, _ = s.Call(t, token, "PATCH", webtest.RecordsPath("seen_positions")+"/"+seen["id"].(string),
		map[string]any{"seq": s.Model.Seq()})
	is.Equal(status, 200)
	expect.Lacks(t, b.visit(t, "/chats/"+chat).body, line)
	expect.Lacks(t, row(chat), "unread")
	is.Equal(b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {"1"}}).status, http.StatusOK) // late, and ignored
	expect.Lacks(t, row(chat), "unread")

	for _, seq := range []string{"", "x", "-1", "1.5", "9223372036854775807"} {
		is.Equal(b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {seq}}).status, http.StatusBadRequest)
	}
	s.User(t, "bob", "user")
	is.Equal(loggedIn(t, s, "bob").submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {"1"}}).status,
		http.StatusBadRequest)
	status, _ = s.Call(t, root, "POST", webtest.RecordsPath("seen_positions"),
		map[string]any{"user": ada, "chat": chat, "seq": s.Model.Seq()})
	is.Equal(status, http.StatusBadRequest) // an account cannot move the position of another
}

func TestAnAnswerThatIsWrittenToItsEndIsNewAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	submitMessage(t, s, chat, "msg_1", written("One."))
	s.Assistant(t, chat, "msg_2", "")
	b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {newestOf(t, b.visit(t, "/chats/"+chat).body)}})
	expect.Lacks(t, b.visit(t, "/").body, "1 new")
	submitMessage(t, s, chat, "msg_2", written("Two."))
	page := b.visit(t, "/chats/"+chat).body
	at := strings.Index(page, `id="new-line"`)
	is.True(strings.Index(page, "One.") < at && at < strings.Index(page, "Two."))
	expect.Contains(t, b.visit(t, "/").body, "1 new")
}

func TestTheEndOfACommandMakesNoSeenAnswerUnread(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	submitMessage(t, s, chat, "msg_1", written("The server runs."))
	needed(t, s, chat, "per_1", "npm start &")
	s.Append(t, chat, events.PermissionDecided{Permission: "per_1", Decision: events.Authorized})
	s.Append(t, chat, events.ExecRequested{Exec: "x1", Permission: "per_1", Session: "ses_1", Command: "npm start &",
		Cwd: "/w"})
	b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {newestOf(t, b.visit(t, "/chats/"+chat).body)}})
	s.Append(t, chat, events.ExecFinished{Exec: "x1", Status: "completed", ExitCode: 1}) // hours later
	expect.Lacks(t, b.visit(t, "/").body, "1 new")
	_, news := s.Call(t, token, "GET", "/api/pocketcoder/chats/"+chat+"/news", nil)
	is.Equal([]any{news["ended"], news["answers"], news["commands"]}, []any{0.0, 0.0, 1.0})
}

func TestTheListShowsLiveThatAnotherDeviceHasSeenAChat(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	submitMessage(t, s, chat, "msg_1", written("One."))
	b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {newestOf(t, b.visit(t, "/chats/"+chat).body)}})
	list := b.follow(t, b.visit(t, "/"))
	submitMessage(t, s, chat, "msg_2", written("Two."))
	list.until("1 new")
	b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {fmt.Sprint(s.Model.Seq())}})
	expect.Lacks(t, list.elements(), "new<")
}
