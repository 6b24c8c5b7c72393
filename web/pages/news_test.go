package pages_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestAPageSaysWhatHappenedSinceAPersonWasHere(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	_, bob := s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	submitMessage(t, s, chat, "msg_1", written("One."))
	is.Equal(b.submit(t, "/chats/"+chat+"/seen",
		url.Values{"seq": {newestOf(t, b.visit(t, "/chats/"+chat).body)}}).status, 200)
	status, news := s.Call(t, token, "GET", "/api/pocketcoder/chats/"+chat+"/news", nil)
	is.Equal([]any{status, news["answers"], news["decisions"]}, []any{200, 0.0, []any{}})

	for i, command := range []string{"ls", "rm x", "date"} {
		id := needed(t, s, chat, "per_"+string(rune('a'+i)), command)
		if i < 2 {
			decision := []string{"authorized", "denied"}[i]
			status, _ := s.Call(t, token, "PATCH", webtest.RecordsPath("permissions")+"/"+id, map[string]any{"status": decision})
			is.Equal(status, 200)
		}
	}
	by := func(actor, permission string, decision events.Decision) {
		e, err := events.New(chat, actor, events.PermissionDecided{Permission: permission, Decision: decision})
		is.NoErr(err)
		seq, err := s.Log.Append(t.Context(), e)
		is.NoErr(err)
		is.NoErr(s.Model.Wait(t.Context(), seq))
	}
	by(events.ActorPolicy, "per_c", events.Authorized)
	needed(t, s, chat, "per_d", "whoami")
	by(events.ActorNobody, "per_d", events.Denied) // at a terminal without an account
	for i, code := range []int{0, 7} {
		exec := "x" + string(rune('a'+i))
		s.Append(t, chat, events.ExecRequested{Exec: exec, Permission: "per_a", Session: "ses_1", Command: "ls", Cwd: "/w"})
		s.Append(t, chat, events.ExecFinished{Exec: exec, Status: "completed", ExitCode: code})
	}
	submitTurn(t, s, chat, "msg_2", written("Two."), map[string]any{"type": "patch", "files": []string{"/w/a", "/w/b"}},
		map[string]any{"type": "patch", "files": []string{"/w/b"}})
	const want = "1 turn ended · 1 request approved by ada@example.org · 1 request denied by ada@example.org · 1 request denied by anonymous · 1 request approved by rules · " +
		"2 commands ran · 1 command failed · 2 files changed · 1 new message"
	expect.Contains(t, b.visit(t, "/chats/"+chat).body, "<small>"+want+"</small>")
	expect.Lacks(t, b.visit(t, "/").body, "While you were away") // it was a moment ago
	_, news = s.Call(t, token, "GET", "/api/pocketcoder/chats/"+chat+"/news", nil)
	is.Equal([]any{news["commands"], news["commands_failed"], news["files"], len(news["decisions"].([]any))},
		[]any{2.0, 1.0, 2.0, 4})
	status, _ = s.Call(t, bob, "GET", "/api/pocketcoder/chats/"+chat+"/news", nil)
	is.Equal(status, 404)
	status, _ = s.Call(t, token, "GET", "/api/pocketcoder/chats/"+chat+"/news?after=x", nil)
	is.Equal(status, 400)
}

// submitTurn submits a message of the assistant that is a turn of its own.
func submitTurn(t *testing.T, s *webtest.System, chat, message string, parts ...map[string]any) {
	t.Helper()
	session := "ses_" + chat
	s.Append(t, chat, events.SessionBound{Session: session, Directory: "/workspace"})
	s.AppendOpenCode(t, chat, "session.status", `{"sessionID":"`+session+`","status":{"type":"busy"}}`)
	submitMessage(t, s, chat, message, parts...)
	s.AppendOpenCode(t, chat, "session.status", `{"sessionID":"`+session+`","status":{"type":"idle"}}`)
}

func TestTheListSaysWhatHappenedWhileAPersonWasAway(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	ada, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "Tidy up")
	e, err := events.NewUser(ada, events.UserActor(ada), events.ChatSeen{Chat: chat, Seq: 1})
	is.NoErr(err)
	e.Time = time.Now().Add(-11 * time.Minute)
	seq, err := s.Log.Append(t.Context(), e)
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	expect.Lacks(t, b.visit(t, "/").body, "While you were away") // nothing happened
	submitTurn(t, s, chat, "msg_2", written("Two."))
	page := b.visit(t, "/").body
	expect.Contains(t, page, "While you were away")
	expect.Contains(t, page, "<p>1 turn ended · 1 new message</p>")
	b.submit(t, "/chats/"+chat+"/seen", url.Values{"seq": {newestOf(t, b.visit(t, "/chats/"+chat).body)}})
	expect.Lacks(t, b.visit(t, "/").body, "While you were away")
}
