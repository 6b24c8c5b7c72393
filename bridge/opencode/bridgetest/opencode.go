// Package bridgetest has a scripted OpenCode for the tests of the bridge, with the real log, read models and handlers.
//
// Promise: everything that it starts ends with the test.
//
// It must not know how OpenCode is run: the tests with the real OpenCode use the package opencodetest.
package bridgetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/ops/expect"
)

// OpenCode is a scripted OpenCode, for tests that need certain events at certain moments. It keeps the sessions,
// history, statuses, requests and questions of the events that a test gives it, streams the events to its clients, and
// records the requests that it receives. T and URL never change. Read and change the other fields in Locked.
type OpenCode struct {
	T   testing.TB
	URL string

	mu        sync.Mutex
	away      bool // refuses everything
	streams   []chan []byte
	Sessions  map[string]client.Session
	history   []json.RawMessage
	seqs      map[string]int64
	busy      map[string]json.RawMessage
	requests  map[string]client.Request
	Questions map[string]client.Request
	process   int            // number of the OpenCode process; Forget increments it
	prompts   map[string]int // by message id, the process that accepted it
	Silent    bool           // carries out requests without an event
	received  []Request
	serving   map[string]int    // by path, how many it has received and not answered
	refuse    func(Request) int // see RefuseWith; called without the lock
}

// Request is a request that OpenCode has received.
type Request struct{ Method, Path, Directory, Body string }

func newOpenCode(t testing.TB) *OpenCode {
	o := &OpenCode{T: t, Sessions: map[string]client.Session{}, seqs: map[string]int64{}, prompts: map[string]int{},
		serving: map[string]int{}}
	o.Forget()
	s := httptest.NewServer(o)
	t.Cleanup(func() { o.Disconnect(); s.Close() })
	o.URL = s.URL
	return o
}

// Forget simulates a restart: OpenCode loses its memory and gets a new process number.
func (o *OpenCode) Forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.process++
	o.busy = map[string]json.RawMessage{}
	o.requests, o.Questions = map[string]client.Request{}, map[string]client.Request{}
}

// Locked calls fn while nothing else uses the fields.
func (o *OpenCode) Locked(fn func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fn()
}

// Recorded returns the history so far.
func (o *OpenCode) Recorded() []json.RawMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.history)
}

// Disconnect ends the stream once everything said so far is sent, and refuses connections until Reconnect.
func (o *OpenCode) Disconnect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = true
	for _, s := range o.streams {
		close(s)
	}
	o.streams = nil
}

// Reconnect accepts connections again after Disconnect.
func (o *OpenCode) Reconnect() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = false
}

// Happen makes the frames true, and streams them.
func (o *OpenCode) Happen(frames ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.happenLocked(frames)
}

// HappenIn is Happen if OpenCode still is this process. Otherwise it does nothing.
func (o *OpenCode) HappenIn(process int, frames ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if process == o.process {
		o.happenLocked(frames)
	}
}

func (o *OpenCode) happenLocked(frames [][]byte) {
	for _, f := range frames {
		o.hold(f)
		o.stream(f)
	}
}

// AppendUnsent makes the frames true without streaming them.
func (o *OpenCode) AppendUnsent(frames ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range frames {
		o.hold(f)
	}
}

// Say streams the frames, true or not.
func (o *OpenCode) Say(frames ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range frames {
		o.stream(f)
	}
}

func (o *OpenCode) stream(frame []byte) {
	for _, s := range o.streams {
		s <- frame
	}
}

type Frame struct {
	Payload struct {
		ID, Type   string
		Properties json.RawMessage
		SyncEvent  struct {
			ID, Type, AggregateID string
			Seq                   int64
			Data                  json.RawMessage
		}
	}
}

func Parsed(data []byte) (f Frame) {
	if err := json.Unmarshal(data, &f); err != nil {
		panic(err)
	}
	return f
}

func (o *OpenCode) hold(data []byte) {
	p := Parsed(data).Payload
	if p.Type == "sync" {
		o.holdDurable(p.SyncEvent.ID, p.SyncEvent.Type, p.SyncEvent.AggregateID, p.SyncEvent.Seq, p.SyncEvent.Data)
		return
	}
	var about struct {
		SessionID, RequestID string
		Status               json.RawMessage
	}
	_ = json.Unmarshal(p.Properties, &about)
	switch p.Type {
	case "session.status":
		o.busy[about.SessionID] = about.Status
		if bytes.Contains(about.Status, []byte("idle")) {
			delete(o.busy, about.SessionID)
		}
	case "permission.asked":
		var a client.Request
		_ = json.Unmarshal(p.Properties, &a)
		o.requests[a.ID] = a
	case "question.asked":
		var q client.Request
		_ = json.Unmarshal(p.Properties, &q)
		o.Questions[q.ID] = q
	case "permission.replied", "question.replied", "question.rejected":
		delete(o.requests, about.RequestID)
		delete(o.Questions, about.RequestID)
	}
}

func (o *OpenCode) holdDurable(id, typ, session string, seq int64, data json.RawMessage) {
	o.seqs[session] = seq + 1
	var body struct{ Info client.Session }
	switch typ[:strings.LastIndexByte(typ, '.')] { // without its version
	case "session.created", "session.updated":
		_ = json.Unmarshal(data, &body)
		o.Sessions[session] = body.Info
	case "session.deleted":
		delete(o.Sessions, session)
		o.history = slices.DeleteFunc(o.history, func(h json.RawMessage) bool {
			return bytes.Contains(h, []byte(`"aggregate_id":"`+session))
		})
		return
	}
	o.history = append(o.history, []byte(fmt.Sprintf(`{"id":%q,"type":%q,"aggregate_id":%q,"seq":%d,"data":%s}`, id, typ,
		session, seq, data)))
}

// Plain is a frame of an event that is not durable.
func Plain(typ, properties string) []byte {
	return fmt.Appendf(nil, `{"directory":"/workspace","payload":{"id":%q,"type":%q,"properties":%s}}`,
		client.NewID("evt", time.Now()), typ, properties)
}

// Durably is the two frames of a durable event.
func (o *OpenCode) Durably(session, typ, properties string) [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.durablyLocked(session, typ, properties)
}

func (o *OpenCode) durablyLocked(session, typ, properties string) [][]byte {
	id, seq := client.NewID("evt", time.Now()), o.seqs[session]
	o.seqs[session]++
	return [][]byte{
		fmt.Appendf(nil, `{"directory":"/workspace","payload":{"id":%q,"type":%q,"properties":%s}}`, id, typ, properties),
		fmt.Appendf(nil, `{"directory":"/workspace","payload":{"id":%q,"type":"sync","syncEvent":{"id":%q,"type":"%s.1","seq":%d,"aggregateID":%q,"data":%s}}}`,
			id, id, typ, seq, session, properties),
	}
}

// AwaitPrompt waits until OpenCode has accepted a prompt, and returns the process that did. An answer before that would
// be out of order.
func (o *OpenCode) AwaitPrompt(message string) (process int) {
	o.T.Helper()
	expect.Eventually(o.T, "prompt "+message+" is accepted", func() (accepted bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		process, accepted = o.prompts[message]
		return accepted
	})
	return process
}

// UserMessage holds the properties of message.updated for a user message.
func UserMessage(session, message string) string {
	return fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"sessionID":%q,"role":"user","time":{"created":1}}}`, session,
		message, session)
}

// Answer ends the turn of a session with an assistant message.
func (o *OpenCode) Answer(session, parent string) {
	expect.Eventually(o.T, "the prompt is answered", func() bool { // a turn ends after it has begun
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.serving["/session/"+session+"/prompt_async"] == 0
	})
	done := fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"sessionID":%q,"role":"assistant","parentID":%q,"time":{"created":1,"completed":2},"finish":"stop"}}`,
		session, client.NewID("msg", time.Now()), session, parent)
	o.Happen(o.Durably(session, "message.updated", done)...)
	o.Happen(Plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"idle"}}`, session)),
		Plain("session.idle", fmt.Sprintf(`{"sessionID":%q}`, session)))
}

// Requests are those received so far of a method whose path matches the pattern, in order.
func (o *OpenCode) Requests(method, suffix string) (all []Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.received {
		if r.Method == method && len(r.Path) >= len(suffix) && r.Path[len(r.Path)-len(suffix):] == suffix {
			all = append(all, r)
		}
	}
	return all
}

// RefuseNext answers the first n requests whose path ends so with a status.
func (o *OpenCode) RefuseNext(method, suffix string, n int, status int) {
	var left atomic.Int64
	left.Store(int64(n))
	o.RefuseWith(func(r Request) int {
		if r.Method == method && strings.HasSuffix(r.Path, suffix) && left.Add(-1) >= 0 {
			return status
		}
		return 0
	})
}

// RefuseWith answers requests with the status that fn returns, unless it is 0.
func (o *OpenCode) RefuseWith(fn func(Request) int) { o.Locked(func() { o.refuse = fn }) }
