package opencode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/expect"
)

// outside stands for OpenCode where a test needs it to say exactly this, exactly now: it holds what the frames it was
// given say (sessions, history, statuses, asks, questions), streams them to who is connected, and notes what it is told.
type outside struct {
	t   testing.TB
	url string

	mu        sync.Mutex
	away      bool // refuses everything
	streams   []chan []byte
	sessions  map[string]client.Session
	history   []json.RawMessage
	seqs      map[string]int64
	busy      map[string]json.RawMessage
	asks      map[string]client.PermissionRequest
	questions map[string]client.QuestionRequest
	prompts   map[string]bool // message ids it has accepted
	silent    bool            // does what it is told and says nothing about it
	received  []request
	serving   map[string]int    // by path, how many it has received and not answered
	refuse    func(request) int // a status to answer with instead, 0 for none; called without the lock
}

type request struct{ Method, Path, Directory, Body string }

func newOutside(t testing.TB) *outside {
	o := &outside{t: t, sessions: map[string]client.Session{}, seqs: map[string]int64{}, prompts: map[string]bool{}, serving: map[string]int{}}
	o.forget()
	s := httptest.NewServer(o)
	t.Cleanup(func() { o.cut(); s.Close() })
	o.url = s.URL
	return o
}

// forget is what a restart does to OpenCode's memory.
func (o *outside) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.busy, o.asks, o.questions = map[string]json.RawMessage{}, map[string]client.PermissionRequest{}, map[string]client.QuestionRequest{}
}

// cut ends the stream once everything said so far is sent, and refuses connections until back.
func (o *outside) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = true
	for _, s := range o.streams {
		close(s)
	}
	o.streams = nil
}

func (o *outside) back() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.away = false
}

// happen makes the frames true, and streams them.
func (o *outside) happen(frames ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range frames {
		o.hold(f)
		o.stream(f)
	}
}

// miss makes the frames true without streaming them.
func (o *outside) miss(frames ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range frames {
		o.hold(f)
	}
}

// say streams the frames, true or not.
func (o *outside) say(frames ...[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, f := range frames {
		o.stream(f)
	}
}

func (o *outside) stream(frame []byte) {
	for _, s := range o.streams {
		s <- frame
	}
}

type frame struct {
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

func parsed(data []byte) (f frame) {
	if err := json.Unmarshal(data, &f); err != nil {
		panic(err)
	}
	return f
}

func (o *outside) hold(data []byte) {
	p := parsed(data).Payload
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
		var a client.PermissionRequest
		_ = json.Unmarshal(p.Properties, &a)
		o.asks[a.ID] = a
	case "question.asked":
		var q client.QuestionRequest
		_ = json.Unmarshal(p.Properties, &q)
		o.questions[q.ID] = q
	case "permission.replied", "question.replied", "question.rejected":
		delete(o.asks, about.RequestID)
		delete(o.questions, about.RequestID)
	}
}

func (o *outside) holdDurable(id, typ, session string, seq int64, data json.RawMessage) {
	o.seqs[session] = seq + 1
	var body struct{ Info client.Session }
	switch typ[:strings.LastIndexByte(typ, '.')] { // without its version
	case "session.created", "session.updated":
		_ = json.Unmarshal(data, &body)
		o.sessions[session] = body.Info
	case "session.deleted":
		delete(o.sessions, session)
		o.history = slices.DeleteFunc(o.history, func(h json.RawMessage) bool { return bytes.Contains(h, []byte(`"aggregate_id":"`+session)) })
		return
	}
	o.history = append(o.history, []byte(fmt.Sprintf(`{"id":%q,"type":%q,"aggregate_id":%q,"seq":%d,"data":%s}`, id, typ, session, seq, data)))
}

// plain is a frame of an event that is not durable.
func plain(typ, properties string) []byte {
	return fmt.Appendf(nil, `{"directory":"/workspace","payload":{"id":%q,"type":%q,"properties":%s}}`, client.NewID("evt", time.Now()), typ, properties)
}

// durably is the two frames of a durable event.
func (o *outside) durably(session, typ, properties string) [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.durablyLocked(session, typ, properties)
}

func (o *outside) durablyLocked(session, typ, properties string) [][]byte {
	id, seq := client.NewID("evt", time.Now()), o.seqs[session]
	o.seqs[session]++
	return [][]byte{
		fmt.Appendf(nil, `{"directory":"/workspace","payload":{"id":%q,"type":%q,"properties":%s}}`, id, typ, properties),
		fmt.Appendf(nil, `{"directory":"/workspace","payload":{"id":%q,"type":"sync","syncEvent":{"id":%q,"type":"%s.1","seq":%d,"aggregateID":%q,"data":%s}}}`,
			id, id, typ, seq, session, properties),
	}
}

func userMessage(session, message string) string {
	return fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"sessionID":%q,"role":"user","time":{"created":1}}}`, session, message, session)
}

// answer ends the turn of a session with an assistant message.
func (o *outside) answer(session, parent string) {
	expect.Eventually(o.t, "the prompt is answered", func() bool { // a turn ends after it has begun
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.serving["/session/"+session+"/prompt_async"] == 0
	})
	done := fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"sessionID":%q,"role":"assistant","parentID":%q,"time":{"created":1,"completed":2},"finish":"stop"}}`,
		session, client.NewID("msg", time.Now()), session, parent)
	o.happen(o.durably(session, "message.updated", done)...)
	o.happen(plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"idle"}}`, session)),
		plain("session.idle", fmt.Sprintf(`{"sessionID":%q}`, session)))
}

// requests are those received so far of a method whose path matches the pattern, in order.
func (o *outside) requests(method, suffix string) (all []request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.received {
		if r.Method == method && len(r.Path) >= len(suffix) && r.Path[len(r.Path)-len(suffix):] == suffix {
			all = append(all, r)
		}
	}
	return all
}
