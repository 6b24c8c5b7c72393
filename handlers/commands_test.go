package handlers

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
)

func say(words string) []events.Part { return []events.Part{{Type: "text", Text: words}} }

// open gives handlers on a log that holds one chat with two asks and two questions.
func open(t testing.TB) *Handlers {
	t.Helper()
	h := &Handlers{Log: eventstest.Log(t)}
	_, _, err := h.CreateChat(t.Context(), CreateChat{Command: Command{Actor: alice}, Chat: "c1", Title: "first"})
	is.New(t).NoErr(err)
	happened(t, h.Log, "c1", askBash("per_1", "ls"), askBash("per_2", "id"), asksTwo)
	return h
}

func TestChatIsCreatedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := &Handlers{Log: eventstest.Log(t)}
	chat, seq, err := h.CreateChat(t.Context(), CreateChat{Command: Command{Actor: alice}, Title: "  a  ", User: "alice"})
	is.NoErr(err)
	again, same, err := h.CreateChat(t.Context(), CreateChat{Command: Command{Actor: alice}, Chat: chat, Title: "a", User: "alice"})
	is.NoErr(err)
	is.Equal(again, chat)
	is.Equal(same, seq)
	_, _, err = h.CreateChat(t.Context(), CreateChat{Chat: chat, Title: "b", User: "alice"})
	is.Equal(err, Refused{Code: Conflict, Text: "chat " + chat + " exists already", Field: "id"})
	all, data := history(t, h.Log, chat)
	is.Equal(data, []events.Data{events.ChatCreated{Title: "a", User: "alice", Engine: "local"}})
	is.Equal(all[0].Actor, alice)
	named, _, err := h.CreateChat(t.Context(), CreateChat{Title: " \n"})
	is.NoErr(err)
	_, data = history(t, h.Log, named)
	is.Equal(data[0].(events.ChatCreated).Title, DefaultTitle)
}

func TestRepeatedCreationUndoesNoLaterChange(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := &Handlers{Log: eventstest.Log(t)}
	create := CreateChat{Chat: "c1", Title: "a", Description: "about a", Archived: true, Tags: "x,y"}
	_, first, err := h.CreateChat(t.Context(), create)
	is.NoErr(err)
	seq, err := h.UpdateChat(t.Context(), UpdateChat{Chat: "c1", Description: new("about a"), Archived: new(true), Tags: new("x,y")})
	is.NoErr(err)
	is.Equal(seq, first) // all of it is true since then
	_, err = h.UpdateChat(t.Context(), UpdateChat{Chat: "c1", Description: new("about b"), Archived: new(false), Tags: new("z")})
	is.NoErr(err)
	_, again, err := h.CreateChat(t.Context(), create)
	is.NoErr(err)
	is.Equal(again, first)
	create.Tags = "z"
	_, _, err = h.CreateChat(t.Context(), create)
	is.Equal(refusal(t, err), Conflict) // other content is another chat, even if it is what the chat has come to
	_, data := history(t, h.Log, "c1")
	is.Equal(data, []events.Data{
		events.ChatCreated{Title: "a", Engine: "local", Description: "about a", Archived: true, Tags: "x,y"},
		events.ChatUpdated{Description: new("about b"), Archived: new(false), Tags: new("z")},
	})
}

func TestBadCommandsAreRefusedAndChangeNothing(t *testing.T) {
	t.Parallel()
	h := open(t)
	submit := func(chat, message, text string) error {
		_, _, err := h.SubmitMessage(t.Context(), SubmitMessage{Chat: chat, Message: message, Parts: say(text)})
		return err
	}
	create := func(c CreateChat) error { _, _, err := h.CreateChat(t.Context(), c); return err }
	decide := func(c DecidePermission) error { _, err := h.DecidePermission(t.Context(), c); return err }
	answer := func(c AnswerQuestion) error { _, err := h.AnswerQuestion(t.Context(), c); return err }
	abort := func(chat string) error { _, err := h.AbortTurn(t.Context(), AbortTurn{Chat: chat}); return err }
	_, before := history(t, h.Log, "c1")
	for name, c := range map[string]struct {
		err   error
		code  Code
		says  string
		field string
	}{
		"message to an unknown chat":    {submit("c9", "m1", "hi"), NotFound, "there is no chat c9", ""},
		"abort in an unknown chat":      {abort("c9"), NotFound, "there is no chat c9", ""},
		"ask of an unknown chat":        {decide(DecidePermission{Chat: "c9", Permission: "per_1", Decision: events.Denied}), NotFound, "per_1 in chat c9", ""},
		"question of an unknown chat":   {answer(AnswerQuestion{Chat: "c9", Question: "que_1", Answers: []string{"a"}}), NotFound, "que_1/0 in chat c9", ""},
		"message to every chat":         {submit("*", "m1", "hi"), Invalid, `chat: parse id "*"`, "chat"},
		"message to no chat":            {submit("", "m1", "hi"), Invalid, `chat: parse id ""`, "chat"},
		"message to a deeper chat":      {submit("c1.x", "m1", "hi"), Invalid, "chat: parse id", "chat"},
		"abort everywhere":              {abort(">"), Invalid, "chat: parse id", "chat"},
		"decide everywhere":             {decide(DecidePermission{Chat: "*", Permission: "per_1", Decision: events.Denied}), Invalid, "chat: parse id", "chat"},
		"answer everywhere":             {answer(AnswerQuestion{Chat: "*", Question: "que_1", Answers: []string{"a"}}), Invalid, "chat: parse id", "chat"},
		"malformed message id":          {submit("c1", "m 1", "hi"), Invalid, `message: parse id "m 1"`, "id"},
		"long message id":               {submit("c1", strings.Repeat("m", 65), "hi"), Invalid, "message: parse id", "id"},
		"empty message":                 {submit("c1", "m1", ""), Invalid, "the message is empty", "parts"},
		"message over 1 MiB":            {submit("c1", "m1", strings.Repeat("x", 1<<20)), Invalid, "the limit is 1048576", "parts"},
		"malformed chat id":             {create(CreateChat{Chat: "a b"}), Invalid, "chat: parse id", "id"},
		"long description":              {create(CreateChat{Chat: "c2", Description: strings.Repeat("x", 5001)}), Invalid, "description: want at most 5000", "description"},
		"tags that are not UTF-8":       {create(CreateChat{Chat: "c2", Tags: "\xff"}), Invalid, "tags: want", "tags"},
		"chat of every engine":          {create(CreateChat{Chat: "c2", Engine: "*"}), Invalid, "engine: parse id", "engine"},
		"long title":                    {create(CreateChat{Chat: "c2", Title: strings.Repeat("x", 501)}), Invalid, "title: want at most 500 bytes", "title"},
		"title that is not UTF-8":       {create(CreateChat{Chat: "c2", Title: "a\xff"}), Invalid, "title", "title"},
		"decision that is none":         {decide(DecidePermission{Chat: "c1", Permission: "per_1", Decision: "always"}), Invalid, `want "authorized" or "denied", got "always"`, "status"},
		"no decision":                   {decide(DecidePermission{Chat: "c1", Permission: "per_1"}), Invalid, "decision", "status"},
		"decision on an unknown ask":    {decide(DecidePermission{Chat: "c1", Permission: "per_9", Decision: events.Denied}), NotFound, "per_9", ""},
		"answer that says nothing":      {answer(AnswerQuestion{Chat: "c1", Question: "que_1"}), Invalid, "the answer is empty", "reply"},
		"answer to an unknown question": {answer(AnswerQuestion{Chat: "c1", Question: "que_9", Answers: []string{"a"}}), NotFound, "que_9/0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			is.Equal(refusal(t, c.err), c.code)
			is.True(c.err != nil && strings.Contains(c.err.Error(), c.says))
			is.Equal(c.err.(Refused).Field, c.field)
			is.True(len(c.err.Error()) < 300)
		})
	}
	is := is.New(t)
	_, after := history(t, h.Log, "c1")
	is.Equal(len(after), len(before))
	last, err := h.Log.Last(t.Context())
	is.NoErr(err)
	is.Equal(last, uint64(len(before)))
}

func TestCommandGivenTwiceIsCarriedOutOnce(t *testing.T) {
	t.Parallel()
	h := open(t)
	by := func(id string) Command { return Command{ID: id, Actor: alice} }
	for name, give := range map[string]func() (uint64, error){
		"decide": func() (uint64, error) {
			return h.DecidePermission(t.Context(), DecidePermission{Command: by("cmd1"), Chat: "c1", Permission: "per_1", Decision: events.Denied})
		},
		"answer": func() (uint64, error) {
			return h.AnswerQuestion(t.Context(), AnswerQuestion{Command: by("cmd2"), Chat: "c1", Question: "que_1", Answers: []string{"a"}})
		},
		"submit": func() (uint64, error) {
			_, seq, err := h.SubmitMessage(t.Context(), SubmitMessage{Command: by("cmd3"), Chat: "c1", Message: "m1", Parts: say("hi")})
			return seq, err
		},
		"abort": func() (uint64, error) { return h.AbortTurn(t.Context(), AbortTurn{Command: by("cmd4"), Chat: "c1"}) },
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			first, err := give()
			is.NoErr(err)
			events, _ := history(t, h.Log, "c1")
			again, err := give()
			is.NoErr(err)
			is.Equal(again, first)
			now, _ := history(t, h.Log, "c1")
			is.Equal(len(now), len(events))
			is.True(now[len(now)-1].Cause != "")
		})
	}
	is := is.New(t)
	_, _, err := h.SubmitMessage(t.Context(), SubmitMessage{Chat: "c1", Message: "m1", Parts: say("other words")})
	is.Equal(refusal(t, err), Conflict)
	is.Equal(err.Error(), "message m1 was submitted already with other content")
	_, err = h.AbortTurn(t.Context(), AbortTurn{Command: by("cmd5"), Chat: "c1", Session: "ses_2"})
	is.NoErr(err) // another command is another wish
	_, data := history(t, h.Log, "c1")
	is.Equal(len(of[events.AbortRequested](data)), 2)
}

func TestSecondDecisionIsRefusedAndTheLogUnchanged(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	_, err := h.DecidePermission(t.Context(), DecidePermission{Command: Command{ID: "cmd1", Actor: alice}, Chat: "c1", Permission: "per_1", Decision: events.Denied, Reason: " too late "})
	is.NoErr(err)
	before, _ := history(t, h.Log, "c1")
	for _, second := range []events.Decision{events.Authorized, events.Denied} { // the denial for another reason: for none
		_, err = h.DecidePermission(t.Context(), DecidePermission{Command: Command{ID: "cmd2", Actor: "user:bob"}, Chat: "c1", Permission: "per_1", Decision: second})
		is.Equal(err, Refused{Code: Conflict, Text: "permission per_1 is settled already: denied by user:alice", Field: "status"})
	}
	seq, err := h.DecidePermission(t.Context(), DecidePermission{Command: Command{ID: "cmd3", Actor: "user:bob"}, Chat: "c1", Permission: "per_1", Decision: events.Denied, Reason: "too late"})
	is.NoErr(err) // it is so
	is.Equal(seq, before[len(before)-1].Seq)
	after, data := history(t, h.Log, "c1")
	is.Equal(len(after), len(before))
	d := of[events.PermissionDecided](data)[0]
	is.Equal(d.Reason, "too late")
	is.Equal(d.Command, "ls")
	is.Equal(after[len(after)-1].Actor, alice)
}

// Another system's handlers decide between this one's reading and its appending.
func TestDecisionTakenInBetweenWins(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	elsewhere := &Handlers{Log: h.Log}
	slow := DecidePermission{Chat: "c1", Permission: "per_1", Decision: events.Authorized}
	s, tries := newPermissions(), 0
	_, err := h.handle(t.Context(), "c1", Command{Actor: alice}, s, permissionFilters("c1"), func() (events.Data, uint64, error) {
		if tries++; tries == 1 {
			_, err := elsewhere.DecidePermission(t.Context(), DecidePermission{Command: Command{Actor: "user:bob"}, Chat: "c1", Permission: "per_1", Decision: events.Denied})
			is.NoErr(err)
		}
		return s.decide(slow)
	})
	is.Equal(refusal(t, err), Conflict)
	is.Equal(err.Error(), "permission per_1 is settled already: denied by user:bob")
	is.Equal(tries, 2)
	_, data := history(t, h.Log, "c1")
	is.Equal(len(of[events.PermissionDecided](data)), 1)
}

func TestDecisionOnAnotherAskInBetweenOnlyRepeats(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	elsewhere := &Handlers{Log: h.Log}
	s, tries := newPermissions(), 0
	_, err := h.handle(t.Context(), "c1", Command{Actor: alice}, s, permissionFilters("c1"), func() (events.Data, uint64, error) {
		if tries++; tries == 1 {
			_, err := elsewhere.DecidePermission(t.Context(), DecidePermission{Chat: "c1", Permission: "per_2", Decision: events.Denied})
			is.NoErr(err)
		}
		return s.decide(DecidePermission{Chat: "c1", Permission: "per_1", Decision: events.Authorized})
	})
	is.NoErr(err)
	is.Equal(tries, 2)
	_, data := history(t, h.Log, "c1")
	is.Equal(len(of[events.PermissionDecided](data)), 2)
}

// at once calls give n times at once and returns the errors.
func atOnce(n int, give func(int) error) []error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = give(i) })
	}
	group.Wait()
	return errs
}

func TestFirstWriterWins(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	systems := []*Handlers{h, {Log: h.Log}, {Log: h.Log}}
	wish := []events.Decision{events.Authorized, events.Denied}
	errs := atOnce(24, func(i int) error {
		_, err := systems[i%len(systems)].DecidePermission(t.Context(), DecidePermission{
			Command: Command{ID: fmt.Sprint("cmd", i), Actor: alice}, Chat: "c1", Permission: "per_1", Decision: wish[i%2],
		})
		return err
	})
	_, data := history(t, h.Log, "c1")
	all := of[events.PermissionDecided](data)
	is.Equal(len(all), 1)
	for i, err := range errs {
		if wish[i%2] == all[0].Decision { // the one who won, and those who wanted the same
			is.NoErr(err)
		} else {
			is.Equal(refusal(t, err), Conflict)
			expect.Contains(t, err.Error(), "settled already")
		}
	}
}

// Commands that do not contradict each other are all carried out, however many come at once.
func TestManyAsksAreDecidedAtOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	h := open(t)
	const n = 40
	for i := range n {
		happened(t, h.Log, "c1", askBash(fmt.Sprint("per_x", i), "ls"))
	}
	for _, err := range atOnce(n, func(i int) error {
		_, err := h.DecidePermission(t.Context(), DecidePermission{Chat: "c1", Permission: fmt.Sprint("per_x", i), Decision: events.Authorized})
		return err
	}) {
		is.NoErr(err)
	}
}
