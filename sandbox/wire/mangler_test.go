package wire_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"pocketcoder/sandbox/wire"
)

// mangler forwards frames between servers and callers, who use its front subject. It drops and repeats some.
type mangler struct {
	t                 *testing.T
	nc                *nats.Conn
	front             string
	copies            func(f *nats.Msg, ofCaller bool) int // how many copies of a frame arrive
	dropped, repeated atomic.Int64
}

func newMangler(t *testing.T, nc *nats.Conn) *mangler {
	return &mangler{t: t, nc: nc, front: "exec.front", copies: randomCopies}
}

// randomCopies drops or repeats frames before the start, in three of four cases.
func randomCopies(f *nats.Msg, _ bool) int {
	if kind := f.Header.Get("Exec-Frame"); kind == "grant" || kind == "offer" || kind == "queued" {
		return rand.IntN(4)
	}
	return 1
}

// pass forwards the frames of one call until done is called.
func (m *mangler) pass(id string) (done func()) {
	var subs []*nats.Subscription
	inbox := ""
	on := func(subject string, handle nats.MsgHandler) {
		s, err := m.nc.Subscribe(subject, handle)
		if err != nil {
			m.t.Error(err)
			return
		}
		subs = append(subs, s)
	}
	answers := m.nc.NewInbox()
	on(answers, func(f *nats.Msg) { m.forward(f, inbox, "", false) })
	on(wire.CallerSubject(subject, id), func(*nats.Msg) {})
	on(wire.ControlSubject(m.front, id), func(f *nats.Msg) {
		m.forward(f, wire.ControlSubject(subject, id), f.Reply, true)
	})
	on(m.front, func(f *nats.Msg) {
		if strings.Contains(string(f.Data), fmt.Sprintf(`"exec":%q`, id)) {
			if inbox == "" { // later attempts have the same inbox
				inbox = f.Reply
			}
			m.nc.PublishMsg(&nats.Msg{Subject: subject, Reply: answers, Header: f.Header, Data: f.Data})
		}
	})
	if err := m.nc.Flush(); err != nil {
		m.t.Error(err)
	}
	return func() {
		for _, s := range subs {
			s.Unsubscribe()
		}
	}
}

func (m *mangler) forward(f *nats.Msg, to, reply string, ofCaller bool) {
	times := m.copies(f, ofCaller)
	switch times {
	case 0:
		m.dropped.Add(1)
	case 2, 3:
		m.repeated.Add(1)
	}
	for range times {
		m.nc.PublishMsg(&nats.Msg{Subject: to, Reply: reply, Header: f.Header, Data: f.Data})
	}
}
