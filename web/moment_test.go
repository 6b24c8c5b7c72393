package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

func TestReplayEqualsTheRecordsOfThatTime(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat := s.Chat(t, token, "first title")
	s.AppendRequest(t, chat, "per_1")
	lists := []string{"messages", "permissions", "questions", "executions", "subagents"}
	shown := func() map[string]any {
		all := map[string]any{}
		_, all["chat"] = s.Call(t, token, "GET", webtest.RecordsPath("chats")+"/"+chat, nil)
		for _, name := range lists {
			status, page := s.Call(t, token, "GET", webtest.RecordsPath(name)+"?sort=created&filter="+
				webtest.Escape(`chat = "`+chat+`"`), nil)
			is.Equal(status, http.StatusOK)
			all[name] = page["items"]
		}
		return all
	}
	before, at := shown(), s.Model.Seq()
	title := "second title"
	s.Append(t, chat, events.ChatUpdated{Title: &title})
	s.Append(t, chat, events.ExecRequested{Exec: "exec1", Session: "ses_1", Command: "ls", Cwd: "/"})
	s.Append(t, s.Chat(t, token, "another"), events.ExecRequested{Exec: "exec2", Session: "ses_2", Command: "ls",
		Cwd: "/"})
	now := shown()

	replay := fmt.Sprint("/api/chats/", chat, "/replay")
	for _, c := range []struct {
		query string
		want  map[string]any
		at    uint64
	}{
		{fmt.Sprint("?at=", at), before, at},
		{"", now, s.Model.Seq()},
		{fmt.Sprint("?at=", s.Model.Seq()), now, s.Model.Seq()},
	} {
		status, got := s.Call(t, token, "GET", replay+c.query, nil)
		is.Equal(status, http.StatusOK)
		is.Equal(got["sequence"], float64(c.at))
		delete(got, "sequence")
		is.Equal(asJSON(t, got), asJSON(t, c.want))
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	webtest.Check(t, err)
	return string(b)
}

func TestReplayRefusesInvalidSequences(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	first := s.Chat(t, token, "first")
	before := s.Model.Seq()
	chat := s.Chat(t, token, "second")
	status, _ := s.Call(t, token, "GET", fmt.Sprint("/api/chats/", chat, "/replay?at=", before), nil)
	is.Equal(status, http.StatusNotFound) // it did not exist yet
	for _, at := range []string{"0", "-1", "x", "", "1.5", "%00", "99999999999999999999",
		fmt.Sprint(s.Model.Seq() + 1000)} {
		status, p := s.Call(t, token, "GET", fmt.Sprint("/api/chats/", first, "/replay?at=", at), nil)
		is.Equal(status, http.StatusBadRequest)
		is.True(p["data"].(map[string]any)["at"] != nil)
	}
}

func TestReplayOfALongChatIsComplete(t *testing.T) {
	webtest.LeaveOutWhenShort(t)
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", account.User)
	chat := s.Chat(t, token, "long")
	var all []events.Event
	for i := range 1500 { // more than a page of records holds
		body := fmt.Sprintf(`{"sessionID":"ses_1","info":{"id":"msg_%04d","role":"assistant"}}`, i)
		e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), int64(i),
			events.OpenCode{Type: "message.updated", Properties: []byte(body)})
		is.NoErr(err)
		all = append(all, e)
	}
	s.Append(t, chat, events.SessionBound{Session: "ses_1", Directory: "/"})
	seq, err := s.Log.AppendAll(t.Context(), all)
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	status, got := s.Call(t, token, "GET", "/api/chats/"+chat+"/replay", nil)
	is.Equal(status, http.StatusOK)
	messages := got["messages"].([]any)
	is.Equal(len(messages), 1500)
	for i, m := range messages {
		is.Equal(m.(map[string]any)["ai_engine_message_id"], fmt.Sprintf("msg_%04d", i))
	}
}
