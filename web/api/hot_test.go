package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

func TestEveryTurnEndsOnTheHotStream(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
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
			chat := s.chat(t, ann, trace)
			f := s.connect(t).follow(t, ann, "chats:"+chat)
			s.play(t, chat, trace)
			s.fails(t, chat, "end")
			got := f.endings(t)
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

func TestALateFollowerHearsTheWholeMessage(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	chat := s.talking(t, ann)
	s.assistant(t, chat, "msg_1", "")
	s.textPart(t, chat, "msg_1", "prt_1", "", "")
	s.fragment(t, chat, "msg_1", "prt_1", "one ")
	first := s.connect(t).follow(t, ann, "chats:"+chat)
	s.fragment(t, chat, "msg_1", "prt_1", "two ")
	first.hears(t, "one two ")
	second := s.connect(t).follow(t, s.login(t, "ann"), "chats:"+chat)
	second.hears(t, "one two ")
	s.fragment(t, chat, "msg_1", "prt_1", "three")
	first.hears(t, "one two three")
	second.hears(t, "one two three")
	s.textPart(t, chat, "msg_1", "prt_1", "one two three.", `,"time":{"start":1,"end":2}`)
	s.assistant(t, chat, "msg_1", ended)
	s.fails(t, chat, "end")
	is.Equal(first.endings(t), []string{"completed: text one two three."})
	is.Equal(second.endings(t), []string{"completed: text one two three."})
}

func TestRunningToolsAreShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	chat := s.talking(t, ann)
	f := s.connect(t).follow(t, ann, "chats:"+chat)
	tool := func(status, output string) string {
		return fmt.Sprintf(`{"sessionID":"ses_own","part":{"id":"prt_t","messageID":"msg_1","type":"tool","tool":"bash","state":{"status":%q,"output":%q}}}`, status, output)
	}
	s.assistant(t, chat, "msg_1", "")
	s.textPart(t, chat, "msg_1", "prt_a", "begun", "")
	f.hears(t, "begun")
	var seen []string
	shows := func(status, output string) {
		for {
			d := f.next(t).data
			if d.Event == "tool_status" {
				seen = append(seen, fmt.Sprint(d.Data["tool"], " ", d.Data["status"]))
			}
			if d.Event == "message_snapshot" && strings.Contains(fmt.Sprint(d.Data["parts"]), "output:"+output+" status:"+status) {
				return
			}
		}
	}
	s.said(t, chat, "message.part.updated", tool("running", "a"))
	shows("running", "a")
	s.delta(t, chat, "msg_1", "prt_t", "message.part.updated", tool("running", "ab"))
	shows("running", "ab")
	s.textPart(t, chat, "msg_1", "prt_u", "x", "") // what is older in the record does not hide what is newer
	f.hears(t, "x")
	s.said(t, chat, "message.part.updated", tool("completed", "abc"))
	shows("completed", "abc")
	is.Equal(seen, []string{"bash running", "bash completed"})
}

func TestWhatEndedMeanwhileIsTold(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	chat := s.talking(t, ann)
	s.assistant(t, chat, "msg_0", ended) // long ago
	f := s.connect(t).follow(t, ann, "chats:"+chat)
	s.assistant(t, chat, "msg_1", "")
	s.textPart(t, chat, "msg_1", "prt_1", "begun", "")
	f.hears(t, "begun")
	f.left(t, ann)
	s.assistant(t, chat, "msg_1", ended)
	f = s.connect(t).follow(t, ann, "chats:"+chat)
	s.fails(t, chat, "end")
	is.Equal(f.endings(t), []string{"completed: text begun"})
}

func TestATurnThatEndsWithoutAWordIsTold(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	_, ann := s.user(t, "ann", account.User)
	for name, c := range map[string]struct {
		ends func(chat string)
		says string
	}{
		"lost while speaking": {func(chat string) {
			s.assistant(t, chat, "msg_1", "")
			s.fact(t, chat, events.TurnLost{Session: "ses_own"})
		}, "OpenCode went away in the middle of the turn"},
		"lost before": {func(chat string) { s.fact(t, chat, events.TurnLost{Session: "ses_own"}) },
			"OpenCode went away in the middle of the turn"},
		"refused": {func(chat string) {
			s.said(t, chat, "session.error", `{"sessionID":"ses_own","error":{"name":"UnknownError","data":{"message":"no such agent"}}}`)
		}, "no such agent"},
		"session deleted": {func(chat string) {
			s.said(t, chat, "session.deleted", `{"sessionID":"ses_own","info":{"id":"ses_own"}}`)
		}, "The turn ended without an answer."},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			chat := s.talking(t, ann)
			f := s.connect(t).follow(t, ann, "chats:"+chat)
			s.fact(t, chat, events.MessageSubmitted{Message: "m_" + chat, Parts: []events.Part{{Type: "text", Text: "go"}}})
			s.fact(t, chat, events.MessageSending{Message: "m_" + chat, Session: "ses_own", EngineMessage: "msg_0", EngineParts: []string{"prt_" + chat}})
			s.fact(t, chat, events.MessageDelivered{Message: "m_" + chat, EngineMessage: "msg_0"})
			c.ends(chat)
			got := f.next(t)
			for got.data.Event != "message_error" {
				got = f.next(t)
			}
			is.Equal(got.data.Data["error"], map[string]any{"message": c.says})
			s.fails(t, chat, "end")
			is.Equal(f.endings(t), nil) // once
		})
	}
}

func TestAHotStreamIsForThoseWhoSeeTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	bobID, bob := s.user(t, "bob", account.User)
	_, ann := s.user(t, "ann", account.User)
	_, root := s.user(t, "root", account.Admin)
	chat := s.talking(t, ann)
	a, b := s.connect(t).follow(t, ann, "chats:"+chat), s.connect(t).follow(t, bob, "chats:"+chat, "chats:*", "chats:nothing")
	s.fails(t, chat, "end")
	a.endings(t)
	status, answer := s.call(t, root, "PATCH", "/api/collections/chats/records/"+chat, map[string]any{"user": bobID})
	if status != 200 {
		t.Fatal(answer)
	}
	b.follow(t, bob).follow(t, bob, "chats:"+chat)
	s.fails(t, chat, "end")
	is.Equal(b.endings(t), nil)
	is.Equal(len(a.frames), 0) // ann sees it no more
}
