package recovery_test

import (
	"encoding/binary"
	"os"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/ops/expect"
)

// consume acknowledges events of the consumer "gate", and returns the sequences of all that it got.
func (s *system) consume(n int) (seqs []uint64) {
	s.Helper()
	is := is.New(s)
	c, err := s.js.CreateOrUpdateConsumer(s.Context(), "EVENTS", jetstream.ConsumerConfig{Durable: "gate",
		FilterSubject: "evt.chat.c3.*", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 10})
	is.NoErr(err)
	for range n {
		m, err := c.Next()
		is.NoErr(err)
		meta, err := m.Metadata()
		is.NoErr(err)
		is.NoErr(m.DoubleAck(s.Context()))
		seqs = append(seqs, meta.Sequence.Stream)
	}
	return seqs
}

// Without Check, NATS answers each request to create the consumer with an error, for ever.
func TestAConsumerWithADamagedStateBeginsAgain(t *testing.T) {
	t.Parallel()
	fault := expect.CountFault(t, "consumers went on with the next event")
	varint := func(numbers ...uint64) (state []byte) {
		for _, n := range numbers {
			state = binary.AppendUvarint(state, n)
		}
		return state
	}
	for name, spoil := range map[string]func(state []byte) []byte{
		"8 bytes in the middle flipped": func(state []byte) []byte {
			for i := range 8 {
				if at := len(state)/2 - 4 + i; at > 0 && at < len(state) {
					state[at] ^= 0xff
				}
			}
			return state
		},
		"no state":           func(state []byte) []byte { return append([]byte("no state"), state...) },
		"cut short":          func(state []byte) []byte { return state[:len(state)-2] },
		"longer":             func(state []byte) []byte { return append(state, 0, 0, 0) },
		"behind the end":     func([]byte) []byte { return append([]byte{22, 2}, varint(9, total+5, 9, total+5, 0, 0)...) },
		"more than was sent": func([]byte) []byte { return append([]byte{22, 2}, varint(9, 90, 3, 30, 0, 0)...) },
		"endless":            func([]byte) []byte { return append([]byte{22, 2}, varint(1, 3, 9, 90, 1<<61, 0)...) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			s := stopped(t)
			s.start(0)
			is.Equal(s.consume(3), []uint64{3, 13, 23})
			s.stop()
			path := s.stream("obs", "gate", "o.dat")
			state, err := os.ReadFile(path)
			is.NoErr(err)
			is.NoErr(os.WriteFile(path, spoil(state), 0o600))

			s.start(0)
			is.Equal(s.consume(4), []uint64{3, 13, 23, 33})
			is.Equal(s.guard.Trouble(), "") // no event is lost
			_, err = os.Stat(path + ".damaged")
			is.NoErr(err)
			s.stop()
			s.start(0)
			next := s.consume(1)
			is.Equal(next, []uint64{43})
			fault.Tried()
			fault.Saw(len(next))
		})
	}
}

func TestAConsumerContinuesWithEventsThatWaitForTheirAcknowledgement(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := stopped(t)
	s.start(0)
	is.Equal(s.consume(1), []uint64{3})
	c, err := s.js.Consumer(t.Context(), "EVENTS", "gate")
	is.NoErr(err)
	batch, err := c.Fetch(5)
	is.NoErr(err)
	var second jetstream.Msg
	for m := range batch.Messages() {
		if second == nil {
			is.NoErr(m.Nak()) // delivered twice
		}
		second = m
	}
	is.NoErr(second.DoubleAck(t.Context()))
	s.stop()
	s.start(0)
	c, err = s.js.Consumer(t.Context(), "EVENTS", "gate")
	is.NoErr(err)
	is.Equal(c.CachedInfo().AckFloor.Stream, uint64(3))
	is.Equal(c.CachedInfo().NumAckPending, 4)
}
