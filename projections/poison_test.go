package projections_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

func TestPoisonIsSetAsideAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	log := eventstest.Open(t, nc)
	s := &eventBuilder{t: t}
	var last uint64
	appended := func(e events.Event) {
		t.Helper()
		seq, err := log.Append(t.Context(), e)
		is.NoErr(err)
		last = seq
	}
	appended(s.created())
	appended(s.submitted("m1"))
	stray := nats.NewMsg("evt.chat." + chatID + ".message.submitted") // past our own code: no envelope
	stray.Data = []byte("\xff not JSON")
	_, err := nc.RequestMsg(stray, 5*time.Second)
	is.NoErr(err)
	appended(s.submitted("m1")) // exists, and is no poison: whoever submits chooses the id
	appended(s.sending("nobody", "msg_x"))
	appended(s.opencode(true, "message.updated", `{"sessionID":"ses_own","info":{"id":7}}`))
	appended(s.opencode(true, "message.updated", `{"sessionID":"ses_own","info":{"role":"user"}}`))
	appended(s.opencode(false, "brand.new", `{"sessionID":"ses_own","what":[1]}`)) // unknown is no error
	appended(s.own(events.ExecFinished{Exec: "never"}))
	appended(s.submitted("m2"))

	m := running(t, expect.MemoryDir(t), log)
	is.NoErr(m.Wait(t.Context(), last))
	letters, err := m.DeadLetters(t.Context(), 10)
	is.NoErr(err)
	is.Equal(letters.Count, 5)
	is.Equal(len(shown(t, m)), 2)
	_, found, err := m.Session(t.Context(), ses)
	is.NoErr(err)
	is.True(!found) // what was set aside has left nothing behind
	for i, want := range []string{"ce-id", "message nobody was never submitted", "cannot unmarshal",
		"without a required field", "execution never was never requested"} {
		expect.Contains(t, letters.Oldest[i].Error, want)
		expect.Contains(t, letters.Oldest[i].Error, fmt.Sprintf("#%d", letters.Oldest[i].Seq))
	}
}
