package push_test

import (
	"slices"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/account"
)

func TestLeavingAChatNotifiesOfPendingRequests(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.present.Store(ann + "/" + chat)
	s.appendRequest(chat, "per_decided", "ls")
	s.appendRequest(chat, "per_pending", "rm -r build")
	s.question(chat, "que_1")
	s.decide(chat, "per_decided", events.Denied)
	s.awaitConsumer()
	is.Equal(len(r.requests()), 0)

	s.present.Store("")
	s.awaitRequest(r, 1)
	first, second := read(t, r.requests()[0].body), read(t, r.requests()[1].body)
	is.Equal([]string{first.Data["permission"], second.Data["question"]}, []string{"per_pending", "que_1"})
	s.eventually("both notifications are sent", func() bool { // one may be sent before the other is queued
		return slices.Equal(slices.Sorted(slices.Values(s.kinds("evt.chat."+chat))),
			[]string{"queued", "queued", "sent", "sent"})
	})
	is.True(buttons(t, r.requests()[0])["Approve"] != "")

	s.present.Store(ann + "/" + chat)
	s.appendRequest(chat, "per_next", "ls")
	s.awaitConsumer()
	s.present.Store("")
	s.awaitRequest(r, 2)
	is.Equal(read(t, r.requests()[2].body).Data["permission"], "per_next") // the others were not sent again
}

func TestARestartEndsPresence(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := newSystem(t), newReceiver(t, nil)
	ann := s.user("ann", account.User)
	s.device("d1", ann, "unifiedpush", r.URL+"/topic")
	chat := s.chat(ann, "chat")
	s.present.Store(ann + "/" + chat)
	s.appendRequest(chat, "per_1", "ls")
	s.awaitConsumer()
	s.stop()
	s.present.Store("")
	s.start()
	is.Equal(read(t, s.awaitRequest(r, 0).body).Data["permission"], "per_1")
}
