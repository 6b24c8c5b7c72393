package pages_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

func TestARefusedPictureIsLeftOutFromThePage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	s.User(t, "bob", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "A picture")
	path := "/chats/" + chat
	s.AppendRefusedPicture(t, chat)
	const button = "Leave photo.png out and try again</button>"
	page := b.visit(t, path).body
	expect.Contains(t, page, "Could not process image")
	expect.Contains(t, page, button)
	_, form, _ := strings.Cut(page, path+"/omit")
	_, form, _ = strings.Cut(form, `name="id" value="`)
	id, _, _ := strings.Cut(form, `"`)
	is.Equal(loggedIn(t, s, "bob").submit(t, path+"/omit", url.Values{"id": {id}}).status, http.StatusNotFound)
	for range 2 { // pressed twice
		is.Equal(b.submit(t, path+"/omit", url.Values{"id": {id}}).path, path)
	}
	all, data := handlerstest.History(t, s.Log, chat)
	omissions := handlerstest.Of[events.OmissionRequested](data)
	is.Equal(len(omissions), 1)
	is.Equal(omissions[0].Files, []events.OmittedFile{{Message: "msg_0", Part: "prt_0", Name: "photo.png"}})
	sent := handlerstest.Of[events.MessageSubmitted](data)
	is.Equal(len(sent), 1)
	is.Equal(sent[0].Parts[0].Text, "Continue.")
	page = b.visit(t, path).body
	expect.Lacks(t, page, button)

	for _, e := range all {
		if e.Subject.Kind == (events.OmissionRequested{}).Kind() {
			s.Append(t, chat, events.EffectDone{Effect: e.ID})
		}
	}
	s.TextPart(t, chat, "msg_0", "prt_0", "[photo.png"+opencode.LeftOut+"]",
		`,"metadata":{"`+opencode.MarkLeftOut+`":"photo.png"}`)
	s.AppendOpenCode(t, chat, "message.part.updated", `{"sessionID":"ses_own","part":{"id":"prt_9","messageID":"msg_1","sessionID":"ses_own",
		"type":"tool","tool":"read","callID":"call_9","state":{"status":"completed","output":"read","metadata":{"`+opencode.MarkLeftOut+`":"read.png"}}}}`)
	page = b.visit(t, path).body
	expect.Contains(t, page, "left out: photo.png")
	expect.Contains(t, page, "left out: read.png")
	expect.Lacks(t, page, button)
}

func TestARefusedPictureIsLeftOutThroughTheAPI(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b := loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "A picture")
	route := "/api/pocketcoder/chats/" + chat + "/omit"
	status, refused := s.Call(t, token, "POST", route, nil)
	is.Equal(status, http.StatusBadRequest)
	is.Equal(refused["message"], "The last message was neither refused by the provider nor stopped, so no file is left out.")
	s.AppendRefusedPicture(t, chat)
	expect.Contains(t, b.visit(t, "/chats/"+chat).body, "Leave photo.png out")
	status, answer := s.Call(t, token, "POST", route, nil)
	is.Equal(status, http.StatusOK)
	is.Equal(answer["files"], []any{"photo.png"})
	expect.Lacks(t, b.visit(t, "/chats/"+chat).body, "Leave photo.png out") // OpenCode has not confirmed it
	status, refused = s.Call(t, token, "POST", route, nil)
	is.Equal(status, http.StatusBadRequest)
	is.Equal(refused["message"], "The files were left out already. Send the next message.")
	all, data := handlerstest.History(t, s.Log, chat)
	is.Equal(len(handlerstest.Of[events.MessageSubmitted](data)), 0)
	s.Append(t, chat, events.EffectFailed{Effect: all[len(all)-1].ID, Reason: "OpenCode is too old."})
	page := b.visit(t, "/chats/"+chat).body
	expect.Contains(t, page, "Leave photo.png out")
	expect.Contains(t, page, "OpenCode is too old.")
}
