package handlers

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
)

func TestUpdateChat(t *testing.T) {
	created := fact{data: events.ChatCreated{Title: "first", User: "alice", Engine: "local"}}
	updated := fact{cause: "cmd1", data: events.ChatUpdated{Title: new("second"), Archived: new(true), Tags: new("a,b")}}
	deleted := fact{data: events.Deleted{}}
	for name, c := range map[string]struct {
		given []fact
		when  UpdateChat
		then  events.Data // nil is no event
		seq   uint64
		code  Code
	}{
		"a title":               {given: []fact{created}, when: UpdateChat{Title: new("second")}, then: events.ChatUpdated{Title: new("second")}},
		"what it was before":    {given: []fact{created, updated}, when: UpdateChat{Title: new("first")}, then: events.ChatUpdated{Title: new("first")}},
		"only what changes":     {given: []fact{created, updated}, when: UpdateChat{Title: new("second"), Archived: new(false)}, then: events.ChatUpdated{Archived: new(false)}},
		"everything":            {given: []fact{created}, when: UpdateChat{Title: new("t"), Description: new("d"), Tags: new("x"), Agent: new("a"), User: new("bob"), Archived: new(true)}, then: events.ChatUpdated{Title: new("t"), Description: new("d"), Tags: new("x"), Agent: new("a"), User: new("bob"), Archived: new(true)}},
		"to nothing":            {given: []fact{created, updated}, when: UpdateChat{Tags: new("")}, then: events.ChatUpdated{Tags: new("")}},
		"what is true":          {given: []fact{created}, when: UpdateChat{Title: new("first"), User: new("alice"), Description: new(""), Archived: new(false)}, seq: 1},
		"what has become true":  {given: []fact{created, updated}, when: UpdateChat{Title: new("second"), Tags: new("a,b")}, seq: 2},
		"nothing":               {given: []fact{created, updated}, when: UpdateChat{}, seq: 2},
		"again, after others":   {given: []fact{created, updated, {data: events.ChatUpdated{Title: new("third")}}}, when: UpdateChat{Command: Command{ID: "cmd1"}, Title: new("second")}, seq: 2},
		"a chat that is none":   {when: UpdateChat{Title: new("x")}, code: NotFound},
		"a deleted chat":        {given: []fact{created, deleted}, when: UpdateChat{Title: new("x")}, code: NotFound},
		"a deleted chat, as is": {given: []fact{created, deleted}, when: UpdateChat{Title: new("first")}, code: NotFound},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			s := &chatState{}
			given(t, s, c.given...)
			d, seq, err := s.update(c.when)
			is.Equal(refusal(t, err), c.code)
			is.Equal(d, c.then)
			is.Equal(seq, c.seq)
		})
	}
}

func TestChatIsUpdatedAndRepeatsChangeNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	update := UpdateChat{Command: Command{Actor: alice}, Chat: "c1", Title: new("  renamed "), Archived: new(true)}
	seq, err := h.UpdateChat(t.Context(), update)
	is.NoErr(err)
	again, err := h.UpdateChat(t.Context(), update)
	is.NoErr(err)
	is.Equal(again, seq)
	_, err = h.UpdateChat(t.Context(), UpdateChat{Chat: "c1", Title: new(" ")})
	is.NoErr(err)
	_, data := history(t, h.Log, "c1")
	is.Equal(of[events.ChatUpdated](data), []events.ChatUpdated{{Title: new("renamed"), Archived: new(true)}, {Title: new(DefaultTitle)}})
	for says, bad := range map[string]UpdateChat{
		"title: want at most 500 bytes":             {Chat: "c1", Title: new(strings.Repeat("x", 501))},
		"description: want at most 5000 characters": {Chat: "c1", Description: new(strings.Repeat("ä", 5001))},
		"tags: want":      {Chat: "c1", Tags: new("\xff")},
		"agent: parse id": {Chat: "c1", Agent: new("a.b")},
		"user: parse id":  {Chat: "c1", User: new("")},
		"chat: parse id":  {Chat: "c1.>"},
	} {
		_, err := h.UpdateChat(t.Context(), bad)
		is.Equal(refusal(t, err), Invalid)
		expect.Contains(t, err.Error(), says)
	}
}

func TestDeletedChatIsStoppedAndGone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	seq, err := h.DeleteChat(t.Context(), DeleteChat{Command: Command{ID: "cmd1", Actor: alice}, Chat: "c1"})
	is.NoErr(err)
	again, err := h.DeleteChat(t.Context(), DeleteChat{Command: Command{ID: "cmd2", Actor: alice}, Chat: "c1"})
	is.NoErr(err)
	is.Equal(again, seq)
	all, data := history(t, h.Log, "c1")
	is.Equal(data[len(data)-2:], []events.Data{events.AbortRequested{}, events.Deleted{}})
	for _, e := range all[len(all)-2:] {
		is.Equal(e.Actor, alice)
		is.Equal(e.Cause, "cmd1")
	}
	for name, give := range map[string]func() error{
		"submit": func() error {
			_, _, err := h.SubmitMessage(t.Context(), SubmitMessage{Chat: "c1", Parts: say("hi")})
			return err
		},
		"decide": func() error {
			_, err := h.DecidePermission(t.Context(), DecidePermission{Command: Command{Actor: alice}, Chat: "c1", Permission: "per_1", Decision: events.Denied})
			return err
		},
		"a rule": func() error {
			_, err := h.DecidePermission(t.Context(), DecidePermission{Command: Command{Actor: events.ActorPolicy}, Chat: "c1", Permission: "per_1", Decision: events.Authorized})
			return err
		},
		"request": func() error {
			_, _, err := h.RequestPermission(t.Context(), RequestPermission{Chat: "c1", Type: "edit"})
			return err
		},
		"answer": func() error {
			_, err := h.AnswerQuestion(t.Context(), AnswerQuestion{Chat: "c1", Question: "que_1", Answers: []string{"a"}})
			return err
		},
		"abort": func() error { _, err := h.AbortTurn(t.Context(), AbortTurn{Chat: "c1"}); return err },
		"revert": func() error {
			_, err := h.RevertChat(t.Context(), RevertChat{Chat: "c1", Message: "msg_1"})
			return err
		},
		"fork": func() error { _, _, err := h.ForkChat(t.Context(), ForkChat{Chat: "c1"}); return err },
		"update": func() error {
			_, err := h.UpdateChat(t.Context(), UpdateChat{Chat: "c1", Archived: new(true)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			err := give()
			is.Equal(refusal(t, err), NotFound)
			is.Equal(err.Error(), "there is no chat c1")
		})
	}
	_, _, err = h.CreateChat(t.Context(), CreateChat{Command: Command{Actor: alice}, Chat: "c1", Title: "first"})
	is.Equal(refusal(t, err), Conflict)
	now, _ := history(t, h.Log, "c1")
	is.Equal(len(now), len(all))
	_, err = h.DeleteChat(t.Context(), DeleteChat{Chat: "c9"})
	is.Equal(refusal(t, err), NotFound)
	_, err = h.DeleteChat(t.Context(), DeleteChat{Chat: "*"})
	is.Equal(refusal(t, err), Invalid)
}

func TestRevertIsRecorded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	first, err := h.RevertChat(t.Context(), RevertChat{Command: Command{ID: "cmd1", Actor: alice}, Chat: "c1", Message: "msg_1"})
	is.NoErr(err)
	again, err := h.RevertChat(t.Context(), RevertChat{Command: Command{ID: "cmd1", Actor: alice}, Chat: "c1", Message: "msg_1"})
	is.NoErr(err)
	is.Equal(again, first)
	_, err = h.RevertChat(t.Context(), RevertChat{Chat: "c1"})
	is.NoErr(err)
	_, data := history(t, h.Log, "c1")
	is.Equal(of[events.RevertRequested](data), []events.RevertRequested{{Message: "msg_1"}, {}})
	_, err = h.RevertChat(t.Context(), RevertChat{Chat: "c1", Message: "msg.1"})
	is.Equal(refusal(t, err), Invalid)
	_, err = h.RevertChat(t.Context(), RevertChat{Chat: "c9"})
	is.Equal(refusal(t, err), NotFound)
}

func TestForkIsANewChatAndAWish(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := &Handlers{Log: eventstest.Log(t)}
	_, _, err := h.CreateChat(t.Context(), CreateChat{Chat: "c1", Title: "first", User: "alice", Agent: "poco", Engine: "e2"})
	is.NoErr(err)
	_, err = h.UpdateChat(t.Context(), UpdateChat{Chat: "c1", Title: new("renamed"), User: new("bob")})
	is.NoErr(err)
	fork := ForkChat{Command: Command{ID: "cmd1", Actor: alice}, Chat: "c1", Message: "msg_1"}
	chat, seq, err := h.ForkChat(t.Context(), fork)
	is.NoErr(err)
	same, again, err := h.ForkChat(t.Context(), fork)
	is.NoErr(err)
	is.Equal(same, chat)
	is.Equal(again, seq)
	fork = ForkChat{Chat: "c1", Message: "msg_2", Into: "c3", Title: "mine"}
	for range 2 { // with an id of the caller's, twice is once
		_, _, err = h.ForkChat(t.Context(), fork)
		is.NoErr(err)
	}
	_, data := history(t, h.Log, "c1")
	is.Equal(of[events.ForkRequested](data), []events.ForkRequested{{Message: "msg_1", Chat: chat}, {Message: "msg_2", Chat: "c3"}})
	_, data = history(t, h.Log, chat)
	is.Equal(data, []events.Data{events.ChatCreated{Title: "renamed (fork)", User: "bob", Engine: "e2", Agent: "poco"}})
	_, data = history(t, h.Log, "c3")
	is.Equal(data, []events.Data{events.ChatCreated{Title: "mine", User: "bob", Engine: "e2", Agent: "poco"}})
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(6))

	_, err = h.DeleteChat(t.Context(), DeleteChat{Chat: "c3"})
	is.NoErr(err)
	for name, c := range map[string]struct {
		when ForkChat
		code Code
	}{
		"into itself":           {ForkChat{Chat: "c1", Into: "c1"}, Conflict},
		"into another chat":     {ForkChat{Chat: chat, Into: "c1"}, Conflict},
		"of another message":    {ForkChat{Chat: "c1", Message: "msg_3", Into: chat}, Conflict},
		"into a deleted chat":   {fork, Conflict},
		"of a chat that is not": {ForkChat{Chat: "c9"}, NotFound},
		"of all chats":          {ForkChat{Chat: "*"}, Invalid},
		"into all chats":        {ForkChat{Chat: "c1", Into: ">"}, Invalid},
		"of a bad message":      {ForkChat{Chat: "c1", Message: "m 1"}, Invalid},
		"with a long title":     {ForkChat{Chat: "c1", Title: strings.Repeat("x", 501)}, Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := h.ForkChat(t.Context(), c.when)
			is.New(t).Equal(refusal(t, err), c.code)
		})
	}
}

// Several systems are given the same commands at once: each is carried out once.
func TestForkAndDeletionHappenOnceAmongSystems(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	chats := make([]string, 5)
	for _, err := range atOnce(len(chats), func(i int) (err error) {
		chats[i], _, err = (&Handlers{Log: h.Log}).ForkChat(t.Context(), ForkChat{Command: Command{ID: "cmd1"}, Chat: "c1"})
		return err
	}) {
		is.NoErr(err)
	}
	for _, err := range atOnce(5, func(int) error {
		_, err := (&Handlers{Log: h.Log}).DeleteChat(t.Context(), DeleteChat{Chat: "c1"})
		return err
	}) {
		is.NoErr(err)
	}
	_, data := history(t, h.Log, "c1")
	is.Equal(of[events.ForkRequested](data), []events.ForkRequested{{Chat: chats[0]}})
	is.Equal(len(of[events.Deleted](data)), 1)
}

func TestForkTitleIsCutBetweenLetters(t *testing.T) {
	is := is.New(t)
	is.Equal(forkTitle("a"), "a (fork)")
	is.Equal(forkTitle(strings.Repeat("ä", 250)), strings.Repeat("ä", 246)+" (fork)")
}
