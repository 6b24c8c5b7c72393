package chat

import (
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

func TestOmit(t *testing.T) {
	t.Parallel()
	updated := func(info map[string]any) handlerstest.Fact {
		return handlerstest.OpenCode("message.updated", map[string]any{"sessionID": "ses_1", "info": info})
	}
	request := func(id string) handlerstest.Fact { return updated(map[string]any{"id": id, "role": "user"}) }
	answers := func(id, prompt string) handlerstest.Fact {
		return updated(map[string]any{"id": id, "role": "assistant", "parentID": prompt, "finish": "stop",
			"time": map[string]int{"completed": 1}})
	}
	fails := func(id, prompt string, status int) handlerstest.Fact {
		return updated(map[string]any{"id": id, "role": "assistant", "parentID": prompt,
			"error": map[string]any{"name": "APIError", "data": map[string]any{"message": "no", "statusCode": status}}})
	}
	part := func(fields map[string]any) handlerstest.Fact {
		return handlerstest.OpenCode("message.part.updated", map[string]any{"sessionID": "ses_1", "part": fields})
	}
	attaches := func(message, id, name, mime string) handlerstest.Fact {
		return part(map[string]any{"id": id, "messageID": message, "type": "file", "mime": mime, "filename": name})
	}
	reads := func(message, id, path string) handlerstest.Fact {
		return part(map[string]any{"id": id, "messageID": message, "type": "tool", "state": map[string]any{
			"input": map[string]string{"filePath": path}, "attachments": []map[string]string{{"mime": "image/png"}}}})
	}
	own := func(d events.Data) handlerstest.Fact { return handlerstest.Fact{Data: d} }
	requested := own(events.OmissionRequested{Files: []events.OmittedFile{
		{Message: "msg_1", Part: "prt_1", Name: "a.png"}}})
	bound, png := own(events.SessionBound{Session: "ses_1"}), attaches("msg_1", "prt_1", "a.png", "image/png")
	refused := []handlerstest.Fact{bound, request("msg_1"), png, fails("msg_2", "msg_1", 400)}
	after := func(more ...handlerstest.Fact) []handlerstest.Fact {
		return append(append([]handlerstest.Fact{}, refused...), more...)
	}
	for name, c := range map[string]struct {
		given []handlerstest.Fact
		files []string
		want  string
	}{
		"a picture":             {refused, []string{"a.png"}, ""},
		"413":                   {after(fails("msg_2", "msg_1", 413)), []string{"a.png"}, ""},
		"415":                   {after(fails("msg_2", "msg_1", 415)), []string{"a.png"}, ""},
		"422":                   {after(fails("msg_2", "msg_1", 422)), []string{"a.png"}, ""},
		"not the key":           {after(fails("msg_2", "msg_1", 401)), nil, omitAnswer},
		"not too many requests": {after(fails("msg_2", "msg_1", 429)), nil, omitAnswer},
		"500":                   {after(fails("msg_2", "msg_1", 500)), []string{"a.png"}, ""},
		"503":                   {after(fails("msg_2", "msg_1", 503)), []string{"a.png"}, ""},
		"stopped": {after(updated(map[string]any{"id": "msg_2", "role": "assistant", "parentID": "msg_1",
			"error": map[string]any{"name": "MessageAbortedError", "data": map[string]any{}}})), []string{"a.png"}, ""},
		"of two messages": {after(request("msg_3"), attaches("msg_3", "prt_3", "b.png", "image/png"), fails("msg_4", "msg_3", 400)),
			[]string{"a.png", "b.png"}, ""},
		"only what is new": {[]handlerstest.Fact{bound, request("msg_1"), png, answers("msg_2", "msg_1"), request("msg_3"),
			attaches("msg_3", "prt_3", "b.pdf", "application/pdf"), fails("msg_4", "msg_3", 400)}, []string{"b.pdf"}, ""},
		"all if none is new": {[]handlerstest.Fact{bound, request("msg_1"), png, answers("msg_2", "msg_1"), request("msg_3"),
			fails("msg_4", "msg_3", 400)}, []string{"a.png"}, ""},
		"read by the model": {[]handlerstest.Fact{bound, request("msg_1"), reads("msg_2", "prt_2", "/w/c.png"), answers("msg_2", "msg_1"),
			fails("msg_3", "msg_1", 400)}, []string{"c.png"}, ""},
		"no file":         {[]handlerstest.Fact{bound, request("msg_1"), fails("msg_2", "msg_1", 400)}, nil, omitNothing},
		"a file of text":  {[]handlerstest.Fact{bound, request("msg_1"), attaches("msg_1", "prt_1", "a.go", "text/plain"), fails("msg_2", "msg_1", 400)}, nil, omitNothing},
		"removed":         {after(handlerstest.OpenCode("message.removed", map[string]string{"sessionID": "ses_1", "messageID": "msg_1"})), nil, omitNothing},
		"its part":        {after(handlerstest.OpenCode("message.part.removed", map[string]string{"sessionID": "ses_1", "messageID": "msg_1", "partID": "prt_1"})), nil, omitNothing},
		"another session": {after(own(events.SessionBound{Session: "ses_2"})), nil, omitAnswer},
		"an answer":       {[]handlerstest.Fact{bound, request("msg_1"), png, answers("msg_2", "msg_1")}, nil, omitAnswer},
		"lost":            {after(own(events.TurnLost{Session: "ses_1"})), nil, omitAnswer},
		"no turn":         {[]handlerstest.Fact{bound}, nil, omitAnswer},
		"being sent":      {after(own(events.MessageSending{Message: "m1", Session: "ses_1", EngineMessage: "msg_3"})), nil, omitRuns},
		"never sent": {after(own(events.MessageSending{Message: "m1", Session: "ses_1", EngineMessage: "msg_3"}),
			own(events.MessageFailed{Message: "m1"})), []string{"a.png"}, ""},
		"unanswered": {after(request("msg_3")), nil, omitRuns},
		"running": {after(request("msg_3"), updated(map[string]any{"id": "msg_4", "role": "assistant", "parentID": "msg_3"})),
			nil, omitRuns},
		"twice":      {after(requested), nil, omitAgain},
		"in another": {after(requested, own(events.Deleted{})), nil, "there is no chat c1"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := newOmissionState("")
			handlerstest.Given(t, s, append([]handlerstest.Fact{own(events.ChatCreated{})}, c.given...)...)
			files, _, err := s.omit(Omit{Chat: "c1"})
			if c.want != "" {
				is.True(err != nil)
				expect.Contains(t, err.Error(), c.want)
				return
			}
			is.NoErr(err)
			var names []string
			for _, f := range files {
				names = append(names, f.Name)
			}
			is.Equal(names, c.files)
		})
	}
}

func TestOmitAgainAfterARefusalOfOpenCode(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newOmissionState("cmd1")
	apply := func(seq uint64, cause string, f handlerstest.Fact) string {
		e := f.Event(t, "c1")
		e.Seq, e.Cause = seq, cause
		s.Apply(e)
		return e.ID
	}
	apply(1, "", handlerstest.Fact{Data: events.ChatCreated{}})
	apply(2, "", handlerstest.Fact{Data: events.SessionBound{Session: "ses_1"}})
	apply(3, "", handlerstest.OpenCode("message.part.updated", map[string]any{"sessionID": "ses_1",
		"part": map[string]string{"id": "prt_1", "messageID": "msg_1", "type": "file", "mime": "image/png", "filename": "a.png"}}))
	apply(4, "", handlerstest.OpenCode("message.updated", map[string]any{"sessionID": "ses_1",
		"info": map[string]any{"id": "msg_2", "role": "assistant",
			"error": map[string]any{"name": "APIError", "data": map[string]int{"statusCode": 400}}}}))
	want := []events.OmittedFile{{Message: "msg_1", Part: "prt_1", Name: "a.png"}}
	effect := apply(5, "cmd1", handlerstest.Fact{Data: events.OmissionRequested{Files: want}})
	files, seq, err := s.omit(Omit{Command: handlers.Command{ID: "cmd1"}, Chat: "c1"}) // the same command
	is.NoErr(err)
	is.Equal(files, want)
	is.Equal(seq, uint64(5))
	s.command, s.done = "cmd2", 0
	_, _, err = s.omit(Omit{Command: handlers.Command{ID: "cmd2"}, Chat: "c1"})
	is.Equal(handlers.CodeOf(err), handlers.Conflict)
	apply(6, "", handlerstest.Fact{Data: events.EffectFailed{Effect: effect, Reason: "no"}})
	files, _, err = s.omit(Omit{Command: handlers.Command{ID: "cmd2"}, Chat: "c1"})
	is.NoErr(err)
	is.Equal(files, want)
}
