package log

import (
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
)

// The server delivers events again, and out of order, after a restart or when a lease has ended.
func TestEventsOfAChatStartInOrder(t *testing.T) {
	is := is.New(t)
	closed := &nats.Conn{} // leases cannot be extended, which changes nothing here
	var q chatQueues
	add := func(chat string, seq uint64) bool { return q.enqueue(chat, delivery{nc: closed, seq: seq, reply: "r"}) }
	is.True(add("a", 7))
	is.True(add("b", 8)) // another chat
	for _, seq := range []uint64{12, 9, 7, 12, 3, 9} {
		is.True(!add("a", seq))
	}
	for _, want := range []uint64{3, 9, 12} {
		d, more := q.next("a")
		is.True(more)
		is.Equal(d.seq, want)
		is.True(!add("a", want)) // it is in work
	}
	_, more := q.next("a")
	is.True(!more)
	is.True(add("a", 12)) // it failed
}
