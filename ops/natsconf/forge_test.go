package natsconf_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
)

// forgeries are reply subjects that would do harm if the answer to a request were published there.
var forgeries = []string{
	"evt.chat.c1.forged", "delta.chat.c1.m.p", "$JS.API.STREAM.PURGE.EVENTS", "$JS.API.STREAM.DELETE.EVENTS",
	"$KV.SECRETS.x", "exec.run.p1", "cmd.x",
}

// NATS does not check a reply subject against the permissions of the requester, because the responder publishes there.
// So a forged one must not reach a responder.
func TestReplySubjectsForgeNothing(t *testing.T) {
	t.Parallel()
	inEachUse(t, func(t *testing.T, n *testServer) {
		is := is.New(t)
		core, _ := n.connect(natsconf.Core)
		_, count := openLog(t, core)
		answered := make(chan *nats.Msg, 1000)
		for _, subject := range []string{"exec.run.p1.X.caller"} {
			_, err := core.Subscribe(subject, func(m *nats.Msg) {
				m.Respond([]byte("forged"))
				answered <- m
			})
			is.NoErr(err)
		}
		is.NoErr(core.Flush())
		ask := map[natsconf.Identity][]string{
			natsconf.Worker:   {"exec.run.p1.X.caller"},
			natsconf.Observer: {natsconf.ReaderAPI + ".STREAM.INFO.EVENTS", natsconf.ReaderAPI + ".DIRECT.GET.EVENTS.evt.chat.c1.created"},
		}
		for id, subjects := range ask {
			nc, _ := n.connect(id)
			for _, subject := range subjects {
				isAPI := strings.HasPrefix(subject, natsconf.ReaderAPI)
				expect.Eventually(t, subject+" is known to "+nc.ConnectedServerName(), func() bool {
					is.NoErr(nc.PublishRequest(subject, "nowhere", []byte("hello")))
					return isAPI || len(answered) > 0
				})
				for _, reply := range forgeries {
					is.NoErr(nc.PublishRequest(subject, reply, []byte(reply)))
					is.NoErr(nc.Flush())
					for received := isAPI; !received; {
						m := <-answered
						is.True(strings.HasPrefix(m.Reply, "_R_.")) // the server's reply subject, not the asker's
						received = string(m.Data) == reply
					}
				}
			}
		}
		is.NoErr(core.Flush())
		is.Equal(count(), uint64(3))
	})
}

// Nor can a worker choose where core says something: with what it answers, a reply subject arrives that leads only
// back to it.
func TestAnswersForgeNothing(t *testing.T) {
	t.Parallel()
	inEachUse(t, func(t *testing.T, n *testServer) {
		is := is.New(t)
		core, _ := n.connect(natsconf.Core)
		_, count := openLog(t, core)
		worker, _ := n.connect(natsconf.Worker)
		_, err := worker.Subscribe("exec.run.p1", func(m *nats.Msg) {
			for _, reply := range forgeries {
				worker.PublishRequest(m.Reply, reply, []byte("an answer")) // an empty one would be the last
			}
		})
		is.NoErr(err)
		is.NoErr(worker.Flush())
		inbox := core.NewInbox()
		answers, err := core.SubscribeSync(inbox)
		is.NoErr(err)
		var answer *nats.Msg
		expect.Eventually(t, "a worker answers", func() bool {
			is.NoErr(core.PublishRequest("exec.run.p1", inbox, nil))
			answer, err = answers.NextMsg(time.Minute)
			if errors.Is(err, nats.ErrNoResponders) {
				return false // the server that core is at has not heard of the worker yet
			}
			is.NoErr(err)
			return true
		})
		for i := range forgeries {
			if i > 0 {
				answer, err = answers.NextMsg(time.Minute)
				is.NoErr(err)
			}
			is.True(strings.HasPrefix(answer.Reply, "_R_."))
			is.NoErr(answer.Respond([]byte("forged")))
		}
		is.NoErr(core.Flush())
		is.Equal(count(), uint64(3))
	})
}
