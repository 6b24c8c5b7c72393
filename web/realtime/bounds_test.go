package realtime_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

// What somebody may take of what all share.

func TestNothingIsKeptForAGuest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	topics := make([]string, 100)
	for i := range topics {
		topics[i] = fmt.Sprintf("chats/%d?options=", i) + strings.Repeat("x", 2400)
	}
	f := s.Connect(t).Follow(t, "", topics[:20]...)
	is.Equal(s.Web.Realtime.Followed(f.ID), 0)
	f.Follow(t, ann, topics...)
	is.Equal(s.Web.Realtime.Followed(f.ID), len(topics))
	status, _ := f.Try(t, ann, append(topics, make([]string, 10)...)...) // empty ones are none
	is.Equal(status, http.StatusNoContent)
	for i := range topics {
		topics = append(topics, fmt.Sprintf("messages/%d?options=", i)+strings.Repeat("x", 2400))
	}
	status, answer := f.Try(t, ann, topics...)
	is.Equal(status, http.StatusBadRequest)
	is.True(answer["data"].(map[string]any)["subscriptions"] != nil)
}

func TestClientsOfAnAddressAndOfAnAccountAreBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, bob := s.User(t, "bob", account.User)
	s.Web.Realtime.HoldFewer(5, 10)
	connect := func() int {
		status, _ := webtest.Ask(s, t, "", webtest.Request("GET", "/api/realtime", "")) // from an address of its own each time
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
		clients = append(clients, s.Connect(t).Follow(t, ann, "chats/*")) // who has logged in counts for the account
	}
	f := s.Connect(t)
	status, _ = f.Try(t, ann, "chats/*")
	is.Equal(status, http.StatusTooManyRequests)
	f.Follow(t, bob, "chats/*")
	left(clients[0], t, ann)
	s.Connect(t).Follow(t, ann, "chats/*")
}

func TestFilteredTopicsOfAnAccountAreBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := webtest.NewSystem(t)
	_, ann := s.User(t, "ann", account.User)
	_, bob := s.User(t, "bob", account.User)
	filtered := func(first, n int) (topics []string) {
		for i := range n {
			topics = append(topics, "chats/*?options="+webtest.Escape(fmt.Sprintf(`{"query":{"filter":"title = \"%d\""}}`, first+i)))
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
	s.Chat(t, ann, "100")
	is.Equal(one.Next(t).Data.Record["title"], "100")
}
