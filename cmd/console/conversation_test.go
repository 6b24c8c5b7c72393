package console

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/cmdtest"
	"pocketcoder/cmd/console/turn"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/web/webtest"
)

// The read model holds a whole turn before it is shown. In this turn the model continued after a denial.
func TestConversationEndsAfterTheEndIsShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	system := webtest.NewSystem(t)
	all, _ := cmdtest.Trace(t, "perm-bash-reject-message")
	session := turn.ReadPayload(events.OpenCode{Properties: all[0].Data}).SessionID
	all = append([]events.Event{
		cmdtest.Own(t, 1, "user:u", events.ChatCreated{Engine: "local"}),
		cmdtest.Own(t, 2, "engine:local", events.SessionBound{Session: session, Directory: "/workspace"}),
	}, all...)
	_, err := system.Log.AppendAll(t.Context(), all)
	is.NoErr(err)

	var out bytes.Buffer
	c := newConversation(client.At(system.Local(t)), Options{Chat: "chat1", Once: true, Out: &out}, nil)
	c.working, c.caughtUp = true, true
	over := false
	for i, e := range all {
		is.NoErr(c.applyBatch(t.Context(), log.Batch{Events: []events.Event{cmdtest.Numbered(e, i+1)}}))
		var code turn.End
		if code, over = c.isOver(); over {
			is.Equal(code, turn.End(turn.Completed))
			is.True(bytes.Contains(out.Bytes(), []byte("done")))
		}
	}
	is.True(over)
}

func TestInputThatEndsAfterADenialEndsAsDenied(t *testing.T) {
	is := is.New(t)
	c := newConversation(&client.System{}, Options{Chat: "chat1"}, nil)
	c.pending, c.ended = []pendingItem{{}}, true
	code, over := c.isOver()
	is.Equal([]any{code, over}, []any{turn.End(turn.Pending), true})
	c.turn.Deny("bash", "")
	code, over = c.isOver()
	is.Equal([]any{code, over}, []any{turn.End(turn.Denied), true})
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
			for _, fact := range []handlerstest.Fact{handlerstest.AskBash("per_1", "ls"), referred("per_1"),
				handlerstest.AsksTwo, {By: events.ActorSandbox, Data: keep}, referred("keep_1")} {
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
