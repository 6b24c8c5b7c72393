package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/mcp/gateway"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/delegate"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/projectionstest"
)

// delegating is a fixture with delegates, whose turns do not run. Its client notes the progress of its calls.
type delegating struct {
	*fixture
	t       *testing.T
	conn    *nats.Conn
	log     *log.Log
	session *sdk.ClientSession
	calls   atomic.Int64
	agent   string // of the session

	mu       sync.Mutex
	progress []string
}

func openDelegating(t *testing.T) *delegating {
	t.Helper()
	is := is.New(t)
	f := &delegating{fixture: open(t), t: t, conn: eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))}
	f.log = eventstest.Open(t, f.conn)
	model, err := projectionstest.Open(t.Context(), expect.MemoryDir(t), f.log)
	is.NoErr(err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { model.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended; model.Close() })
	f.Records, f.Chats = recordtype.Open(f.log, recordtype.Machine{}), &chat.Chats{Log: f.log}
	f.Model, f.Every = model, time.Millisecond
	f.Delegates = &delegate.Delegates{Log: f.log, Chats: f.Chats, Records: f.Records,
		In: func(context.Context, string) (delegate.Place, error) {
			return delegate.Place{Workspace: t.TempDir()}, nil
		}}
	for _, id := range []string{"c1", "c2"} {
		_, _, err = f.Chats.Create(t.Context(), chat.Create{Chat: id})
		is.NoErr(err)
	}
	f.session, err = f.connect(t, f.Header, func(p *sdk.ProgressNotificationParams) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.progress = append(f.progress, p.Message)
	})
	is.NoErr(err)
	return f
}

// call calls a tool as session ses_1 of chat c1. Without a call id the call has one of its own. Tests call tools at
// once.
func (f *delegating) call(tool, id string, args map[string]any) (text string, failed bool) {
	f.t.Helper()
	n := f.calls.Add(1)
	if id == "" {
		id = fmt.Sprint("call_", n)
	}
	f.running(n, id)
	args["caller"] = sign(f.Key, tool, "ses_1", id, fmt.Sprint(n))
	params := &sdk.CallToolParams{Name: tool, Arguments: args}
	params.SetProgressToken(id)
	r, err := f.session.CallTool(f.t.Context(), params)
	is.New(f.t).NoErr(err)
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

// running lets OpenCode report message n with the call, which runs.
func (f *delegating) running(n int64, call string) {
	f.t.Helper()
	is := is.New(f.t)
	message := fmt.Sprint("msg_", n)
	for _, o := range []events.OpenCode{
		{Type: "message.updated", Properties: fmt.Appendf(nil, `{"sessionID":"ses_1","info":{"id":%q,"sessionID":"ses_1",
			"role":"assistant","agent":%q,"parentID":"msg_0","time":{"created":1}}}`, message, f.agent)},
		{Type: "message.part.updated", Properties: fmt.Appendf(nil, `{"sessionID":"ses_1","part":{"id":"prt_%d",
			"sessionID":"ses_1","messageID":%q,"type":"tool","tool":"t","callID":%q,"state":{"status":"running"}}}`, n, message,
			call)},
	} {
		e, err := events.NewOpenCode("c1", "local", fmt.Sprint("evt_", n, o.Type), -1, o)
		is.NoErr(err)
		seq, err := f.log.Append(f.t.Context(), e)
		is.NoErr(err)
		is.NoErr(f.Model.Wait(f.t.Context(), seq))
	}
}

// result is what handoff, assign and check_worker return.
type result struct {
	Message      string `json:"message"`
	Result       string `json:"result_id"`
	Output       string `json:"output"`
	Delegate     string `json:"terminal_id"`
	TmuxWindowID int    `json:"tmux_window_id"`
	Status       string `json:"status"`
	Success      bool   `json:"success"`
}

func (f *delegating) ok(tool, id string, args map[string]any) (r result) {
	f.t.Helper()
	text, failed := f.call(tool, id, args)
	if failed || json.Unmarshal([]byte(text), &r) != nil {
		f.t.Fatalf("%s: %s", tool, text)
	}
	return r
}

func TestTheCallsOfAChatThatWaitAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := openDelegating(t)
	asked, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 32)
	waiting := func() int {
		all, err := f.Model.OwnQuestions(t.Context())
		is.NoErr(err)
		return len(all)
	}
	for i := range cap(ended) {
		n := f.calls.Add(1)
		id := fmt.Sprint("call_", n)
		f.running(n, id)
		args := map[string]any{"question": "Which?", "caller": sign(f.Key, "ask_person", "ses_1", id, id)}
		go func() {
			answer, err := f.session.CallTool(asked, &sdk.CallToolParams{Name: "ask_person", Arguments: args})
			if err == nil {
				err = fmt.Errorf("answered with %+v", answer.Content)
			}
			ended <- err
		}()
		expect.Eventually(t, "the call waits", func() bool {
			select {
			case err := <-ended:
				t.Fatalf("call %d ended: %v", i, err)
			default:
			}
			return waiting() == i+1
		})
	}
	text, failed := f.call("mcp_status", "", map[string]any{})
	is.True(failed)
	expect.Contains(t, text, "32 calls of this chat still run, which is the limit.")
	cancel()
	for range cap(ended) {
		is.True(errors.Is(<-ended, context.Canceled))
	}
	expect.Eventually(t, "a call is served again", func() bool {
		_, failed := f.call("mcp_status", "", map[string]any{})
		return !failed
	})
	is.NoErr(f.Model.CatchUp(t.Context()))
	is.Equal(waiting(), cap(ended)) // as when OpenCode has died: a person may still answer
}

// A call ends while the log stores the question of its MCP server: the server has it, and its answer is not read any
// more.
func TestAQuestionThatIsLeftWhileItIsRecordedExpires(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := openDelegating(t)
	sent, err := f.conn.SubscribeSync(events.ChatSubject("c1", events.QuestionRequested{}.Kind()))
	is.NoErr(err)
	is.NoErr(f.conn.Flush())
	f.running(0, "call_1")
	for range 20 {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, _, err := f.Elicit(ctx, gateway.Elicitation{Server: "lab", Params: &sdk.ElicitParams{Message: "Go on?"},
				Call: gateway.Call{Chat: "c1", Session: "ses_1", Call: "call_1"}})
			done <- err
		}()
		_, err := sent.NextMsgWithContext(t.Context())
		is.NoErr(err)
		leave()
		is.True(<-done != nil)
	}
	_, data := handlerstest.History(t, f.log, "c1")
	is.Equal(len(handlerstest.Of[events.QuestionRequested](data)), 20)
	is.Equal(len(handlerstest.Of[events.QuestionExpired](data)), 20)
}

func TestHandoffThatWaitsReportsItsProgress(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := openDelegating(t)
	r := f.ok("handoff", "", map[string]any{"message": "work", "timeout": 1})
	is.True(!r.Success)
	expect.Contains(t, r.Message, "no result after 1 s")
	f.mu.Lock()
	reports := len(f.progress)
	is.True(reports > 2) // so that OpenCode's limit of 60 s does not fire
	expect.Contains(t, f.progress[0], "Delegate "+r.Delegate+" was started")
	f.mu.Unlock()

	is.Equal(f.ok("check_worker", "", map[string]any{"worker": r.Delegate}).Result, "")
	seq, err := f.Delegates.Finish(t.Context(), delegate.Finish{Delegate: r.Delegate,
		Message: events.FirstMessageOf(r.Delegate),
		Status:  "completed", Text: strings.Repeat("long ", 10_000)})
	is.NoErr(err)
	is.NoErr(f.Model.Wait(t.Context(), seq))
	late := f.ok("check_worker", "", map[string]any{"worker": r.Delegate})
	is.Equal([]any{len(late.Output), late.Success, late.Status, late.Result != ""}, []any{50_000, true, "completed", true})
}

func TestEachCallStartsADelegate(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := openDelegating(t)
	first := f.ok("assign", "call_a", map[string]any{"message": "one"})
	second := f.ok("assign", "call_a", map[string]any{"message": "two"}) // some models repeat the ids of their calls
	is.True(first.Delegate != second.Delegate)
	is.Equal([]int{first.TmuxWindowID, second.TmuxWindowID}, []int{1, 2})
	text, failed := f.call("list_workers", "", map[string]any{})
	is.True(!failed)
	expect.Contains(t, text, first.Delegate)
	expect.Contains(t, text, second.Delegate)
	text, failed = f.call("stop_worker", "", map[string]any{"worker": second.Delegate})
	is.True(!failed)
	expect.Contains(t, text, "is being stopped")
	text, failed = f.call("send_message", "", map[string]any{"receiver": first.Delegate, "message": "hurry"})
	is.True(!failed)
	expect.Contains(t, text, `"state":"queued"`)
}

func TestTheSubagentThatDelegatesIsRecorded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := openDelegating(t)
	e, err := events.NewOpenCode("c1", "local", "evt_sub", -1, events.OpenCode{Type: "session.created",
		Properties: []byte(`{"sessionID":"ses_1","info":{"id":"ses_1","parentID":"ses_0","title":"t","directory":"/w","time":{"created":1,"updated":1}}}`)})
	is.NoErr(err)
	_, err = f.log.Append(t.Context(), e)
	is.NoErr(err)
	f.agent = "explore"
	r := f.ok("assign", "", map[string]any{"message": "work"})
	_, data := handlerstest.History(t, f.log, r.Delegate)
	is.Equal(data[0].(events.ChatCreated).Parent.Subagent, "explore")
}

func TestCallsThatMakeNoSenseAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := openDelegating(t)
	own, err := f.Delegates.Start(t.Context(), delegate.Start{Parent: delegate.Caller{Chat: "c1"},
		Message: "of this tree"})
	is.NoErr(err)
	other, err := f.Delegates.Start(t.Context(), delegate.Start{Parent: delegate.Caller{Chat: "c2"},
		Message: "of another tree"})
	is.NoErr(err)
	is.NoErr(f.Model.Wait(t.Context(), other.Seq))
	for name, c := range map[string]struct {
		tool, says string
		args       map[string]any
	}{
		"a timeout of a day":         {"handoff", "1 to 3600", map[string]any{"message": "m", "timeout": 86400}},
		"an unknown agent":           {"assign", "There is no agent", map[string]any{"message": "m", "agent_profile": "Unknown"}},
		"a directory elsewhere":      {"assign", "not a directory in the workspace", map[string]any{"message": "m", "working_directory": "/etc"}},
		"no message":                 {"assign", "the message is empty", map[string]any{"message": ""}},
		"a delegate of another tree": {"check_worker", "no delegate", map[string]any{"worker": other.Delegate}},
		"a stop in another tree":     {"stop_worker", "not a delegate of this chat", map[string]any{"worker": other.Delegate}},
		"a message to another tree":  {"send_message", "does not belong", map[string]any{"receiver": other.Delegate, "message": "m"}},
		"a parent that is none":      {"send_message", "no parent", map[string]any{"receiver": "parent", "message": "m"}},
		"an urgency that is none":    {"send_message", "want queue, steer or stop", map[string]any{"receiver": own.Delegate, "message": "m", "urgency": "now"}},
		"a limit that is none":       {"check_inbox", "1 to 100", map[string]any{"limit": 1000}},
		"a proposal without a kind":  {"propose", "cannot be proposed", map[string]any{"kind": "", "name": "n", "content": "c"}},
	} {
		text, failed := f.call(c.tool, "", c.args)
		if !failed || !strings.Contains(text, c.says) {
			t.Errorf("%s: %s", name, text)
		}
	}
}
