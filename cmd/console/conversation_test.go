package console

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/ops/expect"
	"pocketcoder/web/webtest"
)

// followed returns the end of a conversation that shows the events of chat1 while the read model holds all of them, and
// what it has shown by then.
func followed(t *testing.T, all []events.Event) (End, string) {
	t.Helper()
	is := is.New(t)
	system := webtest.NewSystem(t)
	all = append([]events.Event{cmdtest.Own(t, 1, "user:u", events.ChatCreated{Engine: "local"}),
		cmdtest.Own(t, 2, "engine:local", events.SessionBound{Session: "ses_1", Directory: "/workspace"})}, all...)
	_, err := system.Log.AppendAll(t.Context(), all)
	is.NoErr(err)
	var out bytes.Buffer
	c := newConversation(client.At(system.Local(t)), Options{Chat: "chat1", Once: true, Out: &out, Err: &out}, nil)
	c.working, c.caughtUp, c.exists = true, true, true
	code, over := End(0), false
	for i := 0; i < len(all) && !over; i++ {
		e := all[i]
		is.NoErr(c.applyBatch(t.Context(), log.Batch{Events: []events.Event{cmdtest.Numbered(e, i+1)}}))
		code, over = c.isOver()
	}
	is.True(over)
	c.show.Finish()
	is.NoErr(c.printEnd(t.Context(), code))
	return code, out.String()
}

// The read model holds a whole turn before it is shown. Where a turn with a denial completes, the model continued.
func TestConversationEndsAfterTheEndIsShown(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		code End
		text string
	}{
		"perm-bash-once": {Completed, "done"}, "perm-bash-reject-message": {Completed, "done"},
		"perm-bash-reject": {Denied, "was answered in OpenCode: reject"}, "child-shell": {Completed, "done"},
		"abort-text": {Aborted, "the turn was aborted"}, "error-401": {Failed, "the turn failed: "},
		"error-nomodel": {Failed, "the turn failed: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, _ := cmdtest.Trace(t, name)
			session := render.ReadPayload(events.OpenCode{Properties: all[0].Data}).SessionID
			bound := cmdtest.Own(t, 1, "engine:local", events.SessionBound{Session: session, Directory: "/workspace"})
			code, shown := followed(t, append([]events.Event{bound}, all...))
			is.New(t).Equal(code, want.code)
			expect.Contains(t, shown, want.text)
		})
	}
}

// No value of --approve decides whether a created name is kept. With all, the person answers questions.
func TestApproveAnswersInPlaceOfThePerson(t *testing.T) {
	t.Parallel()
	for approve, want := range map[string]struct{ answers, pending []string }{
		ApproveNone: {answers: []string{"per_1 denied: everything is denied in this conversation", "que_1 rejected: true"}},
		ApproveAll:  {[]string{"per_1 authorized: "}, []string{"que_1/0", "que_1/1"}},
	} {
		t.Run(approve, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			system := webtest.NewSystem(t)
			_, _, err := system.Chats.Create(t.Context(), chat.Create{Chat: "c1"})
			is.NoErr(err)
			c := newConversation(client.At(system.Local(t)), Options{Chat: "c1", Approve: approve, Out: io.Discard}, nil)
			referred := func(id string) handlerstest.Fact {
				return handlerstest.Fact{By: events.ActorPolicy, Data: events.PermissionReferred{Permission: id}}
			}
			keep := events.PermissionRequested{Permission: "keep_1", Type: events.KindKeep, Patterns: []string{".envrc"},
				Metadata: events.MustEncode(events.KeepMetadata{Quarantined: events.Quarantined{Item: "q1", Name: ".envrc"}})}
			for _, fact := range []handlerstest.Fact{handlerstest.Bash("per_1", "ls"), referred("per_1"),
				handlerstest.TwoRequests, {By: events.ActorSandbox, Data: keep}, referred("keep_1")} {
				handlerstest.Happened(t, system.Log, "c1", fact)
				all, _ := handlerstest.History(t, system.Log, "c1")
				is.NoErr(c.applyBatch(t.Context(), log.Batch{Events: all[len(all)-1:]}))
				is.NoErr(c.next(t.Context()))
			}
			var answers, pending []string
			_, data := handlerstest.History(t, system.Log, "c1")
			for _, d := range data {
				switch d := d.(type) {
				case events.PermissionDecided:
					answers = append(answers, fmt.Sprintf("%s %s: %s", d.Permission, d.Decision, d.Reason))
				case events.QuestionAnswered:
					answers = append(answers, fmt.Sprintf("%s rejected: %t", d.Question, d.Rejected))
				}
			}
			for _, a := range c.pending {
				pending = append(pending, a.name())
			}
			is.Equal(answers, want.answers)
			is.Equal(pending, want.pending)
		})
	}
}
