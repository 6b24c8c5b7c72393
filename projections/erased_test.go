package projections_test

import (
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/ops/expect"
)

func TestAnErasedChatIsARowWithoutText(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	log := eventstest.Open(t, nc)
	s := &eventBuilder{t: t}
	var last uint64
	for _, e := range append(s.begun(), s.own(events.ChatErased{User: "u1", Events: 9})) {
		m := events.Message(e, e.Data)
		if e.Subject.Kind != (events.ChatErased{}).Kind() {
			m.Data = events.Erase(e.Data)
		}
		answer, err := nc.RequestMsg(m, 5*time.Second)
		is.NoErr(err)
		expect.Contains(t, string(answer.Data), `"seq":`)
		last++
	}
	m := running(t, expect.MemoryDir(t), log)
	is.NoErr(m.Wait(t.Context(), last))
	c := chat(t, m)
	is.Equal([]any{c.Title, c.User, c.Preview, c.Removed}, []any{"erased", "u1", "", false})
	is.Equal(len(shown(t, m)), 0)
	letters, err := m.DeadLetters(t.Context(), 10)
	is.NoErr(err)
	is.Equal(letters.Count, 0) // nothing is lost
}
