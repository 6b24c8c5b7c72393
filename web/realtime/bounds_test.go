package realtime_test

import (
	"bufio"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/ops/expect"
	"pocketcoder/web/api"
	"pocketcoder/web/webtest"
)

// Limits of shared resources.

func TestGuestHasNoSubscriptions(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	topics := make([]string, 100)
	for i := range topics {
		topics[i] = fmt.Sprintf("chats/%d?options=", i) + strings.Repeat("x", 2400)
	}
	f := s.Connect(t).Follow(t, "", topics[:20]...)
	is.Equal(s.Web.Realtime.TopicCount(f.ID), 0)
	f.Follow(t, ann, topics...)
	is.Equal(s.Web.Realtime.TopicCount(f.ID), len(topics))
	status, _ := f.Try(t, ann, append(topics, make([]string, 10)...)...) // empty topics are ignored
	is.Equal(status, http.StatusNoContent)
	for i := range topics {
		topics = append(topics, fmt.Sprintf("messages/%d?options=", i)+strings.Repeat("x", 2400))
	}
	status, answer := f.Try(t, ann, topics...)
	is.Equal(status, http.StatusBadRequest)
	is.True(answer["data"].(map[string]any)["subscriptions"] != nil)
}

func TestClientsPerAddressAndPerAccountAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, bob := s.User(t, "bob", account.User)
	s.Web.Realtime.SetClientLimits(5, 10)
	connect := func() int {
		// from an address of its own each time
		status, _ := webtest.Send(s, t, "", webtest.Request("GET", "/api/realtime", ""))
		return status
	}
	var clients []*webtest.Follower
	for range 5 {
		clients = append(clients, s.Connect(t))
	}
	status, answer := s.Call(t, "", "GET", "/api/realtime", nil)
	is.Equal(status, http.StatusTooManyRequests)
	is.True(answer["message"] != "")
	is.Equal(connect(), http.StatusOK)
	for _, f := range clients {
		f.Follow(t, ann, "chats/*")
	}
	for range 5 {
		clients = append(clients, s.Connect(t).Follow(t, ann, "chats/*")) // after a login the client counts for the account
	}
	f := s.Connect(t)
	status, _ = f.Try(t, ann, "chats/*")
	is.Equal(status, http.StatusTooManyRequests)
	f.Follow(t, bob, "chats/*")
	waitForDisconnect(clients[0], t, ann)
	s.Connect(t).Follow(t, ann, "chats/*")
}

func TestCostlyTopicsPerAccountAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, bob := s.User(t, "bob", account.User)
	filtered := func(first, n int) (topics []string) {
		for i := range n {
			topics = append(topics, "chats/*?options="+
				webtest.Escape(fmt.Sprintf(`{"query":{"filter":"title = \"%d\""}}`, first+i)))
		}
		return topics
	}
	one, two := s.Connect(t), s.Connect(t)
	status, answer := one.Try(t, ann, filtered(0, 51)...)
	is.Equal(status, http.StatusBadRequest)
	is.True(answer["data"].(map[string]any)["subscriptions"] != nil)
	one.Follow(t, ann, filtered(0, 50)...)
	two.Follow(t, ann, filtered(20, 30)...) // the same ones
	status, _ = two.Try(t, ann, filtered(50, 1)...)
	is.Equal(status, http.StatusBadRequest)
	s.Connect(t).Follow(t, bob, filtered(50, 50)...)
	one.Follow(t, ann, filtered(100, 50)[:20]...)
	expanded := "chats/*?options=" + webtest.Escape(`{"query":{"expand":"user"}}`)
	status, _ = two.Try(t, ann, append(filtered(20, 30), expanded)...) // it is as costly
	is.Equal(status, http.StatusBadRequest)
	s.Chat(t, ann, "100")
	is.Equal(one.Next(t).Data.Record["title"], "100")
}

// addLargeChat makes a chat with n messages, and returns a topic that shows each of them with all of them.
func addLargeChat(s *webtest.System, t testing.TB, token string, n int) (chat string, topic func(i int) string) {
	t.Helper()
	chat = s.Chat(t, token, "chatty")
	for range n {
		part := map[string]any{"type": "text", "text": strings.Repeat("x", 40_000)}
		body := map[string]any{"chat": chat, "role": "user", "parts": []any{part}}
		status, answer := s.Call(t, token, "POST", "/api/collections/messages/records", body)
		if status != http.StatusOK {
			t.Fatalf("submit: %d %v", status, answer)
		}
	}
	return chat, func(i int) string {
		return "chats/" + chat + "?options=" + webtest.Escape(fmt.Sprintf(`{"query":{"expand":"messages_via_chat.chat.messages_via_chat","i":%d}}`, i))
	}
}

// A list or a view of this size is refused.
func TestRecordWithTooLargeExpansionIsSentWithoutIt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	large, topic := addLargeChat(s, t, ann, 32)
	small := s.Chat(t, ann, "small")
	small = "chats/" + small + "?options=" + webtest.Escape(`{"query":{"expand":"user"}}`)
	f := s.Connect(t).Follow(t, ann, topic(0), small)
	s.Rename(t, ann, large, "renamed")
	got := f.Next(t)
	is.Equal(got.String(), topic(0)+" update renamed")
	is.Equal(got.Data.Record["expand"], nil)
	waitForDisconnect(f, t, ann)

	s.Rename(t, ann, large, "missed")
	s.Rename(t, ann, small[len("chats/"):strings.Index(small, "?")], "missed too")
	f = s.Connect(t).Follow(t, ann, topic(0), small)
	for range 2 {
		got := f.Next(t)
		is.Equal(got.Data.Record["expand"] != nil, got.Event == small)
	}
}

func TestMissedLargeRecordsAreSentInPages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	topic := "messages/*?options=" + webtest.Escape(`{"query":{"expand":"chat.messages_via_chat"}}`)
	waitForDisconnect(s.Connect(t).Follow(t, ann, topic), t, ann)
	const messages = 32
	addLargeChat(s, t, ann, messages)
	f := s.Connect(t).Follow(t, ann, topic)
	seen := map[any]bool{}
	for range messages {
		got := f.Next(t)
		is.True(got.Data.Record["expand"] != nil)
		seen[got.Data.Record["id"]] = true
	}
	is.Equal(len(seen), messages)
}

// Records for clients that do not read stay in memory.
func TestUnsentRecordsPerAccountAreLimited(t *testing.T) {
	t.Parallel()
	webtest.LeaveOutWhenShort(t)
	is := is.New(t)
	s := webtest.NewSystem(t)
	annID, ann := s.User(t, "ann", account.User)
	chat, topic := addLargeChat(s, t, ann, 25) // 25 MB
	// The clients read within 10 s, also on a busy machine, because all but one of the events are only counted.
	is.True(s.Web.API.AddUnsent(api.AccountKey(account.Identity{Collection: account.Users, Account: annID}), 100<<20))
	silent, unread := make([]*webtest.Follower, 2), make([]*bufio.Reader, 2)
	for i := range silent {
		silent[i], unread[i] = s.ConnectSilent(t)
		silent[i].Follow(t, ann, topic(i))
	}
	s.Rename(t, ann, chat, "renamed")
	gone := map[int]bool{}
	expect.Eventually(t, "the client beyond the limit of the account is disconnected", func() bool {
		for i, f := range silent {
			if status, _ := f.Try(t, ann, "\n"); status == http.StatusNotFound { // a mistake, while the client is there
				gone[i] = true
			}
		}
		return len(gone) > 0
	})
	is.Equal(len(gone), 1)
	for i, lines := range unread {
		got, err := webtest.ReadFrame(lines)
		is.Equal(err != nil, gone[i])
		is.Equal(got.Data.Record["expand"] == nil, gone[i])
		is.Equal(got.Raw == "", gone[i]) // a client that reads too slowly gets the beginning
	}
}
