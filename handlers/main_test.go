package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/natsconf"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// TestMain lets the test binary also be a sandbox worker that is killed, and a server that a command starts.
func TestMain(m *testing.M) {
	if greeting := os.Getenv("HANDLERS_TEST_GREET"); greeting != "" {
		fmt.Fprintln(os.Stderr, greet(greeting))
		os.Exit(1)
	}
	if url := os.Getenv("HANDLERS_TEST_WORKER"); url != "" {
		fmt.Fprintln(os.Stderr, serveWorker(url, os.Getenv("HANDLERS_TEST_KEYS"), os.Getenv("HANDLERS_TEST_WORKSPACE")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func serveWorker(url, keys, workspace string) error {
	k, err := natsconf.LoadKeys(keys)
	if err != nil {
		return err
	}
	opts, err := k.Options(natsconf.Worker, "worker")
	if err != nil {
		return err
	}
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		return err
	}
	w, err := sandbox.Open(sandbox.Config{Isolation: isolation.Found{Level: isolation.None}, Workspace: workspace, Home: workspace, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	return wire.Serve(context.Background(), nc, wire.RunSubject("local"), wire.Server{Handle: w.Exec})
}

// greet says at which port it serves, and there the greeting and what it is told until nothing more comes.
func greet(greeting string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			fmt.Fprintln(c, greeting)
			io.Copy(c, c)
		}()
	}
}

// fact is an event as the log gives it.
type fact struct {
	data      events.Data
	by, cause string
}

func (f fact) event(t testing.TB, chat string) events.Event {
	t.Helper()
	is := is.New(t)
	if o, ok := f.data.(events.OpenCode); ok {
		e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1, o)
		is.NoErr(err)
		return e
	}
	e, err := events.New(chat, f.by, f.data)
	is.NoErr(err)
	return e.CausedBy(f.cause)
}

// given folds facts into a state, numbered from 1.
func given(t testing.TB, s state, facts ...fact) {
	t.Helper()
	for i, f := range facts {
		e := f.event(t, "c1")
		e.Seq = uint64(i + 1)
		s.apply(e)
	}
}

// happened appends facts to a chat's events.
func happened(t testing.TB, l *log.Log, chat string, facts ...fact) {
	t.Helper()
	for _, f := range facts {
		_, err := l.Append(t.Context(), f.event(t, chat))
		is.New(t).NoErr(err)
	}
}

func openCode(typ string, properties any) fact {
	body, err := json.Marshal(properties)
	if err != nil {
		panic(err)
	}
	return fact{data: events.OpenCode{Type: typ, Properties: body}}
}

// asks is OpenCode's ask whether it may use a tool; metadata tells what for.
func asks(id, session, call, typ string, patterns []string, metadata any) fact {
	return openCode(events.PermissionAsked, map[string]any{
		"id": id, "sessionID": session, "permission": typ, "patterns": patterns, "metadata": metadata, "always": []string{},
		"tool": map[string]string{"messageID": "msg_1", "callID": call},
	})
}

// askBash is the ask for a command; its call is called after it.
func askBash(id, command string) fact {
	return asks(id, "ses_1", "call_"+id, "bash", []string{command}, map[string]string{"command": command})
}

func replied(id string) fact {
	return openCode(events.PermissionReplied, map[string]string{"sessionID": "ses_1", "requestID": id, "reply": "once"})
}

const alice = "user:alice"

// history is every event of a chat, decoded.
func history(t testing.TB, l *log.Log, chat string) (all []events.Event, data []events.Data) {
	t.Helper()
	is := is.New(t)
	_, err := l.Fold(t.Context(), events.ChatFilter(chat), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		all, data = append(all, e), append(data, d)
		return err
	})
	is.NoErr(err)
	return all, data
}

// of picks the facts of one kind out of a history.
func of[D events.Data](data []events.Data) (found []D) {
	for _, d := range data {
		if d, ok := d.(D); ok {
			found = append(found, d)
		}
	}
	return found
}

// await follows the log from its beginning until want is true of an event.
func await[D events.Data](t testing.TB, l *log.Log, want func(D) bool) (found events.Event, as D) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err := l.Read(ctx, 0, nil, func(b log.Batch) error {
		for _, e := range b.Events {
			d, err := events.Decode(e)
			if err != nil {
				return err
			}
			if d, ok := d.(D); ok && want(d) {
				found, as = e, d
				return events.ErrStop
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("waiting for %s: %v", as.Kind(), err)
	}
	return found, as
}

// refusal is the code of a refused command, "" when it was not refused.
func refusal(t testing.TB, err error) Code {
	t.Helper()
	var r Refused
	if err != nil && !errors.As(err, &r) {
		t.Fatalf("not a refusal: %v", err)
	}
	return r.Code
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
