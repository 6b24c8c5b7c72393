package realtime_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

func TestHotStreamReportsTheEndOfEveryTurn(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	for trace, want := range map[string][]string{
		"01-simple-text":       {"completed: step-start, text Hello from the fake model., step-finish"},
		"03-reasoning":         {"completed: step-start, reasoning r0 r1 r2 r3, text t0 t1 t2, step-finish"},
		"05-perm-bash-once":    {"completed: step-start, tool, step-finish", "completed: step-start, text done, step-finish"},
		"18-abort-text":        {"aborted: step-start, text *"},
		"19-abort-bash":        {"aborted: step-start, tool*"},
		"14-question":          {"completed: step-start, tool, step-finish", "completed: step-start, text done, step-finish"},
		"23-error-400":         {"error: *"},
		"9i-perm-task":         {"completed: step-start, tool, step-finish", "completed: step-start, text done, step-finish"},
		"97-prompt-while-busy": nil,
	} {
		t.Run(trace, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			chat := s.Chat(t, ann, trace)
			f := s.Connect(t).Follow(t, ann, "chats:"+chat)
			s.Play(t, chat, trace)
			s.AppendFailure(t, chat, "end")
			got := f.Endings(t)
			if want == nil {
				t.Log(got)
				return
			}
			if len(got) != len(want) {
				t.Fatalf("got %q, want %q", got, want)
			}
			for i, w := range want {
				if fixed, open := strings.CutSuffix(w, "*"); !open {
					is.Equal(got[i], w)
				} else {
					is.True(strings.HasPrefix(got[i], fixed))
				}
			}
		})
	}
}

func TestLateSubscriberGetsTheWholeMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	chat := s.ChatWithAnswer(t, ann)
	s.Assistant(t, chat, "msg_1", "")
	s.TextPart(t, chat, "msg_1", "prt_1", "", "")
	s.Fragment(t, chat, "msg_1", "prt_1", "one ")
	first := s.Connect(t).Follow(t, ann, "chats:"+chat)
	s.Fragment(t, chat, "msg_1", "prt_1", "two ")
	first.AwaitText(t, "one two ")
	second := s.Connect(t).Follow(t, s.Login(t, "ann"), "chats:"+chat)
	second.AwaitText(t, "one two ")
	s.Fragment(t, chat, "msg_1", "prt_1", "three")
	first.AwaitText(t, "one two three")
	second.AwaitText(t, "one two three")
	s.TextPart(t, chat, "msg_1", "prt_1", "one two three.", `,"time":{"start":1,"end":2}`)
	s.Assistant(t, chat, "msg_1", webtest.Ended)
	s.AppendFailure(t, chat, "end")
	is.Equal(first.Endings(t), []string{"completed: text one two three."})
	is.Equal(second.Endings(t), []string{"completed: text one two three."})
}

func TestHotStreamShowsRunningTools(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	chat := s.ChatWithAnswer(t, ann)
	f := s.Connect(t).Follow(t, ann, "chats:"+chat)
	tool := func(status, output string) string {
		return fmt.Sprintf(`{"sessionID":"ses_own","part":{"id":"prt_t","messageID":"msg_1","type":"tool","tool":"bash","state":{"status":%q,"output":%q}}}`, status, output)
	}
	s.Assistant(t, chat, "msg_1", "")
	s.TextPart(t, chat, "msg_1", "prt_a", "begun", "")
	f.AwaitText(t, "begun")
	var seen []string
	shows := func(status, output string) {
		for {
			d := f.Next(t).Data
			if d.Event == "tool_status" {
				seen = append(seen, fmt.Sprint(d.Data["tool"], " ", d.Data["status"]))
			}
			if d.Event == "message_snapshot" && strings.Contains(fmt.Sprint(d.Data["parts"]),
				"output:"+output+" status:"+status) {
				return
			}
		}
	}
	s.AppendOpenCode(t, chat, "message.part.updated", tool("running", "a"))
	shows("running", "a")
	s.Delta(t, chat, "message.part.updated", tool("running", "ab"))
	shows("running", "ab")
	s.TextPart(t, chat, "msg_1", "prt_u", "x", "") // an older state in the record does not hide a newer delta
	f.AwaitText(t, "x")
	s.AppendOpenCode(t, chat, "message.part.updated", tool("completed", "abc"))
	shows("completed", "abc")
	is.Equal(seen, []string{"bash running", "bash completed"})
}

func TestReconnectingSubscriberGetsMessagesThatEnded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	chat := s.ChatWithAnswer(t, ann)
	s.Assistant(t, chat, "msg_0", webtest.Ended) // long ago
	f := s.Connect(t).Follow(t, ann, "chats:"+chat)
	s.Assistant(t, chat, "msg_1", "")
	s.TextPart(t, chat, "msg_1", "prt_1", "begun", "")
	f.AwaitText(t, "begun")
	waitForDisconnect(f, t, ann)
	s.Assistant(t, chat, "msg_1", webtest.Ended)
	f = s.Connect(t).Follow(t, ann, "chats:"+chat)
	s.AppendFailure(t, chat, "end")
	is.Equal(f.Endings(t), []string{"completed: text begun"})
}

func TestHotStreamReportsATurnWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	for name, c := range map[string]struct {
		ends func(chat string)
		want string
	}{
		"lost while speaking": {func(chat string) {
			s.Assistant(t, chat, "msg_1", "")
			s.Append(t, chat, events.TurnLost{Session: "ses_own"})
		}, "The turn was lost: OpenCode or the answer of the model ended in the middle of it."},
		"lost before": {func(chat string) { s.Append(t, chat, events.TurnLost{Session: "ses_own"}) },
			"The turn was lost: OpenCode or the answer of the model ended in the middle of it."},
		"refused": {func(chat string) {
			s.AppendOpenCode(t, chat, "session.error",
				`{"sessionID":"ses_own","error":{"name":"UnknownError","data":{"message":"no such agent"}}}`)
		}, "no such agent"},
		"session deleted": {func(chat string) {
			s.AppendOpenCode(t, chat, "session.deleted", `{"sessionID":"ses_own","info":{"id":"ses_own"}}`)
		}, "The turn ended without an answer."},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			chat := s.ChatWithAnswer(t, ann)
			f := s.Connect(t).Follow(t, ann, "chats:"+chat)
			s.Append(t, chat, events.MessageSubmitted{Message: "m_" + chat, Parts: []events.Part{{Type: "text", Text: "go"}}})
			s.Append(t, chat, events.MessageSending{Message: "m_" + chat, Session: "ses_own", EngineMessage: "msg_0",
				EngineParts: []string{"prt_" + chat}})
			s.Append(t, chat, events.MessageDelivered{Message: "m_" + chat, EngineMessage: "msg_0"})
			c.ends(chat)
			got := f.Next(t)
			for got.Data.Event != "message_error" {
				got = f.Next(t)
			}
			is.Equal(got.Data.Data["error"], map[string]any{"message": c.want})
			s.AppendFailure(t, chat, "end")
			is.Equal(f.Endings(t), nil) // once
		})
	}
}

func TestHotStreamNeedsAccessToTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	bobID, bob := s.User(t, "bob", account.User)
	_, ann := s.User(t, "ann", account.User)
	_, root := s.User(t, "root", account.Admin)
	chat := s.ChatWithAnswer(t, ann)
	a, b := s.Connect(t).Follow(t, ann, "chats:"+chat), s.Connect(t).Follow(t, bob, "chats:"+chat, "chats:*",
		"chats:nothing")
	s.AppendFailure(t, chat, "end")
	a.Endings(t)
	status, answer := s.Call(t, root, "PATCH", "/api/collections/chats/records/"+chat, map[string]any{"user": bobID})
	if status != 200 {
		t.Fatal(answer)
	}
	b.Follow(t, bob).Follow(t, bob, "chats:"+chat)
	s.AppendFailure(t, chat, "end")
	is.Equal(b.Endings(t), nil)
	is.Equal(len(a.Frames), 0) // ann may no longer see it
}
