package replay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// openLogWithTrace returns a connection to a system with a trace and PocketCoder's own events.
func openLogWithTrace(t *testing.T, name string) (*client.System, []events.Event) {
	t.Helper()
	all, _ := cmdtest.Trace(t, name)
	return openLog(t, name, all)
}

// openLog returns a connection to a system with a chat that has these events after its first ones, and all events of
// its log.
func openLog(t *testing.T, name string, all []events.Event) (_ *client.System, stored []events.Event) {
	t.Helper()
	system := webtest.NewSystem(t)
	session := render.ReadPayload(events.OpenCode{Properties: all[0].Data}).SessionID
	all = slices.Insert(all, 0, cmdtest.Own(t, 1, "user:u", events.ChatCreated{Title: name}),
		cmdtest.Own(t, 2, "engine:local", events.SessionBound{Session: session, Directory: "/workspace"}))
	if _, err := system.Log.AppendAll(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	_, err := system.Log.Fold(t.Context(), "evt.>", 0, func(e events.Event) error {
		stored = append(stored, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return client.At(system.Local(t)), stored
}

func replayed(t *testing.T, s *client.System, o Options) string {
	t.Helper()
	var out bytes.Buffer
	if o.To == 0 {
		o.To = math.MaxUint64
	}
	if o.Speed == 0 {
		o.Speed = math.Inf(1)
	}
	if err := Show(t.Context(), s, o, render.New(render.NewScreen(&out, false, false)), &out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// momentAt returns chat1 as of an event.
func momentAt(t *testing.T, s *client.System, seq int) (m moment) {
	t.Helper()
	body := replayed(t, s, Options{Chat: "chat1", At: uint64(seq), JSON: true})
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// renderedLive shows events as they happen.
func renderedLive(all []events.Event) string {
	var out bytes.Buffer
	r := render.New(render.NewScreen(&out, false, false))
	for _, e := range all {
		r.Event(e)
		for _, a := range r.Due() {
			r.ShowRequest(a)
		}
	}
	r.EndLine()
	return out.String()
}

func TestReplayShowsTheSameAsTheLiveView(t *testing.T) {
	is := is.New(t)
	s, all := openLogWithTrace(t, "child-shell")
	is.Equal(replayed(t, s, Options{Chat: "chat1"}), renderedLive(all))
}

func TestReplayFromTheMiddleIndentsSubagents(t *testing.T) {
	s, _ := openLogWithTrace(t, "child-shell")
	all := replayed(t, s, Options{Chat: "chat1"})
	for from := range uint64(60) {
		part := replayed(t, s, Options{Chat: "chat1", From: from})
		for line := range strings.Lines(part) {
			expect.Contains(t, all, line) // indented as in the whole
		}
	}
}

func TestReplayAsJSONHasEveryEvent(t *testing.T) {
	is := is.New(t)
	s, all := openLogWithTrace(t, "perm-bash-once")
	var got []string
	for line := range strings.Lines(replayed(t, s, Options{Chat: "chat1", JSON: true, From: 3, To: 7})) {
		var e struct {
			ID       string
			Sequence uint64
			Data     json.RawMessage
		}
		is.NoErr(json.Unmarshal([]byte(line), &e))
		is.True(bytes.Equal(e.Data, all[e.Sequence-1].Data)) // unchanged
		got = append(got, e.ID)
	}
	var want []string
	for _, e := range all[2:7] {
		want = append(want, e.ID)
	}
	is.Equal(got, want)
}

func TestUnknownChatIsNotReplayed(t *testing.T) {
	is := is.New(t)
	s, _ := openLogWithTrace(t, "error-401")
	show := render.New(render.NewScreen(io.Discard, false, false))
	err := Show(t.Context(), s, Options{Chat: "chat2", To: math.MaxUint64}, show, io.Discard)
	is.True(err != nil)
	is.Equal(err.Error(), "there is no chat chat2 in the log")
	err = Show(t.Context(), s, Options{Chat: "chat1", At: 0, From: 10_000, To: math.MaxUint64}, show, io.Discard)
	is.NoErr(err) // the chat is there, that part of it is empty
}

func TestReplayAtShowsPendingRequests(t *testing.T) {
	is := is.New(t)
	s, all := openLogWithTrace(t, "perm-bash-once")
	request := 1 + slices.IndexFunc(all,
		func(e events.Event) bool { return e.Subject.Kind == "opencode.permission.asked" })
	at := func(seq int) moment { return momentAt(t, s, seq) }
	is.Equal(len(at(request-1).Permissions), 0)
	m := at(request)
	is.Equal(m.Turn, "assistant")
	is.Equal(len(m.Permissions), 1)
	is.Equal(m.Permissions[0].Command(), "echo permitted")
	m = at(len(all))
	is.Equal(m.Turn, "user")
	is.Equal(len(m.Permissions), 0)
	text := replayed(t, s, Options{Chat: "chat1", At: uint64(request)})
	expect.Contains(t, text, "? bash  echo permitted\n")
	is.True(strings.HasSuffix(text, fmt.Sprintf("— at #%d: the turn is the assistant's; pending: permissions 1, questions 0\n", request)))
}

func TestReplayAtShowsPendingQuestions(t *testing.T) {
	is := is.New(t)
	trace, _ := cmdtest.Trace(t, "question")
	asked := slices.IndexFunc(trace, func(e events.Event) bool { return e.Subject.Kind == "opencode.question.asked" })
	questions, err := events.QuestionRequestOf(trace[asked])
	is.NoErr(err)
	answer := cmdtest.Own(t, 1, "user:u", events.QuestionAnswered{Question: questions.ID, Answers: []string{"Red"}})
	s, all := openLog(t, "question", slices.Insert(trace, asked+1, answer))
	request := len(all) - len(trace) + asked // without the answer
	is.Equal(momentAt(t, s, request).Questions, []string{questions.ID + "/0", questions.ID + "/1"})
	is.Equal(momentAt(t, s, request+1).Questions, []string{questions.ID + "/1"})
	is.Equal(len(momentAt(t, s, len(all)).Questions), 0)
}

// An undo removes messages. A chat can be replayed after its deletion.
func TestReplayAtOmitsRemovedMessages(t *testing.T) {
	is := is.New(t)
	trace, _ := cmdtest.Trace(t, "perm-bash-once")
	last, session := "", ""
	for _, e := range trace {
		if p := render.ReadPayload(events.OpenCode{Properties: e.Data}); p.Info.Role == "assistant" {
			last, session = p.Info.ID, p.SessionID
		}
	}
	removed, err := events.NewOpenCode("chat1", "local", "evt_removed", -1, events.OpenCode{Type: "message.removed",
		Properties: events.MustEncode(map[string]string{"sessionID": session, "messageID": last})})
	is.NoErr(err)
	s, all := openLog(t, "removed", append(trace, removed, cmdtest.Own(t, 1, "user:u", events.Deleted{})))
	mentions := func(seq int) bool {
		return slices.ContainsFunc(momentAt(t, s, seq).Events, func(e events.Event) bool {
			return bytes.Contains(e.Data, []byte(`"`+last+`"`))
		})
	}
	is.True(mentions(len(all) - 2))
	is.True(!mentions(len(all) - 1))
	is.True(!mentions(len(all))) // after the deletion
}

func TestReplayAtShowsACallAfterItsRequest(t *testing.T) {
	is := is.New(t)
	s, all := openLogWithTrace(t, "perm-bash-once")
	var requests, calls []int
	for i, e := range momentAt(t, s, len(all)).Events {
		p := render.ReadPayload(events.OpenCode{Properties: e.Data})
		if typ, _ := e.Subject.OpenCodeType(); typ == events.PermissionAsked {
			requests = append(requests, i)
		} else if p.Part.Type == "tool" {
			calls = append(calls, i)
		}
	}
	is.True(len(requests) == 1 && len(calls) == 1)
	is.True(requests[0] < calls[0])
}

func TestPauseFollowsTheSpeedAndIsLimited(t *testing.T) {
	is := is.New(t)
	is.Equal(pauseAt(10*time.Second, 10), time.Second)
	is.Equal(pauseAt(time.Hour, 1), longestPause)
	is.Equal(pauseAt(time.Hour, math.Inf(1)), time.Duration(0))
	is.Equal(pauseAt(-time.Second, 1), time.Duration(0)) // two writers' clocks
	is.Equal(pauseAt(math.MaxInt64, 1e-9), longestPause)
}
