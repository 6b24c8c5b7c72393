package console

import (
	"fmt"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/events"
	"pocketcoder/web/webtest"
)

// A removed turn, and the prompt that resumed one, are none of their own. A report of delegates begins a turn. What
// OpenCode adds is no part of the text.
func TestTurnsAreUndoneFromTheLast(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	system := webtest.NewSystem(t)
	var all []events.Event
	own := func(d events.Data) { all = append(all, cmdtest.Own(t, 0, "user:u", d)) }
	openCode := func(typ, properties string) {
		e, err := events.NewOpenCode("chat1", "local", "evt_"+events.NewID(), -1,
			events.OpenCode{Type: typ, Properties: []byte(properties)})
		is.NoErr(err)
		all = append(all, e)
	}
	sent := func(n int, resumes string, reports ...string) {
		message, engine := fmt.Sprint("m", n), fmt.Sprint("msg_", n)
		own(events.MessageSubmitted{Message: message, Resumes: resumes, Results: reports,
			Parts: []events.Part{{Type: "text", Text: "text of " + message}}})
		own(events.MessageSending{Message: message, Session: "ses_1", EngineMessage: engine})
		openCode("message.updated", fmt.Sprintf(`{"sessionID":"ses_1","info":{"id":%q,"role":"user"}}`, engine))
		for i, more := range []string{"", `,"synthetic":true`} {
			openCode("message.part.updated", fmt.Sprintf(`{"sessionID":"ses_1","part":{"id":"prt_%d%d","messageID":%q,
				"type":"text","text":"text of %s"%s}}`, n, i, engine, message, more))
		}
	}
	own(events.ChatCreated{Engine: "local"})
	own(events.SessionBound{Session: "ses_1", Directory: "/workspace"})
	sent(1, "")
	sent(2, "")
	sent(3, "per_1")
	sent(4, "", "m0")
	sent(5, "")
	openCode("message.removed", `{"sessionID":"ses_1","messageID":"msg_5"}`)
	_, err := system.Log.AppendAll(t.Context(), all)
	is.NoErr(err)
	c := newConversation(client.At(system.Local(t)), Options{Chat: "chat1"}, nil)
	for before, want := range map[string]turnPrompt{"": {"msg_4", "text of m4"}, "msg_5": {"msg_4", "text of m4"},
		"msg_4": {"msg_2", "text of m2"}, "msg_2": {"msg_1", "text of m1"}, "msg_1": {}} {
		got, err := c.turnBefore(t.Context(), before)
		is.Equal(got, want)
		is.Equal(err != nil, want.message == "")
	}
}
