package projections_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/projections"
)

func chat(t testing.TB, m *projections.Model) projections.Chat {
	t.Helper()
	c, found, err := m.Chat(t.Context(), chatID)
	if err != nil || !found {
		t.Fatal("no chat", err)
	}
	return c
}

func TestPreviewIsOneLineOfWholeRunes(t *testing.T) {
	t.Parallel()
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	for i, test := range []struct{ text, want string }{
		{"short", "short"},
		{"  two\n\n\tlines  ", "two lines"},
		{strings.Repeat("ü", 120), strings.Repeat("ü", 120)},
		{strings.Repeat("ü", 121), strings.Repeat("ü", 119) + "…"},
		{strings.Repeat("日本 ", 100), strings.Repeat("日本 ", 39) + "日本…"},
		{" \n ", strings.Repeat("日本 ", 39) + "日本…"}, // says nothing: the preview stays
		{"## Done\n\n**All `go test` *runs* pass**:\n\n- [x] one\n* see [the log](log.md)\n> said", "Done All go test runs pass: one see the log said"},
		{"```go\nx := **p // a_b\n```\n---\nIt is `**` in a_b_c, 2 * 3 * 4, ls *.go *.c", "x := **p // a_b It is ** in a_b_c, 2 * 3 * 4, ls *.go *.c"},
		{"1. first\n#42 is no title", "1. first #42 is no title"},
	} {
		message := fmt.Sprint("msg_a", i)
		feed(t, m, s.assistant(ses, message, msg1, ""), textPart(s, message, fmt.Sprint("prt_a", i), test.text))
		is.New(t).Equal(chat(t, m).Preview, test.want)
	}
}

func TestPreviewIsWhatWasSaidLast(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	is.Equal(chat(t, m).Preview, "words of m1")
	long := textPart(s, "msg_a", "prt_a", "a long answer, longer than the one that comes after it")
	feed(t, m, s.assistant(ses, "msg_a", msg1, ""), long)
	feed(t, m, s.assistant(ses, "msg_b", msg1, ""), textPart(s, "msg_b", "prt_b", "short"))
	is.Equal(chat(t, m).Preview, "short")
	feed(t, m, long) // seen again
	is.Equal(chat(t, m).Preview, "short")
	feed(t, m, s.child(), s.opencode(true, "message.part.updated",
		fmt.Sprintf(`{"sessionID":%q,"part":{"id":"prt_c","messageID":"msg_c","type":"text","text":"a subagent's"}}`, child)))
	feed(t, m, s.opencode(true, "message.part.updated",
		fmt.Sprintf(`{"sessionID":%q,"part":{"id":"prt_d","messageID":"msg_b","type":"text","text":"made up","synthetic":true}}`, ses)))
	is.Equal(chat(t, m).Preview, "short")
}

func TestTitleFollowsTheSessionOfAnAdoptedChat(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		adopted bool
		want    string
	}{{true, "New title"}, {false, "Chat"}} {
		is := is.New(t)
		m, s := still(t), &eventBuilder{t: t}
		titled := s.opencode(true, "session.created", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"title":"Old title"}}`,
			ses, ses))
		feed(t, m, s.own(events.ChatCreated{Title: "Chat", Engine: engine, Adopted: test.adopted}),
			s.own(events.SessionBound{Session: ses}), titled,
			s.opencode(true, "session.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"title":"New title"}}`, ses, ses)),
			titled, s.child())
		is.Equal(chat(t, m).Title, test.want)
	}
}

func TestTheFirstWordsAreTheTitleUntilOpenCodeHasGeneratedOne(t *testing.T) {
	t.Parallel()
	const unnamed = "New session - 2026-11-29T09:24:26.123Z"
	for _, created := range []events.ChatCreated{
		{Engine: engine, User: "alice"}, {Title: unnamed, Engine: engine, Adopted: true},
	} {
		is := is.New(t)
		m, s := still(t), &eventBuilder{t: t}
		titled := func(title string) events.Event {
			return s.opencode(true, "session.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"title":%q}}`, ses, ses,
				title))
		}
		feed(t, m, s.own(created), s.own(events.SessionBound{Session: ses}), titled(unnamed))
		is.Equal(chat(t, m).Title, events.DefaultTitle)
		feed(t, m, s.opencode(true, "message.part.updated", fmt.Sprintf(
			`{"sessionID":%q,"part":{"id":"prt_1","messageID":"msg_a","type":"text","text":"  first \t words\nmore"}}`, ses)),
			titled(unnamed), titled(unnamed+" (fork #2)"))
		is.Equal(chat(t, m).Title, "first words")
		feed(t, m, titled("Generated"), titled(""), titled(unnamed))
		is.Equal(chat(t, m).Title, "Generated")
		feed(t, m, s.own(events.ChatUpdated{Title: new("Mine")}), titled("Generated again"))
		is.Equal(chat(t, m).Title, "Mine")
	}
}

func TestLongFirstWordsAreCut(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.own(events.ChatCreated{Engine: engine}), s.own(events.MessageSubmitted{Message: "m1",
		Parts: []events.Part{{Type: "text", Text: strings.Repeat("ä", 61)}}}))
	is.Equal(chat(t, m).Title, strings.Repeat("ä", 59)+"…")
}

func TestAForkOfAChatWithoutATitleIsNamedAfterIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	fork, err := events.New("c2", "alice", events.ChatCreated{Engine: engine, User: "alice"})
	is.NoErr(err)
	feed(t, m, s.own(events.ChatCreated{Engine: engine, User: "alice"}), s.submitted("m1"), fork)
	before := chat(t, m).Title
	feed(t, m, s.own(events.ForkRequested{Chat: "c2"}))
	is.Equal(chat(t, m).Title, before)
	into, _, err := m.Chat(t.Context(), "c2")
	is.NoErr(err)
	is.Equal(into.Title, before+" (fork)")
}

func TestWhatAPersonSaysAboutAChatStands(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	titled := func(title string) events.Event {
		return s.opencode(true, "session.updated", fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"title":%q}}`, ses, ses,
			title))
	}
	feed(t, m, s.own(events.ChatCreated{Title: "Chat", Engine: engine, Adopted: true}),
		s.own(events.SessionBound{Session: ses}), titled("By OpenCode"))
	feed(t, m, s.own(events.ChatUpdated{Description: new("About"), Archived: new(true), Tags: new("a,b"),
		Agent: new("plan"), User: new("bob")}))
	feed(t, m, titled("Still by OpenCode"))
	c := chat(t, m)
	is.Equal([]string{c.Title, c.Description, c.Tags, c.Agent, c.User},
		[]string{"Still by OpenCode", "About", "a,b", "plan", "bob"})
	is.True(c.Archived)
	feed(t, m, s.own(events.ChatUpdated{Title: new("Mine"), Archived: new(false)}), titled("By OpenCode again"))
	c = chat(t, m)
	is.Equal([]string{c.Title, c.Description, c.Tags, c.Agent, c.User}, []string{"Mine", "About", "a,b", "plan", "bob"})
	is.True(!c.Archived)
	before := c
	feed(t, m, s.own(events.ChatUpdated{Title: new("Mine")})) // what is so already
	is.Equal(chat(t, m), before)
}

func TestDeletedChatStaysDeleted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	feed(t, m, s.own(events.Deleted{}))
	gone := chat(t, m)
	is.True(gone.Removed)
	is.Equal(gone.Last, int64(m.Seq()))
	feed(t, m, s.submitted("m2"), s.own(events.ChatUpdated{Title: new("Back")}), s.created(), s.own(events.Deleted{}))
	is.True(chat(t, m).Removed)
	is.Equal(chat(t, m).Last, gone.Last) // it was told once that it is gone
	chats, err := m.Chats(t.Context(), 10, 0)
	is.NoErr(err)
	is.Equal(len(chats), 0)
	is.Equal(len(shown(t, m)), 2) // its messages are as they were
	outbox, err := m.PendingMessages(t.Context())
	is.NoErr(err)
	is.Equal(len(outbox), 0) // and go nowhere any more
}

func TestChatsAreListedByActivity(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.created())
	other, err := events.New("chat2", user, events.ChatCreated{Title: "Other", Engine: engine})
	is.NoErr(err)
	feed(t, m, other)
	order := func() (ids []string) {
		t.Helper()
		chats, err := m.Chats(t.Context(), 10, 0)
		is.NoErr(err)
		for _, c := range chats {
			ids = append(ids, c.ID)
		}
		return ids
	}
	is.Equal(order(), []string{"chat2", chatID})
	feed(t, m, s.submitted("m1"))
	is.Equal(order(), []string{chatID, "chat2"})
	page, err := m.Chats(t.Context(), 1, 1)
	is.NoErr(err)
	is.Equal(page[0].ID, "chat2")
	_, found, err := m.Chat(t.Context(), "nobody")
	is.NoErr(err)
	is.True(!found)
}

func TestUpdatedMovesForwardWithEveryChangeAndOnlyThen(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m, s := still(t), &eventBuilder{t: t}
	feed(t, m, s.begun()...)
	answer := s.assistant(ses, "msg_a", msg1, ended)
	feed(t, m, answer)
	before := shown(t, m)[1].Updated
	feed(t, m, answer) // a duplicate changes nothing
	is.Equal(shown(t, m)[1].Updated, before)
	feed(t, m, textPart(s, "msg_a", "prt_a", "more")) // a part is a change of its message
	is.True(shown(t, m)[1].Updated > before)

	feed(t, m, s.request("per_1", ses, "date"), s.replies("per_1", "once"))
	request, _, err := m.Permission(t.Context(), "per_1")
	is.NoErr(err)
	feed(t, m, s.replies("per_1", "once"))
	again, _, err := m.Permission(t.Context(), "per_1")
	is.NoErr(err)
	is.Equal(again.Updated, request.Updated)
}
