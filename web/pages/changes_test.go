package pages_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestTheChangesOfOtherTurnsAreShownWhenOneCannotBeRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.ChatWithAnswer(t, token)
	for _, n := range []string{"1", "3", "5"} {
		appendUserMessage(t, s, chat, "msg_"+n, "change "+n)
		s.AppendOpenCode(t, chat, "message.updated", `{"sessionID":"ses_own","info":{"id":"msg_`+n+
			`a","role":"assistant","parentID":"msg_`+n+`","time":{"completed":2}}}`)
		s.AppendOpenCode(t, chat, "message.part.updated",
			`{"sessionID":"ses_own","part":{"id":"prt_`+n+`","messageID":"msg_`+n+
				`a","sessionID":"ses_own","type":"patch","hash":"x","files":["/w/<`+n+`>.go"]}}`)
	}
	failure := errors.New("no blob")
	var requested []string
	s.Web.Chats.Engine.Diff = func(_ context.Context, _, message string) (json.RawMessage, error) {
		requested = append(requested, message)
		if message == "msg_3" {
			return nil, failure
		}
		return json.RawMessage(`[{"file":"` + message + `.txt","patch":"@@ -0,0 +1 @@\n+of ` + message + `\n"}]`), nil
	}
	got := b.visit(t, "/chats/"+chat+"/changes")
	is.Equal(got.status, http.StatusOK)
	expect.Contains(t, got.body, "+of msg_5")
	expect.Contains(t, got.body, "+of msg_1")
	expect.Contains(t, got.body, "/w/&lt;3&gt;.go")
	is.Equal(strings.Count(got.body, "These lines are missing."), 1)
	failure, requested = handlers.Refuse(handlers.Unavailable, "OpenCode does not answer; try again."), nil
	got = b.visit(t, "/chats/"+chat+"/changes")
	is.Equal(got.status, http.StatusOK)
	expect.Contains(t, got.body, "+of msg_5")
	is.Equal(strings.Count(got.body, "These lines are missing. OpenCode does not answer; try again."), 2)
	is.Equal(requested, []string{"msg_5", "msg_3"}) // and not for each turn
}
