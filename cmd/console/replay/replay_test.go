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
	"pocketcoder/cmd/console/turn"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// openLogWithTrace returns a connection to a system with a trace and PocketCoder's own events.
func openLogWithTrace(t *testing.T, name string) (*client.System, []events.Event) {
	t.Helper()
	system := webtest.NewSystem(t)
	all, _ := cmdtest.Trace(t, name)
	session := turn.ReadPayload(events.OpenCode{Properties: all[0].Data}).SessionID
	all = slices.Insert(all, 0, cmdtest.Own(t, 1, "user:u", events.ChatCreated{Title: name}),
		cmdtest.Own(t, 2, "engine:local", events.SessionBound{Session: session, Directory: "/workspace"}))
	for i := range all {
		all[i] = cmdtest.Numbered(all[i], i+1)
	}
	if _, err := system.Log.AppendAll(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	return client.At(system.Local(t)), all
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
	at := func(seq int) (m struct {
		Turn        string
		Permissions []events.PermissionAsk
	}) {
		is.NoErr(json.Unmarshal([]byte(replayed(t, s, Options{Chat: "chat1", At: uint64(seq), JSON: true})), &m))
		return m
	}
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
	all, _ := cmdtest.Trace(t, "question")
	request := slices.IndexFunc(all, func(e events.Event) bool { return e.Subject.Kind == "opencode.question.asked" })
	is.Equal(len(pendingQuestions(all[:request+1])), 2)
	is.Equal(len(pendingQuestions(all)), 0)
	id := strings.TrimSuffix(pendingQuestions(all[:request+1])[0], "/0")
	one := cmdtest.Own(t, 100, "user:u", events.QuestionAnswered{Question: id, Index: 0, Answers: []string{"Red"}})
	is.Equal(pendingQuestions(append(all[:request+1:request+1], one)), []string{id + "/1"})
}

func TestReplayAtOmitsRemovedMessages(t *testing.T) {
	is := is.New(t)
	f := newFold()
	all, _ := cmdtest.Trace(t, "perm-bash-once")
	last := ""
	for _, e := range all {
		f.apply(e)
		if p := turn.ReadPayload(events.OpenCode{Properties: e.Data}); p.Info.Role == "assistant" {
			last = p.Info.ID
		}
	}
	var out strings.Builder
	for _, e := range f.events() {
		out.Write(e.Data)
	}
	expect.Contains(t, out.String(), last)
	body, err := json.Marshal(map[string]string{"sessionID": "ses_1", "messageID": last})
	is.NoErr(err)
	removed, err := events.NewOpenCode("chat1", "local", "evt_removed", -1,
		events.OpenCode{Type: "message.removed", Properties: body})
	is.NoErr(err)
	f.apply(removed)
	for _, e := range f.events() {
		is.True(!bytes.Contains(e.Data, []byte(`"`+last+`"`)))
	}
}

func TestReplayAtShowsACallAfterItsRequest(t *testing.T) {
	is := is.New(t)
	f := newFold()
	all, _ := cmdtest.Trace(t, "perm-bash-once")
	for _, e := range all {
		f.apply(e)
	}
	request, completed := 0, 0
	for i, e := range f.events() {
		p := turn.ReadPayload(events.OpenCode{Properties: e.Data})
		if typ, _ := e.Subject.OpenCodeType(); typ == events.PermissionAsked {
			request = i
		} else if p.Part.Type == "tool" {
			completed = i
		}
	}
	is.True(0 < request && request < completed)
}

func TestPauseFollowsTheSpeedAndIsLimited(t *testing.T) {
	is := is.New(t)
	is.Equal(pauseAt(10*time.Second, 10), time.Second)
	is.Equal(pauseAt(time.Hour, 1), longestPause)
	is.Equal(pauseAt(time.Hour, math.Inf(1)), time.Duration(0))
	is.Equal(pauseAt(-time.Second, 1), time.Duration(0)) // two writers' clocks
	is.Equal(pauseAt(math.MaxInt64, 1e-9), longestPause)
}
