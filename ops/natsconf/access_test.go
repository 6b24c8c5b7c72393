package natsconf_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox/wire"
)

// openLog makes EVENTS with three events and a durable consumer of core, and returns how many events there are.
func openLog(t *testing.T, core *nats.Conn) (js jetstream.JetStream, count func() uint64) {
	t.Helper()
	is := is.New(t)
	js, err := jetstream.New(core)
	is.NoErr(err)
	for name, subject := range map[string]string{"EVENTS": "evt.>", "DELTAS": "delta.>"} {
		_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{subject}, AllowDirect: true})
		is.NoErr(err)
	}
	for i := range 3 {
		_, err = js.Publish(t.Context(), "evt.chat.c1.created", fmt.Append(nil, i))
		is.NoErr(err)
	}
	_, err = js.CreateConsumer(t.Context(), "EVENTS", jetstream.ConsumerConfig{Durable: "deliver"})
	is.NoErr(err)
	return js, func() uint64 {
		s, err := js.Stream(t.Context(), "EVENTS")
		is.NoErr(err)
		return s.CachedInfo().State.Msgs
	}
}

// next returns what the server denied.
func next(t *testing.T, nc *nats.Conn, denied <-chan error) string {
	t.Helper()
	is.New(t).NoErr(nc.Flush())
	select {
	case err := <-denied:
		return err.Error()
	case <-time.After(5 * time.Second):
		return "nothing was denied"
	}
}

func TestWhatEachIdentityMayNotDo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	core, _ := n.connect(natsconf.Core)
	_, count := openLog(t, core)
	forbidden := []string{
		"evt.chat.c1.forged", "delta.chat.c1.m.p", "timer.x", "exec.run.p1", "exec.run.p1.X", "$JS.API.STREAM.PURGE.EVENTS",
		"$JS.API.STREAM.DELETE.EVENTS", "$JS.API.STREAM.INFO.EVENTS", "$KV.SECRETS.x", "$JS.ACK.EVENTS.deliver.1.1.1.1.1", "$SYS.REQ.SERVER.PING",
		natsconf.ReaderAPI + ".CONSUMER.CREATE.EVENTS.deliver", natsconf.ReaderAPI + ".CONSUMER.CREATE.EVENTS.deliver.evt.>",
		natsconf.ReaderAPI + ".CONSUMER.MSG.NEXT.EVENTS.deliver",
	}
	noExec := []string{"exec.request.e1", "exec.request.e1.X"}
	noRead := []string{natsconf.ReaderAPI + ".STREAM.INFO.EVENTS", natsconf.ReaderAPI + ".DIRECT.GET.EVENTS", "cmd.x", "query.x"}
	inboxes := []string{"_INBOX.>", "_INBOX_CORE.>", "_R_.>", ">", "$SYS.>", "exec.>", "exec.request.*", "exec.run.*", "$JS.>", "cmd.>"}
	for _, c := range []struct {
		id        natsconf.Identity
		publish   []string
		subscribe []string
	}{
		{natsconf.Operator, append(noExec, "_R_.x"), []string{natsconf.InboxPrefix(natsconf.Observer) + ".>"}},
		{natsconf.Observer, append(noExec, "_R_.x", "cmd.x", "query.x"), []string{natsconf.InboxPrefix(natsconf.Operator) + ".>"}},
		{natsconf.Shell, append(noRead, "_R_.x", "exec.request.other", "exec.request.e1.X.caller"), []string{"evt.>", "delta.>", "exec.request.e1", "exec.request.e1.*"}},
		{natsconf.Worker, append(noRead, append(noExec, "exec.run.p2.X.caller")...), []string{"evt.>", "delta.>", "exec.run.p2", "exec.run.p1.*.caller", "_INBOX_WORKER.>"}},
	} {
		nc, denied := n.connect(c.id)
		for _, subject := range append(c.publish, forbidden...) {
			is.NoErr(nc.PublishRequest(subject, "_R_.x", []byte(`{}`)))
			got := next(t, nc, denied)
			is.True(strings.Contains(strings.ToLower(got), strings.ToLower(fmt.Sprintf("publish to %q", subject)))) // must be denied
		}
		for _, subject := range append(c.subscribe, inboxes...) {
			_, err := nc.SubscribeSync(subject)
			is.NoErr(err)
			is.True(strings.Contains(strings.ToLower(next(t, nc, denied)), strings.ToLower(fmt.Sprintf("subscription to %q", subject)))) // must be denied
			_, err = nc.QueueSubscribeSync(subject, "workers")
			is.NoErr(err)
			is.True(strings.Contains(next(t, nc, denied), `using queue "workers"`)) // also in a queue group
		}
	}
	is.Equal(count(), uint64(3))
}

// A reply subject is not held to the asker's permissions: whoever answers publishes there. So it must not get through.
func TestReplySubjectsForgeNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	core, _ := n.connect(natsconf.Core)
	_, count := openLog(t, core)
	answered := make(chan string, 10)
	answer := func(m *nats.Msg) {
		m.Respond([]byte("forged"))
		answered <- m.Reply
	}
	for _, subject := range []string{"exec.request.e1", "cmd.>", "query.>"} {
		_, err := core.Subscribe(subject, answer)
		is.NoErr(err)
	}
	is.NoErr(core.Flush())
	ask := map[natsconf.Identity][]string{
		natsconf.Shell:    {"exec.request.e1"},
		natsconf.Operator: {"cmd.x", "query.x", natsconf.ReaderAPI + ".STREAM.INFO.EVENTS"},
		natsconf.Observer: {natsconf.ReaderAPI + ".STREAM.INFO.EVENTS", natsconf.ReaderAPI + ".DIRECT.GET.EVENTS.evt.chat.c1.created"},
	}
	for id, subjects := range ask {
		nc, _ := n.connect(id)
		for _, subject := range subjects {
			for _, reply := range []string{"evt.chat.c1.forged", "$JS.API.STREAM.PURGE.EVENTS", "$JS.API.STREAM.DELETE.EVENTS", "exec.run.p1"} {
				is.NoErr(nc.PublishRequest(subject, reply, nil))
				is.NoErr(nc.Flush())
				if !strings.HasPrefix(subject, natsconf.ReaderAPI) {
					is.True(strings.HasPrefix(<-answered, "_R_.")) // the server's reply subject, not the asker's
				}
			}
		}
	}
	is.NoErr(core.Flush())
	is.Equal(count(), uint64(3))
}

func TestObserverReadsTheLogAndNothingElse(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	core, _ := n.connect(natsconf.Core)
	owner, count := openLog(t, core)
	for _, id := range []natsconf.Identity{natsconf.Observer, natsconf.Operator} {
		nc, _ := n.connect(id)
		live, err := nc.SubscribeSync("evt.chat.>")
		is.NoErr(err)
		is.NoErr(nc.Flush())
		before := count()
		_, err = owner.Publish(t.Context(), "evt.chat.c1.created", []byte("live"))
		is.NoErr(err)
		m, err := live.NextMsg(5 * time.Second)
		is.NoErr(err)
		is.Equal(string(m.Data), "live") // nats sub 'evt.>'

		js, err := jetstream.NewWithAPIPrefix(nc, natsconf.ReaderAPI)
		is.NoErr(err)
		stream, err := js.Stream(t.Context(), "EVENTS")
		is.NoErr(err)
		is.Equal(stream.CachedInfo().State.Msgs, before+1)
		last, err := stream.GetLastMsgForSubject(t.Context(), "evt.chat.c1.created")
		is.NoErr(err)
		is.Equal(string(last.Data), "live")
		deliver, err := stream.Consumer(t.Context(), "deliver")
		is.NoErr(err)                                     // may be looked at
		for deliver.CachedInfo().NumPending != before+1 { // the server counts an event a moment after it has stored it
			_, err = deliver.Info(t.Context())
			is.NoErr(err)
		}

		all, err := js.OrderedConsumer(t.Context(), "EVENTS", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"evt.chat.c1.>"}})
		is.NoErr(err)
		msgs, err := all.Messages()
		is.NoErr(err)
		for range before + 1 {
			_, err := msgs.Next(jetstream.NextMaxWait(5 * time.Second))
			is.NoErr(err)
		}
		msgs.Stop()

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = js.Stream(ctx, "KV_SECRETS")
		is.True(err != nil)
		is.True(stream.Purge(ctx) != nil)
		is.True(js.DeleteStream(ctx, "EVENTS") != nil)
		is.Equal(count(), before+1)
	}
}

// The whole way of a command, in the accounts that ship: shell, handler, worker.
func TestCommandsCrossTheAccounts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	n := start(t)
	shell, _ := n.connect(natsconf.Shell)
	core, coreDenied := n.connect(natsconf.Core)
	worker, workerDenied := n.connect(natsconf.Worker)
	relay(t, core)
	cancelled := make(chan string, 1)
	serve(t, worker, wire.RunSubject("p1"), func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
		switch r.Command {
		case "64 MiB":
			chunk := make([]byte, 1<<20)
			for range 64 {
				stdout.Write(chunk)
			}
			io.WriteString(stderr, "done")
		case "wait":
			io.WriteString(stdout, "waiting")
			<-ctx.Done()
			cancelled <- r.Exec
			return wire.Result{ExitCode: 143, Reason: wire.Cancelled}
		case "quiet":
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second): // many probes long
				return wire.Result{ExitCode: 9}
			}
		case "die":
			worker.Close()
			<-ctx.Done()
		}
		return wire.Result{ExitCode: 7}
	})
	var out, errs counter
	result, err := wire.Call(t.Context(), shell, wire.RequestSubject("e1"), wire.Request{Command: "64 MiB", Cwd: "/"}, &out, &errs)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Exited)
	is.Equal(result.ExitCode, 7)
	is.Equal(int64(out), int64(64<<20)) // credit crossed the accounts 64 times and more
	is.Equal(int64(errs), int64(4))

	result, err = wire.Call(t.Context(), shell, wire.RequestSubject("e1"), wire.Request{Command: "quiet", Cwd: "/"}, io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.ExitCode, 9) // nobody took the silence for death

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result, err = wire.Call(ctx, shell, wire.RequestSubject("e1"), wire.Request{Command: "wait", Cwd: "/"}, writerFunc(cancel), io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Cancelled)
	is.Equal(<-cancelled, "exec-of-the-handler")

	// A shell that is gone without a word takes its command with it, all the way.
	go wire.Call(t.Context(), shell, wire.RequestSubject("e1"), wire.Request{Command: "wait", Cwd: "/"}, writerFunc(shell.Close), io.Discard)
	is.Equal(<-cancelled, "exec-of-the-handler")

	shell, _ = n.connect(natsconf.Shell)
	result, err = wire.Call(t.Context(), shell, wire.RequestSubject("e1"), wire.Request{Command: "die", Cwd: "/"}, io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Lost)
	is.Equal(len(coreDenied)+len(workerDenied), 0)
}

// relay is what the handler does with a command, without asking anybody.
func relay(t testing.TB, core *nats.Conn) {
	t.Helper()
	serve(t, core, wire.RequestSubject("e1"), func(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
		r.Exec = "exec-of-the-handler"
		result, err := wire.Call(ctx, core, wire.RunSubject("p1"), r, stdout, stderr)
		if err != nil {
			return wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: err.Error()}
		}
		return result
	})
}

// One command's output over TCP, through both legs and three accounts.
func BenchmarkOutput(b *testing.B) {
	n := start(b)
	shell, _ := n.connect(natsconf.Shell)
	core, _ := n.connect(natsconf.Core)
	worker, _ := n.connect(natsconf.Worker)
	relay(b, core)
	const size = 100 << 20
	serve(b, worker, wire.RunSubject("p1"), func(_ context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
		chunk := make([]byte, 64<<10)
		for range size / len(chunk) {
			stdout.Write(chunk)
		}
		return wire.Result{}
	})
	b.SetBytes(size)
	for b.Loop() {
		var out counter
		result, err := wire.Call(b.Context(), shell, wire.RequestSubject("e1"), wire.Request{Command: "x", Cwd: "/"}, &out, io.Discard)
		if err != nil || result.Reason != wire.Exited || out != size {
			b.Fatal(result, err, out)
		}
	}
}

func serve(t testing.TB, nc *nats.Conn, subject string, handle wire.Handler) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- wire.Serve(ctx, nc, subject, "workers", handle) }()
	is := is.New(t)
	for nc.NumSubscriptions() == 0 {
		time.Sleep(time.Millisecond)
	}
	is.NoErr(nc.Flush())
	t.Cleanup(func() {
		stop()
		if err := <-ended; !nc.IsClosed() {
			is.NoErr(err)
		}
	})
}

type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}
