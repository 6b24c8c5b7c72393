// Package handlerstest has what the tests of the handlers share: events as given facts, and what the log holds after a
// command.
//
// It must not be linked into a product.
package handlerstest

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
)

// Fact is an event to append.
type Fact struct {
	Data      events.Data
	By, Cause string
}

func (f Fact) Event(t testing.TB, chat string) events.Event {
	t.Helper()
	is := is.New(t)
	if o, ok := f.Data.(events.OpenCode); ok {
		e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1, o)
		is.NoErr(err)
		return e
	}
	e, err := events.New(chat, f.By, f.Data)
	is.NoErr(err)
	return e.CausedBy(f.Cause)
}

// Given folds facts into a state, numbered from 1.
func Given(t testing.TB, s handlers.State, facts ...Fact) {
	t.Helper()
	for i, f := range facts {
		e := f.Event(t, "c1")
		e.Seq = uint64(i + 1)
		s.Apply(e)
	}
}

// Happened appends facts to a chat's events.
func Happened(t testing.TB, l *log.Log, chat string, facts ...Fact) {
	t.Helper()
	for _, f := range facts {
		_, err := l.Append(t.Context(), f.Event(t, chat))
		is.New(t).NoErr(err)
	}
}

func OpenCode(typ string, properties any) Fact {
	body, err := json.Marshal(properties)
	if err != nil {
		panic(err)
	}
	return Fact{Data: events.OpenCode{Type: typ, Properties: body}}
}

// Permission returns OpenCode's permission request for a tool.
func Permission(id, session, call, typ string, patterns []string, metadata any) Fact {
	return OpenCode(events.PermissionAsked, map[string]any{
		"id": id, "sessionID": session, "permission": typ, "patterns": patterns, "metadata": metadata, "always": []string{},
		"tool": map[string]string{"messageID": "msg_1", "callID": call},
	})
}

// Bash returns OpenCode's permission request for a command. The id of its call is derived from that of the request.
func Bash(id, command string) Fact {
	return Permission(id, "ses_1", "call_"+id, "bash", []string{command}, map[string]string{"command": command})
}

func Replied(id string) Fact {
	return OpenCode(events.PermissionReplied, map[string]string{"sessionID": "ses_1", "requestID": id, "reply": "once"})
}

const Alice = "user:alice"

// History is every event of a chat, decoded.
func History(t testing.TB, l *log.Log, chat string) (all []events.Event, data []events.Data) {
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

// Of picks the facts of one kind out of a history.
func Of[D events.Data](data []events.Data) (found []D) {
	for _, d := range data {
		if d, ok := d.(D); ok {
			found = append(found, d)
		}
	}
	return found
}

// Await follows the log from its beginning until want is true of an event.
func Await[D events.Data](t testing.TB, l *log.Log, want func(D) bool) (found events.Event, as D) {
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

// Refusal is the code of a refused command, "" when it was not refused.
func Refusal(t testing.TB, err error) handlers.Code {
	t.Helper()
	var r handlers.Refused
	if err != nil && !errors.As(err, &r) {
		t.Fatalf("not a refusal: %v", err)
	}
	return r.Code
}

func Quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TwoRequests asks two questions together; the first takes several answers.
var TwoRequests = OpenCode(events.QuestionAsked, map[string]any{"id": "que_1", "sessionID": "ses_1",
	"questions": []map[string]any{
		{"question": "Which?", "multiple": true, "options": []map[string]string{{"label": "a"}, {"label": "b"}}}, {"question": "Sure?"},
	}})

// Decided returns a person's decision on a request of Bash.
func Decided(id, command string, d events.Decision) Fact {
	return Fact{By: Alice, Cause: "cmd_" + id, Data: events.PermissionDecided{
		Permission: id, Decision: d, Session: "ses_1", Call: "call_" + id, Type: "bash", Command: command, Request: Request(command),
	}}
}

// Approved returns a person's approval of the request per_1 for ls, with the fields of d.
func Approved(d events.PermissionDecided) Fact {
	d.Permission, d.Decision, d.Session, d.Call, d.Type, d.Command, d.Request = "per_1", events.Authorized, "ses_1",
		"call_per_1", "bash", "ls", Request("ls")
	return Fact{By: Alice, Data: d}
}

// Request returns the hash of a request for a command.
func Request(command string) string {
	return events.PermissionRequest{Permission: "bash", Patterns: []string{command},
		Metadata: []byte(`{"command":"` + command + `"}`)}.ContentHash()
}

func Say(words string) []events.Part { return []events.Part{{Type: "text", Text: words}} }

// AtOnce calls f n times at once and returns the errors.
func AtOnce(n int, give func(int) error) []error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = give(i) })
	}
	group.Wait()
	return errs
}

// Fields reads an object.
func Fields(object string) map[string]json.RawMessage {
	var f map[string]json.RawMessage
	if err := json.Unmarshal([]byte(object), &f); err != nil {
		panic(err)
	}
	return f
}

// Records returns the events about a collection's records as text, in order.
func Records(t *testing.T, l *log.Log, collection string) (lines []string) {
	t.Helper()
	_, err := l.Fold(t.Context(), events.ConfigSubject(collection, "*", "*"), 0, func(e events.Event) error {
		lines = append(lines, e.Subject.ID+" "+e.Subject.Kind+" "+string(e.Data))
		return nil
	})
	is.New(t).NoErr(err)
	return lines
}

// Deny is the decision the other way round.
func Deny(f Fact) events.PermissionDecided {
	d := f.Data.(events.PermissionDecided)
	d.Decision = events.Denied
	return d
}

func Write(t testing.TB, path, content string) {
	t.Helper()
	is.New(t).NoErr(os.WriteFile(path, []byte(content), 0o600))
}

// Edit is the request to change a file.
func Edit(id, path string) Fact {
	return Permission(id, "ses_1", "call_"+id, "edit", []string{filepath.Base(path)},
		map[string]string{"filepath": path, "diff": "-a\n+b"})
}

// Patch is the request of apply_patch for files, each a map of filePath, type and movePath.
func Patch(id string, files ...map[string]string) Fact {
	return Permission(id, "ses_1", "call_"+id, "edit", []string{"a"}, map[string]any{"filepath": "a", "files": files})
}

const Canary = "sk-canary-0123456789"

// Requested is a request for a command over the API. It names a session and a call of OpenCode's.
func Requested(id, command string) events.PermissionRequested {
	metadata, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err)
	}
	return events.PermissionRequested{
		Permission: id, Type: "bash", Patterns: []string{command}, Metadata: metadata, Session: "ses_1", Call: "call_per_1",
	}
}
