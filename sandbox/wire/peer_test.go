package wire_test

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

// finished reads frames from an inbox up to the result.
func finished(t *testing.T, inbox *nats.Subscription) (r wire.Result) {
	t.Helper()
	is := is.New(t)
	for {
		m, err := inbox.NextMsg(time.Minute)
		is.NoErr(err)
		if m.Header.Get("Exec-Frame") == "finished" {
			is.NoErr(json.Unmarshal(m.Data, &r))
			return r
		}
	}
}

// frame returns a frame about the offer "o1".
func frame(subject, kind string, body string) *nats.Msg {
	return &nats.Msg{Subject: subject, Header: nats.Header{"Exec-Frame": {kind}, "Exec-Offer": {"o1"}}, Data: []byte(body)}
}

// answer returns a frame of the offer "o1" in answer to the request m.
func answer(m *nats.Msg, kind string, body string) *nats.Msg {
	f := frame(m.Reply, kind, body)
	f.Header.Set("Exec-Ask", m.Header.Get("Exec-Ask"))
	return f
}

func TestAServerThatBreaksTheProtocolIsLost(t *testing.T) {
	t.Parallel()
	for want, frames := range map[string][]string{
		`unexpected frame "nonsense"`:           {"nonsense", ""},
		`unexpected frame ""`:                   {"", ""},
		"start is not JSON":                     {"started", ""},
		"chunk of 65537 bytes":                  {"stdout", strings.Repeat("x", wire.ChunkSize+1)},
		"chunk of 0 bytes":                      {"stderr", ""},
		"result is not JSON":                    {"finished", "{"},
		"result: a number":                      {"finished", `{"exit_code":256}`},
		"number is out of range":                {"finished", `{"duration_ms":9223372036854775807}`},
		"result: unknown reason":                {"finished", `{"reason":"bored"}`},
		"0 of 7 bytes of stdout and 0 of 1 of ": {"finished", `{"stdout_bytes":7,"stderr_bytes":1}`},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			nc := connect(t, natsServer(t))
			_, err := nc.Subscribe(subject, func(m *nats.Msg) {
				var r wire.Request
				json.Unmarshal(m.Data, &r)
				nc.Subscribe(wire.ControlSubject(subject, r.Exec), func(c *nats.Msg) {
					if c.Header.Get("Exec-Frame") == "grant" {
						if frames[0] != "started" {
							nc.PublishMsg(answer(m, "started", "{}"))
						}
						nc.PublishMsg(answer(m, frames[0], frames[1]))
					}
				})
				nc.PublishMsg(answer(m, "offer", ""))
			})
			is.NoErr(err)
			result, err := wire.Call(t.Context(), nc, subject, hello, io.Discard, io.Discard)
			is.NoErr(err)
			is.Equal(result.Reason, wire.Lost)
			expect.Contains(t, result.Error, want)
		})
	}
}

func TestARefusalBeforeTheStartIsReturned(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := connect(t, natsServer(t))
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		nc.PublishMsg(answer(m, "finished", `{"exit_code":126,"reason":"refused","error":"no\u001b[31m\nway"}`))
	})
	is.NoErr(err)
	result, err := wire.Call(t.Context(), nc, subject, hello, io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.Reason, wire.Refused)
	is.Equal(result.Error, "no [31m way") // control characters are replaced
}

// Only the granted server reports the result. Before the grant, any server may refuse the command.
func TestAResultOfAnotherServerIsIgnored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	nc := connect(t, natsServer(t))
	_, err := nc.Subscribe(subject, func(m *nats.Msg) {
		var r wire.Request
		json.Unmarshal(m.Data, &r)
		other := func(body string) {
			f := answer(m, "finished", body)
			f.Header.Set("Exec-Offer", "o2")
			nc.PublishMsg(f)
		}
		nc.Subscribe(wire.ControlSubject(subject, r.Exec), func(*nats.Msg) {
			other(`{"exit_code":126,"reason":"refused","error":"it runs already"}`)
			other(`{"exit_code":126,"reason":"of another version"}`)
			other(`{`)
			nc.PublishMsg(answer(m, "started", "{}"))
			other(`{"exit_code":4}`)
			nc.PublishMsg(answer(m, "finished", `{"exit_code":3}`))
		})
		other(`{"exit_code":5}`)
		nc.PublishMsg(answer(m, "offer", ""))
	})
	is.NoErr(err)
	result, err := wire.Call(t.Context(), nc, subject, hello, io.Discard, io.Discard)
	is.NoErr(err)
	is.Equal(result.ExitCode, 3)
}

// A caller that cancels while an offer arrives may grant it before the cancel, not after.
func TestNoGrantFollowsACancel(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	url := natsServer(t)
	worker, nc := connect(t, url), connect(t, url)
	cancel := func() {} // of the current call
	var crossed atomic.Int64
	_, err := worker.Subscribe(subject, func(m *nats.Msg) {
		var r wire.Request
		json.Unmarshal(m.Data, &r)
		frames := ""
		worker.Subscribe(wire.ControlSubject(subject, r.Exec), func(c *nats.Msg) {
			switch frames += c.Header.Get("Exec-Frame"); frames {
			case "cancelgrant":
				crossed.Add(1)
				fallthrough
			case "grantcancel":
				worker.PublishMsg(answer(m, "finished", `{"reason":"cancelled"}`))
			}
		})
		worker.PublishMsg(answer(m, "offer", ""))
		time.AfterFunc(rand.N(200*time.Microsecond), cancel)
	})
	is.NoErr(err)
	is.NoErr(worker.Flush())
	for range 2000 {
		ctx, giveUp := context.WithCancel(t.Context())
		cancel = giveUp
		wire.Call(ctx, nc, subject, hello, io.Discard, io.Discard)
		giveUp()
	}
	is.Equal(crossed.Load(), int64(0))
}

func TestBadRequestsOfAPeerAreRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	running := make(chan bool, 1)
	nc := pair(t, func(ctx context.Context, _ wire.Request, _, _ io.Writer) wire.Result {
		running <- true
		<-ctx.Done()
		return wire.Result{Reason: wire.Cancelled}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go wire.Call(ctx, nc, subject, wire.Request{Exec: "taken", Command: "x", Cwd: "/"}, io.Discard, io.Discard)
	<-running
	defer cancel()
	for body, want := range map[string]string{
		`{`: "not JSON",
		`{"exec":"x","command":"echo","cwd":"relative"}`: "cwd must be",
		`{"exec":"a.>","command":"echo","cwd":"/"}`:      "exec must be",
		`{"command":"echo","cwd":"/"}`:                   "exec must be",
		`{"exec":"taken","command":"echo","cwd":"/"}`:    "already running",
	} {
		inbox, err := nc.SubscribeSync(nc.NewInbox())
		is.NoErr(err)
		is.NoErr(nc.PublishRequest(subject, inbox.Subject, []byte(body)))
		result := finished(t, inbox)
		is.Equal(result.Reason, wire.Refused)
		is.Equal(result.ExitCode, wire.ExitRefused)
		expect.Contains(t, result.Error, want)
	}
}

// A caller cannot raise the window with credit that exceeds what was sent.
func TestFalseCreditIsIgnored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	wrote := make(chan int, 1)
	nc := pair(t, func(ctx context.Context, _ wire.Request, stdout, _ io.Writer) wire.Result {
		n, err := stdout.Write(make([]byte, 10*wire.Window))
		if err == nil {
			n = -1
		}
		wrote <- n
		return wire.Result{Reason: wire.Cancelled}
	})
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	is.NoErr(err)
	presence, err := nc.SubscribeSync(wire.CallerSubject(subject, "x1"))
	is.NoErr(err)
	is.NoErr(nc.PublishRequest(subject, inbox.Subject, []byte(`{"exec":"x1","command":"x","cwd":"/"}`)))
	offer, err := inbox.NextMsg(time.Minute)
	is.NoErr(err)
	control := wire.ControlSubject(subject, "x1")
	grant := frame(control, "grant", "")
	grant.Header.Set("Exec-Offer", offer.Header.Get("Exec-Offer"))
	is.NoErr(nc.PublishMsg(grant))
	for _, credit := range []string{"0", "-1", "9223372036854775807", "99999999999999999999", "1e9", "", "0"} {
		is.NoErr(nc.PublishMsg(frame(control, "credit", credit)))
	}
	is.NoErr(nc.PublishMsg(frame(control, "nonsense", "")))
	_, err = presence.NextMsg(time.Minute)
	is.NoErr(err) // one probe later the writer still waits
	_, err = presence.NextMsg(time.Minute)
	is.NoErr(err)
	select {
	case n := <-wrote:
		t.Fatal("the writer did not wait, it wrote", n)
	default:
	}
	is.NoErr(nc.PublishMsg(frame(control, "cancel", "")))
	n := <-wrote
	is.True(n > 0 && n <= wire.Window)
	is.Equal(finished(t, inbox).StdoutBytes, int64(n))
}
