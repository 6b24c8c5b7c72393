package queries

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
)

// system is a log whose read models answer queries.
type system struct {
	t         *testing.T
	nc        *nats.Conn
	log       *log.Log
	model     *projections.Model
	isLoading *atomic.Bool
}

func newSystem(t *testing.T) system {
	t.Helper()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	m, err := projectionstest.Open(t.Context(), expect.MemoryDir(t), l)
	is.NoErr(err)
	t.Cleanup(func() { m.Close() })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); m.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	s := system{t, nc, l, m, &atomic.Bool{}}
	go Serve(ctx, nc, m, func() error {
		if s.isLoading.Load() {
			return projections.Loading{Done: 12, Total: 34}
		}
		return nil
	})
	expect.Eventually(t, "queries are answered", func() bool { return nc.NumSubscriptions() > len(answers(m)) })
	is.NoErr(nc.Flush())
	return s
}

// appended appends an event of chat1 and returns its sequence.
func (s system) appended(d events.Data) uint64 {
	s.t.Helper()
	e, err := events.New("chat1", events.ActorSystem, d)
	if err != nil {
		s.t.Fatal(err)
	}
	seq, err := s.log.Append(s.t.Context(), e)
	if err != nil {
		s.t.Fatal(err)
	}
	return seq
}

// ask returns the answer to a query.
func (s system) ask(name string, q Query) *nats.Msg {
	s.t.Helper()
	body, err := json.Marshal(q)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := s.nc.Request(prefix+name, body, timeout)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer
}

func TestNoQueryIsAnsweredWhileTheReadModelsAreComputed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.isLoading.Store(true)
	expect.Contains(t, s.ask("chats", Query{}).Header.Get(errorHeader), "12 of 34 events")
	s.isLoading.Store(false)
	is.Equal(s.ask("chats", Query{}).Header.Get(errorHeader), "")
}

func TestADeletedChatIsNotFound(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	seq := s.appended(events.ChatCreated{Title: "test"})
	is.Equal(s.ask("chat", Query{Chat: "chat1", After: seq}).Header.Get(errorHeader), "")
	seq = s.appended(events.Deleted{})
	is.Equal(s.ask("chat", Query{Chat: "chat1", After: seq}).Header.Get(errorHeader), "there is no chat chat1")
}

func TestAnyOutputOfACommandFitsIntoAnAnswer(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.appended(events.ChatCreated{Title: "test"})
	for name, c := range map[string]struct {
		out    events.Output
		isText bool
	}{
		"plain":     {events.Output{Text: strings.Repeat("many\nlines\n", 20_000)}, true},
		"controls":  {events.Output{Text: strings.Repeat("\x00", log.MaxInline)}, false},
		"markup":    {events.Output{Text: strings.Repeat("<", log.MaxInline)}, false},
		"not UTF-8": {events.Output{Base64: []byte(strings.Repeat("\xff", log.MaxInline))}, false},
		"nothing":   {events.Output{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			id := strings.Fields(name)[0]
			s.appended(events.ExecRequested{Exec: id, Command: "make"})
			answer := s.ask("execution", Query{Execution: id,
				After: s.appended(events.ExecFinished{Exec: id, Stdout: c.out, Stderr: c.out})})
			is.Equal(answer.Header.Get(errorHeader), "")
			var run projections.ShownExecution
			is.NoErr(json.Unmarshal(answer.Data, &run))
			var got projections.ExecutionOutputs
			is.NoErr(json.Unmarshal([]byte(run.Outputs), &got))
			for _, out := range []events.Output{got.Stdout, got.Stderr} {
				is.True(out.Text+string(out.Base64) == c.out.Text+string(c.out.Base64))
				is.Equal(out.Base64 == nil, c.isText)
			}
		})
	}
}

func TestEvaluatedReturnsWhereTheFirstRequestIsThatIsNotEvaluated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.appended(events.ChatCreated{Title: "chat"})
	evaluated := func() uint64 {
		t.Helper()
		is.NoErr(s.model.CatchUp(t.Context()))
		seq, err := Evaluated(s.model)(t.Context())
		is.NoErr(err)
		return seq
	}
	request := func(id string) uint64 {
		return s.appended(events.PermissionRequested{Permission: id, Type: "bash", Patterns: []string{"ls"}})
	}
	request("p1")
	second := request("p2")
	third := request("p3")
	s.appended(events.PermissionDecided{Permission: "p1", Decision: events.Denied})
	is.Equal(evaluated(), second-1)
	s.appended(events.PermissionReferred{Permission: "p2", Reason: "no rule allows it"})
	is.Equal(evaluated(), third-1)
	last := s.appended(events.PermissionExpired{Permission: "p3"})
	is.Equal(evaluated(), last)
}
