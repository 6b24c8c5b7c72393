package chat_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/permissiontest"
	"pocketcoder/ops/expect"
)

func TestChatIsUpdatedAndRepeatsChangeNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	update := chat.Update{Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1", Title: new("  renamed "),
		Archived: new(true)}
	seq, err := h.Chats.Update(t.Context(), update)
	is.NoErr(err)
	repeated, err := h.Chats.Update(t.Context(), update)
	is.NoErr(err)
	is.Equal(repeated, seq)
	_, err = h.Chats.Update(t.Context(), chat.Update{Chat: "c1", Title: new(" ")})
	is.NoErr(err)
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(handlerstest.Of[events.ChatUpdated](data), []events.ChatUpdated{{Title: new("renamed"), Archived: new(true)},
		{Title: new(events.DefaultTitle)}})
	for want, bad := range map[string]chat.Update{
		"title: want at most 500 bytes":             {Chat: "c1", Title: new(strings.Repeat("x", 501))},
		"description: want at most 5000 characters": {Chat: "c1", Description: new(strings.Repeat("ä", 5001))},
		"tags: want":      {Chat: "c1", Tags: new("\xff")},
		"agent: parse id": {Chat: "c1", Agent: new("a.b")},
		"user: parse id":  {Chat: "c1", User: new("")},
		"chat: parse id":  {Chat: "c1.>"},
	} {
		_, err := h.Chats.Update(t.Context(), bad)
		is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
		expect.Contains(t, err.Error(), want)
	}
}

func TestDeletedChatIsStoppedAndGone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	seq, err := h.Chats.Delete(t.Context(), chat.Delete{Command: handlers.Command{ID: "cmd1", Actor: handlerstest.Alice},
		Chat: "c1"})
	is.NoErr(err)
	repeated, err := h.Chats.Delete(t.Context(), chat.Delete{Command: handlers.Command{ID: "cmd2",
		Actor: handlerstest.Alice}, Chat: "c1"})
	is.NoErr(err)
	is.Equal(repeated, seq)
	all, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(data[len(data)-2:], []events.Data{events.AbortRequested{}, events.Deleted{}})
	for _, e := range all[len(all)-2:] {
		is.Equal(e.Actor, handlerstest.Alice)
		is.Equal(e.Cause, "cmd1")
	}
	for name, give := range map[string]func() error{
		"submit": func() error {
			_, _, err := h.Chats.SubmitMessage(t.Context(), chat.SubmitMessage{Chat: "c1", Parts: handlerstest.Say("hi")})
			return err
		},
		"decide": func() error {
			_, err := h.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: handlerstest.Alice},
				Chat: "c1", Permission: "per_1", Decision: events.Denied})
			return err
		},
		"a rule": func() error {
			_, err := h.Permissions.Decide(t.Context(), permission.Decide{Command: handlers.Command{Actor: events.ActorPolicy},
				Chat: "c1", Permission: "per_1", Decision: events.Authorized})
			return err
		},
		"request": func() error {
			_, _, err := h.Permissions.Submit(t.Context(), permission.Submit{Chat: "c1", Type: "edit"})
			return err
		},
		"answer": func() error {
			_, err := h.Chats.AnswerQuestion(t.Context(), chat.AnswerQuestion{Chat: "c1", Question: "que_1",
				Answers: []string{"a"}})
			return err
		},
		"abort": func() error { _, err := h.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: "c1"}); return err },
		"revert": func() error {
			_, err := h.Chats.Revert(t.Context(), chat.Revert{Chat: "c1", Message: "msg_1"})
			return err
		},
		"fork": func() error { _, _, err := h.Chats.Fork(t.Context(), chat.Fork{Chat: "c1"}); return err },
		"update": func() error {
			_, err := h.Chats.Update(t.Context(), chat.Update{Chat: "c1", Archived: new(true)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			err := give()
			is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
			is.Equal(err.Error(), "there is no chat c1")
		})
	}
	_, _, err = h.Chats.Create(t.Context(), chat.Create{Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1",
		Title: "first"})
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	now, _ := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(now), len(all))
	_, err = h.Chats.Delete(t.Context(), chat.Delete{Chat: "c9"})
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
	_, err = h.Chats.Delete(t.Context(), chat.Delete{Chat: "*"})
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
}

func TestRevertIsRecorded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	first, err := h.Chats.Revert(t.Context(), chat.Revert{Command: handlers.Command{ID: "cmd1",
		Actor: handlerstest.Alice}, Chat: "c1", Message: "msg_1"})
	is.NoErr(err)
	repeated, err := h.Chats.Revert(t.Context(), chat.Revert{Command: handlers.Command{ID: "cmd1",
		Actor: handlerstest.Alice}, Chat: "c1", Message: "msg_1"})
	is.NoErr(err)
	is.Equal(repeated, first)
	_, err = h.Chats.Revert(t.Context(), chat.Revert{Chat: "c1"})
	is.NoErr(err)
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(handlerstest.Of[events.RevertRequested](data), []events.RevertRequested{{Message: "msg_1"}, {}})
	_, err = h.Chats.Revert(t.Context(), chat.Revert{Chat: "c1", Message: "msg.1"})
	is.Equal(handlerstest.Refusal(t, err), handlers.Invalid)
	_, err = h.Chats.Revert(t.Context(), chat.Revert{Chat: "c9"})
	is.Equal(handlerstest.Refusal(t, err), handlers.NotFound)
}

func TestForkIsANewChatAndAWish(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.New(eventstest.Log(t))
	_, _, err := h.Chats.Create(t.Context(), chat.Create{Chat: "c1", Title: "first", User: "alice", Agent: "poco",
		Engine: "e2"})
	is.NoErr(err)
	_, err = h.Chats.Update(t.Context(), chat.Update{Chat: "c1", Title: new("renamed"), User: new("bob")})
	is.NoErr(err)
	fork := chat.Fork{Command: handlers.Command{ID: "cmd1", Actor: handlerstest.Alice}, Chat: "c1", Message: "msg_1"}
	chatID, seq, err := h.Chats.Fork(t.Context(), fork)
	is.NoErr(err)
	same, repeated, err := h.Chats.Fork(t.Context(), fork)
	is.NoErr(err)
	is.Equal(same, chatID)
	is.Equal(repeated, seq)
	fork = chat.Fork{Chat: "c1", Message: "msg_2", Into: "c3", Title: "mine"}
	for range 2 { // with an id of the caller's, twice is once
		_, _, err = h.Chats.Fork(t.Context(), fork)
		is.NoErr(err)
	}
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(handlerstest.Of[events.ForkRequested](data), []events.ForkRequested{{Message: "msg_1", Chat: chatID},
		{Message: "msg_2", Chat: "c3"}})
	_, data = handlerstest.History(t, h.Log, chatID)
	is.Equal(data, []events.Data{events.ChatCreated{Title: "renamed (fork)", User: "bob", Engine: "e2", Agent: "poco"}})
	_, data = handlerstest.History(t, h.Log, "c3")
	is.Equal(data, []events.Data{events.ChatCreated{Title: "mine", User: "bob", Engine: "e2", Agent: "poco"}})
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(6))

	_, err = h.Chats.Delete(t.Context(), chat.Delete{Chat: "c3"})
	is.NoErr(err)
	for name, c := range map[string]struct {
		when chat.Fork
		code handlers.Code
	}{
		"into itself":           {chat.Fork{Chat: "c1", Into: "c1"}, handlers.Conflict},
		"into another chat":     {chat.Fork{Chat: chatID, Into: "c1"}, handlers.Conflict},
		"of another message":    {chat.Fork{Chat: "c1", Message: "msg_3", Into: chatID}, handlers.Conflict},
		"into a deleted chat":   {fork, handlers.Conflict},
		"of a chat that is not": {chat.Fork{Chat: "c9"}, handlers.NotFound},
		"of all chats":          {chat.Fork{Chat: "*"}, handlers.Invalid},
		"into all chats":        {chat.Fork{Chat: "c1", Into: ">"}, handlers.Invalid},
		"of a bad message":      {chat.Fork{Chat: "c1", Message: "m 1"}, handlers.Invalid},
		"with a long title":     {chat.Fork{Chat: "c1", Title: strings.Repeat("x", 501)}, handlers.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := h.Chats.Fork(t.Context(), c.when)
			is.New(t).Equal(handlerstest.Refusal(t, err), c.code)
		})
	}
}

// Several systems are given the same commands at once: each is carried out once.
func TestForkAndDeletionHappenOnceAmongSystems(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.Open(t)
	chats := make([]string, 5)
	for _, err := range handlerstest.AtOnce(len(chats), func(i int) (err error) {
		chats[i], _, err = (permissiontest.New(h.Log)).Chats.Fork(t.Context(),
			chat.Fork{Command: handlers.Command{ID: "cmd1"}, Chat: "c1"})
		return err
	}) {
		is.NoErr(err)
	}
	for _, err := range handlerstest.AtOnce(5, func(int) error {
		_, err := (permissiontest.New(h.Log)).Chats.Delete(t.Context(), chat.Delete{Chat: "c1"})
		return err
	}) {
		is.NoErr(err)
	}
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(handlerstest.Of[events.ForkRequested](data), []events.ForkRequested{{Chat: chats[0]}})
	is.Equal(len(handlerstest.Of[events.Deleted](data)), 1)
}

func TestFirstAnswerWinsWhenManyAnswerAtOnce(t *testing.T) {
	is := is.New(t)
	h := permissiontest.Open(t)
	const clients = 8
	refused := make(chan error, clients)
	for n := range clients {
		go func() {
			_, err := h.Chats.AnswerQuestion(t.Context(),
				chat.AnswerQuestion{Command: handlers.Command{Actor: handlerstest.Alice}, Chat: "c1", Question: "que_1",
					Answers: []string{string(rune('a' + n))}})
			refused <- err
		}()
	}
	won := 0
	for range clients {
		if err := <-refused; err == nil {
			won++
		} else {
			is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
			expect.Contains(t, err.Error(), "answered already, by user:alice")
		}
	}
	is.Equal(won, 1)
	_, all := handlerstest.History(t, h.Log, "c1")
	is.Equal(len(handlerstest.Of[events.QuestionAnswered](all)), 1)
}

func TestChatIsCreatedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.New(eventstest.Log(t))
	chatID, seq, err := h.Chats.Create(t.Context(), chat.Create{Command: handlers.Command{Actor: handlerstest.Alice},
		Title: "  a  ", User: "alice"})
	is.NoErr(err)
	repeated, same, err := h.Chats.Create(t.Context(), chat.Create{Command: handlers.Command{Actor: handlerstest.Alice},
		Chat: chatID, Title: "a", User: "alice"})
	is.NoErr(err)
	is.Equal(repeated, chatID)
	is.Equal(same, seq)
	_, _, err = h.Chats.Create(t.Context(), chat.Create{Chat: chatID, Title: "b", User: "alice"})
	is.Equal(err, handlers.Refused{Code: handlers.Conflict, Text: "chat " + chatID + " exists already", Field: "id"})
	all, data := handlerstest.History(t, h.Log, chatID)
	is.Equal(data, []events.Data{events.ChatCreated{Title: "a", User: "alice", Engine: "local"}})
	is.Equal(all[0].Actor, handlerstest.Alice)
	named, _, err := h.Chats.Create(t.Context(), chat.Create{Title: " \n"})
	is.NoErr(err)
	_, data = handlerstest.History(t, h.Log, named)
	is.Equal(data[0].(events.ChatCreated).Title, "")
}

func TestRepeatedCreationUndoesNoLaterChange(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := permissiontest.New(eventstest.Log(t))
	create := chat.Create{Chat: "c1", Title: "a", Description: "about a", Archived: true, Tags: "x,y"}
	_, first, err := h.Chats.Create(t.Context(), create)
	is.NoErr(err)
	seq, err := h.Chats.Update(t.Context(), chat.Update{Chat: "c1", Description: new("about a"), Archived: new(true),
		Tags: new("x,y")})
	is.NoErr(err)
	is.Equal(seq, first) // all of it is true since then
	_, err = h.Chats.Update(t.Context(), chat.Update{Chat: "c1", Description: new("about b"), Archived: new(false),
		Tags: new("z")})
	is.NoErr(err)
	_, repeated, err := h.Chats.Create(t.Context(), create)
	is.NoErr(err)
	is.Equal(repeated, first)
	create.Tags = "z"
	_, _, err = h.Chats.Create(t.Context(), create)
	// other content is another chat, even if it is what the chat has come to
	is.Equal(handlerstest.Refusal(t, err), handlers.Conflict)
	_, data := handlerstest.History(t, h.Log, "c1")
	is.Equal(data, []events.Data{
		events.ChatCreated{Title: "a", Engine: "local", Description: "about a", Archived: true, Tags: "x,y"},
		events.ChatUpdated{Description: new("about b"), Archived: new(false), Tags: new("z")},
	})
}
