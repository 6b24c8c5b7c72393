package permission_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/ops/expect"
)

func TestBadCommandsAreRefusedAndChangeNothing(t *testing.T) {
	t.Parallel()
	h := permissiontest.Open(t)
	submit := func(chatID, message, text string) error {
		_, _, err := h.Chats.SubmitMessage(t.Context(), chat.SubmitMessage{Chat: chatID, Message: message,
			Parts: handlerstest.Say(text)})
		return err
	}
	create := func(c chat.Create) error { _, _, err := h.Chats.Create(t.Context(), c); return err }
	decide := func(c permission.Decide) error { _, err := h.Permissions.Decide(t.Context(), c); return err }
	answer := func(c chat.AnswerQuestion) error { _, err := h.Chats.AnswerQuestion(t.Context(), c); return err }
	abort := func(chatID string) error {
		_, err := h.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: chatID})
		return err
	}
	_, before := handlerstest.History(t, h.Log, "c1")
	for name, c := range map[string]struct {
		err   error
		code  handlers.Code
		want  string
		field string
	}{
		"message to an unknown chat":    {submit("c9", "m1", "hi"), handlers.NotFound, "there is no chat c9", ""},
		"abort in an unknown chat":      {abort("c9"), handlers.NotFound, "there is no chat c9", ""},
		"ask of an unknown chat":        {decide(permission.Decide{Chat: "c9", Permission: "per_1", Decision: events.Denied}), handlers.NotFound, "per_1 in chat c9", ""},
		"question of an unknown chat":   {answer(chat.AnswerQuestion{Chat: "c9", Question: "que_1", Answers: []string{"a"}}), handlers.NotFound, "que_1/0 in chat c9", ""},
		"message to every chat":         {submit("*", "m1", "hi"), handlers.Invalid, `chat: parse id "*"`, "chat"},
		"message to no chat":            {submit("", "m1", "hi"), handlers.Invalid, `chat: parse id ""`, "chat"},
		"message to a deeper chat":      {submit("c1.x", "m1", "hi"), handlers.Invalid, "chat: parse id", "chat"},
		"abort everywhere":              {abort(">"), handlers.Invalid, "chat: parse id", "chat"},
		"decide everywhere":             {decide(permission.Decide{Chat: "*", Permission: "per_1", Decision: events.Denied}), handlers.Invalid, "chat: parse id", "chat"},
		"answer everywhere":             {answer(chat.AnswerQuestion{Chat: "*", Question: "que_1", Answers: []string{"a"}}), handlers.Invalid, "chat: parse id", "chat"},
		"malformed message id":          {submit("c1", "m 1", "hi"), handlers.Invalid, `message: parse id "m 1"`, "id"},
		"long message id":               {submit("c1", strings.Repeat("m", 65), "hi"), handlers.Invalid, "message: parse id", "id"},
		"empty message":                 {submit("c1", "m1", ""), handlers.Invalid, "the message is empty", "parts"},
		"message over 1 MiB":            {submit("c1", "m1", strings.Repeat("x", 1<<20)), handlers.Invalid, "the limit is 1048576", "parts"},
		"malformed chat id":             {create(chat.Create{Chat: "a b"}), handlers.Invalid, "chat: parse id", "id"},
		"long description":              {create(chat.Create{Chat: "c2", Description: strings.Repeat("x", 5001)}), handlers.Invalid, "description: want at most 5000", "description"},
		"tags that are not UTF-8":       {create(chat.Create{Chat: "c2", Tags: "\xff"}), handlers.Invalid, "tags: want", "tags"},
		"chat of every engine":          {create(chat.Create{Chat: "c2", Engine: "*"}), handlers.Invalid, "engine: parse id", "engine"},
		"long title":                    {create(chat.Create{Chat: "c2", Title: strings.Repeat("x", 501)}), handlers.Invalid, "title: want at most 500 bytes", "title"},
		"title that is not UTF-8":       {create(chat.Create{Chat: "c2", Title: "a\xff"}), handlers.Invalid, "title", "title"},
		"decision that is none":         {decide(permission.Decide{Chat: "c1", Permission: "per_1", Decision: "always"}), handlers.Invalid, `want "authorized" or "denied", got "always"`, "status"},
		"no decision":                   {decide(permission.Decide{Chat: "c1", Permission: "per_1"}), handlers.Invalid, "decision", "status"},
		"decision on an unknown ask":    {decide(permission.Decide{Chat: "c1", Permission: "per_9", Decision: events.Denied}), handlers.NotFound, "per_9", ""},
		"answer that says nothing":      {answer(chat.AnswerQuestion{Chat: "c1", Question: "que_1"}), handlers.Invalid, "the answer is empty", "reply"},
		"answer to an unknown question": {answer(chat.AnswerQuestion{Chat: "c1", Question: "que_9", Answers: []string{"a"}}), handlers.NotFound, "que_9/0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			is.Equal(handlerstest.Refusal(t, c.err), c.code)
			is.True(c.err != nil && strings.Contains(c.err.Error(), c.want))
			is.Equal(c.err.(handlers.Refused).Field, c.field)
			is.True(len(c.err.Error()) < 300)
		})
	}
	is := is.New(t)
	_, after := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(after), len(before))
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(len(before)))
}

func TestCommandGivenTwiceIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	h := permissiontest.Open(t)
	by := func(id string) handlers.Command { return handlers.Command{ID: id, Actor: handlerstest.Alice} }
	for name, give := range map[string]func() (uint64, error){
		"decide": func() (uint64, error) {
			return h.Permissions.Decide(t.Context(), permission.Decide{Command: by("cmd1"), Chat: "c1", Permission: "per_1",
				Decision: events.Denied})
		},
		"answer": func() (uint64, error) {
			return h.Chats.AnswerQuestion(t.Context(), chat.AnswerQuestion{Command: by("cmd2"), Chat: "c1", Question: "que_1",
				Answers: []string{"a"}})
		},
		"submit": func() (uint64, error) {
			_, seq, err := h.Chats.SubmitMessage(t.Context(), chat.SubmitMessage{Command: by("cmd3"), Chat: "c1", Message: "m1",
				Parts: handlerstest.Say("hi")})
			return seq, err
		},
		"abort": func() (uint64, error) {
			return h.Chats.AbortTurn(t.Context(), chat.AbortTurn{Command: by("cmd4"), Chat: "c1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			first, err := give()
			is.NoErr(err)
			events, _ := handlerstest.History(t, h.Log, "c1")
			again, err := give()
			is.NoErr(err)
			is.Equal(again, first)
			now, _ := handlerstest.History(t, h.Log, "c1")
			is.Equal(len(now), len(events))
			is.True(now[len(now)-1].Cause != "")
		})
	}
	is := is.New(t)
	_, _, err := h.Chats.SubmitMessage(t.Context(), chat.SubmitMessage{Chat: "c1", Message: "m1",
		Parts: handlerstest.Say("other words")})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	is.Equal(err.Error(), "message m1 was submitted already with other content")
	_, err = h.Chats.AbortTurn(t.Context(), chat.AbortTurn{Command: by("cmd5"), Chat: "c1", Session: "ses_2"})
	is.NoErr(err) // a command with another id is not a repetition
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(handlerstest.Of[events.AbortRequested](data)), 2)
}

func TestSecondDecisionIsRefusedAndTheLogUnchanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	_, err := h.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{ID: "cmd1",
		Actor: handlerstest.Alice}, Chat: "c1", Permission: "per_1", Decision: events.Denied, Reason: " too late "})
	is.NoErr(err)
	before, _ := handlerstest.History(t, h.Log, "c1")
	for _, second := range []events.Decision{events.Authorized, events.Denied} { // the denial for another reason: for none
		_, err = h.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{ID: "cmd2",
			Actor: "user:bob"}, Chat: "c1", Permission: "per_1", Decision: second})
		is.Equal(err, handlers.Refused{Code: handlers.Conflict,
			Text: "permission per_1 has been decided already: denied by user:alice", Field: "status"})
	}
	seq, err := h.Permissions.Decide(t.Context(),
		permission.Decide{Command: handlers.Command{ID: "cmd3", Actor: "user:bob"}, Chat: "c1", Permission: "per_1",
			Decision: events.Denied, Reason: "too late"})
	is.NoErr(err) // it is so
	is.Equal(seq, before[len(before)-1].Seq)
	after, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(after), len(before))
	d := handlerstest.Of[events.PermissionDecided](data)[0]
	is.Equal(d.Reason, "too late")
	is.Equal(d.Command, "ls")
	is.Equal(after[len(after)-1].Actor, handlerstest.Alice)
}

// Another system's handlers decide between this one's reading and its appending.
func TestDecisionTakenInBetweenWins(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	elsewhere := permissiontest.New(h.Log)
	slow := permission.Decide{Chat: "c1", Permission: "per_1", Decision: events.Authorized}
	tries, f := 0, handlers.NewFold(permission.NewState(), permission.Filters("c1")...)
	_, err := f.ExecuteOne(t.Context(), h.Log, "c1", handlers.Command{Actor: handlerstest.Alice},
		func(s *permission.State) (events.Data, uint64, error) {
			if tries++; tries == 1 {
				_, err := elsewhere.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: "user:bob"},
					Chat: "c1", Permission: "per_1", Decision: events.Denied})
				is.NoErr(err)
			}
			return s.Decide(slow)
		})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	is.Equal(err.Error(), "permission per_1 has been decided already: denied by user:bob")
	is.Equal(tries, 2)
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(handlerstest.Of[events.PermissionDecided](data)), 1)
}

func TestDecisionOnAnotherRequestInBetweenOnlyRepeats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	elsewhere := permissiontest.New(h.Log)
	tries, f := 0, handlers.NewFold(permission.NewState(), permission.Filters("c1")...)
	_, err := f.ExecuteOne(t.Context(), h.Log, "c1", handlers.Command{Actor: handlerstest.Alice},
		func(s *permission.State) (events.Data, uint64, error) {
			if tries++; tries == 1 {
				_, err := elsewhere.Permissions.Decide(t.Context(), permission.Decide{Chat: "c1", Permission: "per_2",
					Decision: events.Denied})
				is.NoErr(err)
			}
			return s.Decide(permission.Decide{Chat: "c1", Permission: "per_1", Decision: events.Authorized})
		})
	is.NoErr(err)
	is.Equal(tries, 2)
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(handlerstest.Of[events.PermissionDecided](data)), 2)
}

func TestFirstWriterWins(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	systems := []*permissiontest.Handlers{h, permissiontest.New(h.Log), permissiontest.New(h.Log)}
	decisions := []events.Decision{events.Authorized, events.Denied}
	errs := handlerstest.AtOnce(24, func(i int) error {
		_, err := systems[i%len(systems)].Permissions.Decide(t.Context(), permission.Decide{
			Command: handlers.Command{ID: fmt.Sprint("cmd", i), Actor: handlerstest.Alice}, Chat: "c1", Permission: "per_1", Decision: decisions[i%2],
		})
		return err
	})
	_, data := handlerstest.History(t, h.Log, "c1")
	all := handlerstest.Of[events.PermissionDecided](data)
	is.Equal(len(all), 1)
	for i, err := range errs {
		if decisions[i%2] == all[0].Decision { // the one who won, and those who wanted the same
			is.NoErr(err)
		} else {
			is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
			expect.Contains(t, err.Error(), "decided already")
		}
	}
}

// Commands that do not contradict each other are all carried out, however many come at once.
func TestManyRequestsAreDecidedAtOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	const n = 40
	for i := range n {
		handlerstest.Happened(t, h.Log, "c1", handlerstest.Bash(fmt.Sprint("per_x", i), "ls"))
	}
	for _, err := range handlerstest.AtOnce(n, func(i int) error {
		_, err := h.Permissions.Decide(t.Context(), permission.Decide{Chat: "c1", Permission: fmt.Sprint("per_x", i),
			Decision: events.Authorized})
		return err
	}) {
		is.NoErr(err)
	}
}
