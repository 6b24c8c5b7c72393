package watch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/watch"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/blob"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/delegate"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
)

func TestMain(m *testing.M) { expect.Run(m) }

// system is a scripted OpenCode with everything around it, and a chat whose turn runs.
type system struct {
	*bridgetest.System
	delegates *delegate.Delegates
	parent    string
}

func newSystem(t testing.TB) *system {
	t.Helper()
	s := &system{System: bridgetest.NewSystem(t)}
	s.delegates = &delegate.Delegates{Log: s.Log, Chats: s.Chats, Records: s.Records, Workspace: t.TempDir()}
	s.parent = s.Chat("hello")
	s.Start()
	s.prompt("hello")
	return s
}

// watch runs a watch, as a process does, and returns what stops it.
func (s *system) watch(silentAfter time.Duration) (stop func()) {
	w := watch.Delegates{Delegates: s.delegates, Log: s.Log, Model: s.Model, Logger: handlerstest.Quiet(),
		SilentAfter: silentAfter}
	return expect.Background(s.T, w.Run)
}

// prompt is a prompt that OpenCode received.
type prompt struct{ session, message, text string }

// prompt waits for the prompt whose text has these words.
func (s *system) prompt(words string) (found prompt) {
	s.T.Helper()
	expect.Eventually(s.T, "OpenCode is asked: "+words, func() bool {
		for _, r := range s.Requests("POST", "/prompt_async") {
			var p struct {
				MessageID string
				Parts     []struct{ Text string }
			}
			s.Must(json.Unmarshal([]byte(r.Body), &p))
			if strings.Contains(p.Parts[0].Text, words) {
				found = prompt{strings.Split(r.Path, "/")[2], p.MessageID, p.Parts[0].Text}
			}
		}
		return found.session != ""
	})
	return found
}

// answer ends the turn of a prompt with a text.
func (s *system) answer(p prompt, text string) { s.end(p, text, "stop") }

// end is answer with a finish reason.
func (s *system) end(p prompt, text, finish string) {
	s.T.Helper()
	s.AwaitPrompt(p.message)
	id := client.NewID("msg", time.Now())
	begun := fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"sessionID":%q,"role":"assistant","parentID":%q,"time":{"created":1}}}`,
		p.session, id, p.session, p.message)
	s.Happen(s.Durably(p.session, "message.updated", begun)...)
	part := fmt.Sprintf(`{"sessionID":%q,"part":{"id":%q,"messageID":%q,"type":"text","text":%q}}`, p.session,
		client.NewID("prt", time.Now()), id, text)
	s.Happen(s.Durably(p.session, "message.part.updated", part)...)
	whole := strings.Replace(begun, `"created":1}`, `"created":1,"completed":2},"finish":"`+finish+`"`, 1)
	s.Happen(s.Durably(p.session, "message.updated", whole)...)
	s.Happen(bridgetest.Plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"idle"}}`, p.session)))
}

// delegate starts a delegate of a tool call of the parent, and waits for its prompt.
func (s *system) delegate(text string) (delegate.Started, prompt) {
	s.T.Helper()
	w, err := s.delegates.Start(s.T.Context(), delegate.Start{Parent: delegate.Caller{Chat: s.parent, Session: "ses_1",
		Call: "call_" + text}, Message: text})
	s.Must(err)
	return w, s.prompt(text)
}

func (s *system) finished(w delegate.Started) delegate.Result {
	s.T.Helper()
	r, err := s.delegates.Result(s.T.Context(), w.Delegate, w.Message)
	s.Must(err)
	return r
}

// reports are the messages of the parent that carry results.
func (s *system) reports() (all []events.MessageSubmitted) {
	for _, m := range bridgetest.Facts[events.MessageSubmitted](s.System, s.parent) {
		if m.IsReport() {
			all = append(all, m)
		}
	}
	return all
}

func TestADelegateWhoseAnswerWasCutHasFailed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.watch(0)
	w, prompt := s.delegate("one")
	s.end(prompt, "half of", "length")
	r := s.finished(w)
	is.Equal([]string{r.Status, r.Text}, []string{events.DelegateFailed,
		"The answer was cut: the model reached its limit of output.\nIts last text:\nhalf of"})
}

func TestResultsReachAnIdleParentInOneMessageInTheirOrder(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	stop := s.watch(0)
	one, first := s.delegate("one")
	two, second := s.delegate("two")
	s.answer(second, "result of two")
	is.Equal(s.finished(two).Text, "result of two")
	stop()
	s.watch(0) // another process
	s.answer(first, "result of one")
	is.Equal(s.finished(one).Status, events.DelegateCompleted)
	s.Drained()
	is.Equal(len(s.reports()), 0) // the parent's turn runs

	s.answer(s.prompt("hello"), "done")
	report := s.prompt("A report on your delegates")
	is.Equal(report.session, s.prompt("hello").session)
	is.Equal(s.reports()[0].Results, []string{two.Message, one.Message})
	is.True(strings.Index(report.text, "result of two") < strings.Index(report.text, "result of one"))
	s.answer(report, "thank you")
	s.Drained()
	s.watch(0)
	s.Drained()
	is.Equal(len(s.reports()), 1)
	list, err := s.Model.Delegates(t.Context(), s.parent, 10)
	is.NoErr(err)
	is.Equal([]string{list[0].ID, list[0].State, list[0].Line}, []string{one.Delegate, "completed", "result of one"})
	list, err = s.Model.Delegates(t.Context(), s.parent, 1)
	is.NoErr(err)
	is.Equal(list[0].ID, two.Delegate) // the newest: a full list must not hide those that run
}

// refuseLargeBodies makes the log refuse events whose body it stores in BLOBS. accept ends that.
func (s *system) refuseLargeBodies() (accept func()) {
	s.T.Helper()
	js, err := jetstream.New(s.NC)
	s.Must(err)
	blobs, err := js.Stream(s.T.Context(), blob.Stream)
	s.Must(err)
	before := blobs.CachedInfo().Config
	refusing := before
	refusing.MaxMsgSize = 1
	_, err = js.UpdateStream(s.T.Context(), refusing)
	s.Must(err)
	return func() {
		_, err := js.UpdateStream(s.T.Context(), before)
		s.Must(err)
	}
}

func TestAResultThatCannotBeRecordedDelaysNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	large, first := s.delegate("large")
	one, second := s.delegate("one")
	two, third := s.delegate("two")
	s.answer(first, strings.Repeat("large result ", log.MaxInline/10))
	s.answer(second, "result of one")
	s.answer(third, "result of two")
	s.answer(s.prompt("hello"), "done")
	s.Drained()
	accept := s.refuseLargeBodies()
	s.watch(0)
	report := s.prompt("result of one")
	is.Equal(s.reports()[0].Results, []string{one.Message, two.Message})
	s.answer(report, "thank you")
	s.Drained()
	is.Equal(len(bridgetest.Facts[events.DelegateFinished](s.System, large.Delegate)), 0)

	accept()
	s.answer(s.prompt("large result"), "thank you")
	s.Drained()
	s.watch(0)
	s.Drained()
	is.Equal(len(s.reports()), 2)
	is.Equal(s.reports()[1].Results, []string{large.Message})
	for _, w := range []delegate.Started{large, one, two} {
		is.Equal(len(bridgetest.Facts[events.DelegateFinished](s.System, w.Delegate)), 1)
	}
}

func TestAResultThatAToolCallReturnedIsNotReported(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.watch(0)
	one, first := s.delegate("one")
	two, second := s.delegate("two")
	s.answer(first, "result of one")
	s.answer(second, "result of two")
	s.finished(two)
	output, err := json.Marshal(s.finished(one))
	is.NoErr(err)
	hello := s.prompt("hello")
	part := func(call, result string) {
		s.Happen(s.Durably(hello.session, "message.part.updated", fmt.Sprintf(
			`{"sessionID":%q,"part":{"id":"prt_%s","messageID":"msg_0","type":"tool","tool":"pocketcoder_handoff","callID":%q,"state":%s}}`,
			hello.session, call, call, result))...)
	}
	part("call_one", fmt.Sprintf(`{"status":"completed","output":%q}`, output))
	part("call_two", `{"status":"error","error":"MCP error -32001: Request timed out"}`)
	s.answer(hello, "done")
	s.prompt("A report on your delegates")
	is.Equal(s.reports()[0].Results, []string{two.Message})
}

func TestAStoppedOrFailedDelegateSaysSo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.watch(0)
	one, first := s.delegate("one")
	s.answer(s.prompt("hello"), "done")
	stopped := s.finished
	is.NoErr(s.delegates.Stop(t.Context(), delegate.Stop{Delegate: one.Delegate}))
	expect.Eventually(t, "the turn is stopped", func() bool { return len(s.Requests("POST", "/abort")) == 1 })
	s.Happen(s.Durably(first.session, "message.updated", fmt.Sprintf(
		`{"sessionID":%q,"info":{"id":%q,"sessionID":%[1]q,"role":"assistant","parentID":%q,"time":{"created":1,"completed":2},"error":{"name":"MessageAbortedError","data":{}}}}`,
		first.session, client.NewID("msg", time.Now()), first.message))...)
	s.Happen(bridgetest.Plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"idle"}}`, first.session)))
	is.Equal(stopped(one).Status, events.DelegateAborted)
	expect.Contains(t, s.prompt("A report on your delegates").text, "The delegate was stopped.")

	two, _ := s.delegate("two")
	_, err := s.Chats.Delete(t.Context(), chat.Delete{Chat: two.Delegate})
	is.NoErr(err)
	is.Equal(s.finished(two).Status, events.DelegateAborted) // also of a chat that a person deletes
}

func TestASilentDelegateIsReportedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	one, first := s.delegate("one")
	s.answer(s.prompt("hello"), "done")
	s.watch(time.Millisecond)
	report := s.prompt("Nothing has happened in this delegate")
	is.Equal(s.reports()[0].Silent, []string{one.Message})
	s.answer(report, "I wait")
	s.Drained()
	is.Equal(len(bridgetest.Facts[events.DelegateSilent](s.System, one.Delegate)), 1)
	s.answer(first, "at last")
	s.prompt("at last")
	is.Equal(s.reports()[1].Results, []string{one.Message})
	is.Equal(len(s.reports()), 2)
}

func TestTheDelegatesOfADeletedChatAreStopped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.watch(0)
	one, first := s.delegate("one")
	_, err := s.Chats.Delete(t.Context(), chat.Delete{Chat: s.parent})
	is.NoErr(err)
	expect.Eventually(t, "the delegate is stopped", func() bool {
		for _, r := range s.Requests("POST", "/abort") {
			if strings.Contains(r.Path, first.session) {
				return true
			}
		}
		return false
	})
	s.Drained()
	is.Equal(len(bridgetest.Facts[events.AbortRequested](s.System, one.Delegate)), 1)
}

// Who deletes a chat does not want to find its text in the list of delegates, or by a search.
func TestTheDelegatesOfADeletedChatAreDeleted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.watch(0)
	one, first := s.delegate("one")
	below, err := s.delegates.Start(t.Context(), delegate.Start{Parent: delegate.Caller{Chat: one.Delegate},
		Message: "below"})
	is.NoErr(err)
	s.answer(s.prompt("below"), "done")
	s.answer(first, "done")
	s.finished(one)
	_, err = s.Chats.Delete(t.Context(), chat.Delete{Chat: s.parent})
	is.NoErr(err)
	expect.Eventually(t, "all are deleted", func() bool {
		return len(bridgetest.Facts[events.Deleted](s.System, one.Delegate)) == 1 &&
			len(bridgetest.Facts[events.Deleted](s.System, below.Delegate)) == 1
	})
}

// A delegate that a message wakes runs as one that was started.
func TestAMessageWakesNoMoreDelegatesThanMayRun(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.delegates.Limits = delegate.Limits{PerChat: 2}
	s.delegates.Active = func(ctx context.Context) ([]string, error) {
		s.Drained()
		return s.Model.ActiveDelegates(ctx)
	}
	s.watch(0)
	one, first := s.delegate("one")
	s.answer(first, "done")
	s.finished(one)
	two, second := s.delegate("two")
	s.delegate("three")
	send := func(from, to, urgency string) error {
		_, err := s.delegates.Send(t.Context(), delegate.Send{From: delegate.Caller{Chat: from}, Receiver: to, Text: "again",
			Urgency: urgency})
		return err
	}
	for _, urgency := range []string{delegate.UrgencyQueue, delegate.UrgencySteer, delegate.UrgencyStop} {
		expect.Contains(t, fmt.Sprint(send(s.parent, one.Delegate, urgency)), "has 2 running delegates")
	}
	expect.Contains(t, fmt.Sprint(send(two.Delegate, one.Delegate, "")), "has 2 running delegates")
	is.NoErr(send(s.parent, two.Delegate, "")) // which runs
	is.NoErr(send(two.Delegate, s.parent, "")) // which is no delegate
	s.answer(second, "done")
	s.finished(two)
	s.answer(s.prompt("again"), "done") // to the running delegate
	expect.Eventually(t, "two is idle", func() bool { return send(s.parent, one.Delegate, "") == nil })
	expect.Contains(t, fmt.Sprint(send(s.parent, two.Delegate, "")), "has 2 running delegates") // one was woken
	_, err := s.delegates.Start(t.Context(), delegate.Start{Parent: delegate.Caller{Chat: s.parent}, Message: "four"})
	expect.Contains(t, fmt.Sprint(err), "has 2 running delegates")
	_, err = s.delegates.Send(t.Context(), delegate.Send{Receiver: two.Delegate, Text: "a person may"})
	is.NoErr(err)
}
