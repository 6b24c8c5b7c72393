package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

func TestReplayIsWhatTheRecordsSaidThen(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, token := s.user(t, "ada", account.User)
	chat := s.chat(t, token, "first title")
	s.asked(t, chat, "per_1")
	lists := []string{"messages", "permissions", "questions", "executions", "subagents"}
	shown := func() map[string]any {
		all := map[string]any{}
		_, all["chat"] = s.call(t, token, "GET", recordsOf("chats")+"/"+chat, nil)
		for _, name := range lists {
			status, page := s.call(t, token, "GET", recordsOf(name)+"?sort=created&filter="+escape(`chat = "`+chat+`"`), nil)
			is.Equal(status, http.StatusOK)
			all[name] = page["items"]
		}
		return all
	}
	before, at := shown(), s.model.Seq()
	title := "second title"
	s.append(t, chat, events.ChatUpdated{Title: &title})
	s.append(t, chat, events.ExecRequested{Exec: "exec1", Session: "ses_1", Command: "ls", Cwd: "/"})
	s.append(t, s.chat(t, token, "another"), events.ExecRequested{Exec: "exec2", Session: "ses_2", Command: "ls", Cwd: "/"})
	now := shown()

	replay := fmt.Sprint("/api/chats/", chat, "/replay")
	for _, c := range []struct {
		query string
		want  map[string]any
		at    uint64
	}{
		{fmt.Sprint("?at=", at), before, at},
		{"", now, s.model.Seq()},
		{fmt.Sprint("?at=", s.model.Seq()), now, s.model.Seq()},
	} {
		status, got := s.call(t, token, "GET", replay+c.query, nil)
		is.Equal(status, http.StatusOK)
		is.Equal(got["sequence"], float64(c.at))
		delete(got, "sequence")
		is.Equal(asJSON(t, got), asJSON(t, c.want))
	}
}

func asJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	check(t, err)
	return string(b)
}

func TestReplayOfAMomentThatIsNone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, token := s.user(t, "ada", account.User)
	first := s.chat(t, token, "first")
	before := s.model.Seq()
	chat := s.chat(t, token, "second")
	status, _ := s.call(t, token, "GET", fmt.Sprint("/api/chats/", chat, "/replay?at=", before), nil)
	is.Equal(status, http.StatusNotFound) // it was not there yet
	for _, at := range []string{"0", "-1", "x", "", "1.5", "%00", "99999999999999999999", fmt.Sprint(s.model.Seq() + 1000)} {
		status, p := s.call(t, token, "GET", fmt.Sprint("/api/chats/", first, "/replay?at=", at), nil)
		is.Equal(status, http.StatusBadRequest)
		is.True(p["data"].(map[string]any)["at"] != nil)
	}
}

func TestReplayOfALongChatHasAllOfIt(t *testing.T) {
	leaveOutWhenShort(t)
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, token := s.user(t, "ada", account.User)
	chat := s.chat(t, token, "long")
	var all []events.Event
	for i := range 1500 { // more than a page of records holds
		body := fmt.Sprintf(`{"sessionID":"ses_1","info":{"id":"msg_%04d","role":"assistant"}}`, i)
		e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), int64(i), events.OpenCode{Type: "message.updated", Properties: []byte(body)})
		is.NoErr(err)
		all = append(all, e)
	}
	s.append(t, chat, events.SessionBound{Session: "ses_1", Directory: "/"})
	seq, err := s.log.AppendAll(t.Context(), all)
	is.NoErr(err)
	is.NoErr(s.model.Wait(t.Context(), seq))
	status, got := s.call(t, token, "GET", "/api/chats/"+chat+"/replay", nil)
	is.Equal(status, http.StatusOK)
	messages := got["messages"].([]any)
	is.Equal(len(messages), 1500)
	for i, m := range messages {
		is.Equal(m.(map[string]any)["ai_engine_message_id"], fmt.Sprintf("msg_%04d", i))
	}
}
