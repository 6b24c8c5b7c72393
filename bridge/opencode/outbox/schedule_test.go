package outbox_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/bridge/opencode/bridgetest"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections/projectionstest"
)

// blockRequests blocks requests with a path suffix until release is called.
func (s *system) blockRequests(suffix string) (arrived <-chan bool, release func()) {
	came, hold := make(chan bool, 99), make(chan bool)
	release = sync.OnceFunc(func() { close(hold) })
	s.T.Cleanup(release)
	s.RefuseWith(func(r bridgetest.Request) int {
		if strings.HasSuffix(r.Path, suffix) {
			came <- true
			<-hold
		}
		return 0
	})
	return came, release
}

func TestNoChatWaitsForAnother(t *testing.T) {
	t.Parallel()
	s, _ := connected(t)
	stuck, _ := s.startForkable()
	s.Asking("ses_1", "per_1")
	s.Drained()
	arrived, _ := s.blockRequests("/revert")
	s.revert(stuck, "msg_1")
	<-arrived

	other := s.Chat("hello")
	s.awaitPrompts(2)
	s.abortTurn(other, "")
	s.Decide("per_1", events.Authorized, "")
	s.revert(s.ChatOf("ses_1"), "")
	for _, request := range []string{"/abort", "/permission/per_1/reply", "/ses_1/unrevert"} {
		expect.Eventually(t, "OpenCode is told "+request, func() bool { return len(s.Requests("POST", request)) == 1 })
	}
}

func TestAnAbortAloneOvertakes(t *testing.T) {
	t.Parallel()
	s, _ := connected(t)
	chat, _ := s.startForkable()
	s.RefuseNext("POST", "/revert", 1<<20, 500)
	s.revert(chat, "msg_1")
	expect.Eventually(t, "it is tried again", func() bool { return len(s.Requests("POST", "/revert")) > 1 })
	s.fork(chat)
	s.Submit(chat, "waits")
	s.abortTurn(chat, "")
	expect.Eventually(t, "it is aborted", func() bool { return len(s.Requests("POST", "/abort")) == 1 })
	is.New(t).Equal([]int{len(s.promptsReceived()), len(s.Requests("POST", "/fork"))}, []int{1, 0})
}

// triedEffects returns the paths of the requests that change OpenCode.
func (s *system) triedEffects() (all []string) {
	for _, r := range s.Requests("POST", "") {
		if r.Path != "/pocketcoder/history" {
			all = append(all, r.Path)
		}
	}
	return all
}

// The durable consumers and the read model are lost, as after a restore from a backup.
func TestOpenEffectsFollowFromTheLogAlone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chat, session := s.startForkable()
	s.Asking("ses_1", "per_1", "per_2")
	s.Drained()
	s.Decide("per_1", events.Authorized, "")
	s.abortTurn(chat, "")
	s.revert(chat, "msg_1")
	s.revert(chat, "")
	s.RefuseNext("POST", "/revert", 1, 400)
	s.revert(chat, "msg_2") // is refused
	into := s.fork(chat)
	ended := func() int {
		all := s.Events(events.ChatSubject(chat, "effect.*"))
		return len(all)
	}
	expect.Eventually(t, "everything is carried out", func() bool {
		return ended() == 5 && len(facts[events.SessionBound](s, into)) == 1
	})
	is.Equal(len(facts[events.EffectFailed](s, chat)), 1)
	r.Stop()
	s.revert(chat, "msg_3") // is open
	before := s.triedEffects()

	js, err := jetstream.New(s.NC)
	is.NoErr(err)
	stream, err := js.Stream(t.Context(), "EVENTS")
	is.NoErr(err)
	for name := range stream.ConsumerNames(t.Context()).Name() {
		is.NoErr(stream.DeleteConsumer(t.Context(), name))
	}
	s.Model, err = projectionstest.Open(t.Context(), expect.MemoryDir(t), s.Log)
	is.NoErr(err)
	go s.Model.Run(t.Context())
	s.Start().Connected()
	expect.Eventually(t, "the open one is carried out", func() bool { return ended() == 6 })
	s.Submit(chat, "goes on")
	s.awaitPrompts(2)
	s.Drained()
	is.Equal(s.triedEffects()[len(before):], []string{"/session/" + session + "/revert",
		"/session/" + session + "/prompt_async"})
}

func TestARevertThatOpenCodeHasDoneIsNotRepeated(t *testing.T) {
	t.Parallel()
	s, r := connected(t)
	chat, session := s.startForkable()
	r.Stop()
	s.revert(chat, "msg_1") // an earlier try was successful, but its response was lost
	s.AppendUnsent(s.Durably(session, "session.updated",
		fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"directory":"/workspace","title":"t","revert":{"messageID":"msg_1"}}}`,
			session, session))...)
	s.Start().Connected()
	expect.Eventually(t, "it is done", func() bool { return len(facts[events.EffectDone](s, chat)) == 1 })
	is.New(t).Equal(len(s.Requests("POST", "/revert")), 0)
}

// Earlier versions recorded no end of an effect, but NATS has the positions of their consumers.
func TestEffectsOfAnEarlierVersionAreDone(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s, r := connected(t)
	chat, _ := s.startForkable()
	r.Stop()
	s.revert(chat, "msg_1")
	s.abortTurn(chat, "")
	ctx, cancel := context.WithCancel(t.Context())
	last, err := s.Log.Last(t.Context())
	is.NoErr(err)
	for consumer, until := range map[string]uint64{"abort": last, "revert": last - 1} {
		filter := events.ChatSubject("*", consumer+".requested")
		go s.Log.Consume(ctx, consumer, filter, func(context.Context, events.Event) error { return nil },
			func(events.Event, error) {})
		expect.Eventually(t, "its work is done", func() bool {
			done, err := s.Log.LastAcked(t.Context(), consumer)
			is.NoErr(err)
			return done >= until
		})
	}
	cancel()
	s.revert(chat, "msg_2") // is open
	s.Start().Connected()
	expect.Eventually(t, "all have an end", func() bool { return len(facts[events.EffectDone](s, chat)) == 3 })
	is.Equal(len(s.Requests("POST", "/abort")), 0)
	is.Equal(len(s.Requests("POST", "/revert")), 1)
}

// A fork may take minutes.
func TestAForkDoesNotDelayTheCopiedChat(t *testing.T) {
	t.Parallel()
	s, _ := connected(t)
	chat, _ := s.startForkable()
	arrived, _ := s.blockRequests("/fork")
	s.fork(chat)
	<-arrived
	s.abortTurn(chat, "")
	expect.Eventually(t, "it is aborted", func() bool { return len(s.Requests("POST", "/abort")) == 1 })
}
