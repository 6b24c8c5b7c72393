package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

const connected = `data: {"payload":{"id":"evt_0","type":"server.connected","properties":{}}}` + "\n\n"

// serve returns a client of a server whose event stream handler writes.
func serve(t *testing.T, handler func(w *bufio.ReadWriter)) *Client {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		conn, rw, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		handler(rw)
		rw.Flush()
	}))
	t.Cleanup(s.Close)
	return New(s.URL, "secret")
}

// chunked writes s as one chunk of HTTP's chunked encoding.
func chunked(w *bufio.ReadWriter, s string) { fmt.Fprintf(w, "%x\r\n%s\r\n", len(s), s) }

func TestAnEventThatNestsTooDeepEndsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	deep := `{"sessionID":"ses_1","x":` + strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000) + `}`
	c := serve(t, func(w *bufio.ReadWriter) {
		chunked(w, connected)
		chunked(w, `data: {"payload":{"id":"evt_1","type":"todo.updated","properties":`+deep+"}}\n\n")
		chunked(w, `data: {"payload":{"id":"evt_2","type":"server.heartbeat","properties":{}}}`+"\n\n")
		fmt.Fprint(w, "0\r\n\r\n")
	})
	var got []Event
	err := c.Stream(t.Context(), Silence, func(batch []Event) error {
		got = append(got, batch...)
		return nil
	})
	is.True(err != nil) // the server closed
	is.Equal(len(got), 3)
	is.Equal(got[1].Session, "ses_1")

	history, err := answering(t, 200, `[{"id":"evt_1","aggregate_id":"ses_1","seq":1,"type":"message.part.updated.1","data":`+deep+`}]`).historyPage(t.Context(), nil, nil)
	is.NoErr(err)
	is.Equal(len(history), 1)
}

func TestAHugeEventPasses(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text := strings.Repeat("x", 32<<20)
	c := serve(t, func(w *bufio.ReadWriter) {
		chunked(w, connected)
		chunked(w, `data: {"payload":{"id":"evt_1","type":"todo.updated","properties":{"sessionID":"ses_1","text":"`+text+
			"\"}}}\n\n")
		chunked(w, `data: {"payload":{"id":"evt_2","type":"server.heartbeat","properties":{}}}`+"\n\n")
		fmt.Fprint(w, "0\r\n\r\n")
	})
	var got []Event
	err := c.Stream(t.Context(), Silence, func(batch []Event) error {
		got = append(got, batch...)
		return nil
	})
	is.True(err != nil) // the server closed
	is.Equal(len(got), 3)
	is.Equal(got[1].Session, "ses_1")
	is.True(len(got[1].Properties) > len(text))
	is.Equal(got[2].ID, "evt_2")
}

func TestAnEventOverTheLimitIsAnError(t *testing.T) {
	is := is.New(t)
	line := "data: " + strings.Repeat("x", 100<<10)
	seen := 0
	count := func([]byte) error { seen++; return nil }
	is.NoErr(eachData(strings.NewReader(line+"\n"), len(line)+1, count))
	is.Equal(seen, 1)
	err := eachData(strings.NewReader(line+"\n"), len(line), count)
	is.True(err != nil)
	expect.Contains(t, err.Error(), fmt.Sprint(len(line)))
	is.Equal(seen, 1)
}

func TestOtherFieldsAndUnfinishedLinesAreNoEvents(t *testing.T) {
	is := is.New(t)
	var got []string
	err := eachData(strings.NewReader(": hi\nid: 7\ndata: a\n\ndata:b\r\n\nevent: x\ndata: half"), 100,
		func(b []byte) error {
			got = append(got, string(b))
			return nil
		})
	is.NoErr(err)
	is.Equal(got, []string{"a", "b"})
}

func TestABurstComesInOrderAndInBatches(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const n = 10_000
	c := serve(t, func(w *bufio.ReadWriter) {
		chunked(w, connected)
		for i := range n {
			chunked(w, fmt.Sprintf(`data: {"payload":{"id":"evt_%d","type":"session.idle","properties":{"sessionID":"ses_1"}}}`+
				"\n\n", i))
		}
	})
	var got []Event
	batches := 0
	c.Stream(t.Context(), Silence, func(batch []Event) error {
		is.True(len(batch) <= maxBatch)
		got = append(got, batch...)
		batches++
		return nil
	})
	is.Equal(len(got), n+1)
	for i, e := range got[1:] {
		is.Equal(e.ID, fmt.Sprintf("evt_%d", i))
	}
	is.True(batches < n/2) // what arrived together is given together
}

func TestWhatIsReadAheadIsBounded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	q := newQueue(4096)
	one := Event{Properties: make([]byte, 1000)}
	pushed := make(chan int)
	go func() {
		n := 0
		for q.push(one) == nil {
			n++
		}
		pushed <- n
	}()
	for taken := 0; taken < 20; {
		batch, _ := q.take()
		is.True(len(batch)*one.size() <= 4096)
		taken += len(batch)
	}
	q.stop() // wakes a push that waits for room
	<-pushed

	big := newQueue(10)
	is.NoErr(big.push(one)) // an event over the bound is let in alone
}

func TestASilentConnectionIsNoticed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	hold := make(chan struct{})
	c := serve(t, func(w *bufio.ReadWriter) {
		chunked(w, connected)
		w.Flush()
		<-hold // the connection stays open and nothing arrives, as when the other end has vanished
	})
	t.Cleanup(func() { close(hold) }) // before the server's own clean-up, which waits for it
	seen := 0
	err := c.Stream(t.Context(), 2*time.Second, func(batch []Event) error { seen += len(batch); return nil })
	is.Equal(seen, 1)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "nothing arrived for 2s")
	is.True(Retryable(err))
}

func TestAServerThatNeverAnswersIsNoticed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, in the kernel, and says nothing
	is.NoErr(err)
	defer l.Close()
	err = New("http://"+l.Addr().String(), "").Stream(t.Context(), 200*time.Millisecond, nil)
	is.True(err != nil)
	expect.Contains(t, err.Error(), "nothing arrived")
}

func TestASlowConsumerIsNoSilence(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const silence = time.Second
	c := serve(t, func(w *bufio.ReadWriter) {
		chunked(w, connected)
		for i := range 30 {
			chunked(w, fmt.Sprintf(`data: {"payload":{"id":"evt_%d","type":"x","properties":{"p":"%s"}}}`+"\n\n", i,
				strings.Repeat("p", 1<<20)))
		}
		fmt.Fprint(w, "0\r\n\r\n")
	})
	got := 0
	err := c.Stream(t.Context(), silence, func(batch []Event) error {
		if got == 0 {
			<-time.After(3 * silence) // the read-ahead is full meanwhile
		}
		got += len(batch)
		return nil
	})
	expect.Contains(t, err.Error(), "closed the stream")
	is.Equal(got, 31)
}

func TestTheConsumersErrorEndsTheStream(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	hold := make(chan struct{})
	c := serve(t, func(w *bufio.ReadWriter) {
		chunked(w, connected)
		w.Flush()
		<-hold
	})
	t.Cleanup(func() { close(hold) })
	full := errors.New("no space")
	is.Equal(c.Stream(t.Context(), Silence, func([]Event) error { return full }), full)

	ctx, cancel := context.WithCancel(t.Context())
	err := c.Stream(ctx, Silence, func([]Event) error { cancel(); return nil })
	is.True(errors.Is(err, context.Canceled))
	is.True(!Retryable(err))
}

func TestAStreamBeginsWithServerConnected(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := serve(t, func(w *bufio.ReadWriter) {
		chunked(w, `data: {"payload":{"id":"evt_1","type":"session.idle","properties":{}}}`+"\n\n")
	})
	err := c.Stream(t.Context(), Silence, func([]Event) error { return nil })
	is.True(err != nil)
	expect.Contains(t, err.Error(), "session.idle")
}
