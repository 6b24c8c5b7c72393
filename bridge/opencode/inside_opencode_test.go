package opencode

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// outside stands for OpenCode where a test needs it to say exactly this, exactly now: it holds what the frames it was
// given say (sessions, history, statuses, asks, questions), streams them to who is connected, and notes what it is told.
type outside struct {
	t   testing.TB
	url string

	mu        sync.Mutex
	away      bool // refuses everything
	streams   []chan []byte
	sessions  map[string]Session
	history   []json.RawMessage
	seqs      map[string]int64
	busy      map[string]json.RawMessage
	asks      map[string]Ask
	questions map[string]Question
	prompts   map[string]bool // message ids it has accepted
	silent    bool            // does what it is told and says nothing about it
	received  []request
	refuse    func(request) int // a status to answer with instead, 0 for none; called without the lock
}

type request struct{ Method, Path, Directory, Body string }

func newOutside(t testing.TB) *outside {
	o := &outside{t: t, sessions: map[string]Session{}, seqs: map[string]int64{}, prompts: map[string]bool{}}
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
	o.busy, o.asks, o.questions = map[string]json.RawMessage{}, map[string]Ask{}, map[string]Question{}
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
		var a Ask
		_ = json.Unmarshal(p.Properties, &a)
		o.asks[a.ID] = a
	case "question.asked":
		var q Question
		_ = json.Unmarshal(p.Properties, &q)
		o.questions[q.ID] = q
	case "permission.replied", "question.replied", "question.rejected":
		delete(o.asks, about.RequestID)
		delete(o.questions, about.RequestID)
	}
}

func (o *outside) holdDurable(id, typ, session string, seq int64, data json.RawMessage) {
	o.seqs[session] = seq + 1
	var body struct{ Info Session }
	switch unversioned(typ) {
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
	return fmt.Appendf(nil, `{"directory":"/workspace","payload":{"id":%q,"type":%q,"properties":%s}}`, NewID("evt", time.Now()), typ, properties)
}

// durably is the two frames of a durable event.
func (o *outside) durably(session, typ, properties string) [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.durablyLocked(session, typ, properties)
}

func (o *outside) durablyLocked(session, typ, properties string) [][]byte {
	id, seq := NewID("evt", time.Now()), o.seqs[session]
	o.seqs[session]++
	return [][]byte{
		fmt.Appendf(nil, `{"directory":"/workspace","payload":{"id":%q,"type":%q,"properties":%s}}`, id, typ, properties),
		fmt.Appendf(nil, `{"directory":"/workspace","payload":{"id":%q,"type":"sync","syncEvent":{"id":%q,"type":"%s.1","seq":%d,"aggregateID":%q,"data":%s}}}`,
			id, id, typ, seq, session, properties),
	}
}

func (o *outside) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	got := request{r.Method, r.URL.Path, r.URL.Query().Get("directory"), string(body)}
	o.mu.Lock()
	o.received = append(o.received, got)
	away, refuse := o.away, o.refuse
	o.mu.Unlock()
	status := 0
	if refuse != nil {
		status = refuse(got)
	}
	switch {
	case away:
		fail(w, http.StatusBadGateway)
	case status != 0:
		fail(w, status)
	case r.URL.Path == "/global/event":
		o.serveStream(w, r)
	default:
		r.Body = io.NopCloser(bytes.NewReader(body))
		o.mux().ServeHTTP(w, r)
	}
}

// fail answers like OpenCode does.
func fail(w http.ResponseWriter, status int) {
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"name":%q,"data":{"message":"as the test wants it"}}`, map[bool]string{true: "NotFoundError", false: "BadRequest"}[status == 404])
}

func (o *outside) serveStream(w http.ResponseWriter, r *http.Request) {
	frames := make(chan []byte, 1<<16)
	frames <- plain("server.connected", "{}")
	o.mu.Lock()
	o.streams = append(o.streams, frames)
	o.mu.Unlock()
	for {
		select {
		case f, open := <-frames:
			if !open {
				return
			}
			fmt.Fprintf(w, "data: %s\n\n", f)
			if len(frames) == 0 {
				w.(http.Flusher).Flush()
			}
		case <-r.Context().Done():
			return
		}
	}
}

func (o *outside) mux() http.Handler {
	m := http.NewServeMux()
	handle := func(pattern string, fn func(r *http.Request) (any, int)) {
		m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			o.mu.Lock()
			defer o.mu.Unlock()
			out, status := fn(r)
			if status/100 != 2 {
				fail(w, status)
				return
			}
			w.WriteHeader(status)
			switch out := out.(type) {
			case nil:
			case []json.RawMessage: // as they are: an encoder would take the spaces out
				writeList(w, out)
			default:
				_ = json.NewEncoder(w).Encode(out)
			}
		})
	}
	handle("GET /session/status", func(r *http.Request) (any, int) {
		return here(o, r, o.busy, func(id string, _ json.RawMessage) string { return id }), 200
	})
	handle("GET /permission", func(r *http.Request) (any, int) {
		return raws(here(o, r, o.asks, func(_ string, a Ask) string { return a.SessionID }), func(a Ask) json.RawMessage { return a.Raw }), 200
	})
	handle("GET /question", func(r *http.Request) (any, int) {
		return raws(here(o, r, o.questions, func(_ string, q Question) string { return q.SessionID }), func(q Question) json.RawMessage { return q.Raw }), 200
	})
	handle("POST /sync/history", o.serveHistory)
	handle("GET /session/{id}", func(r *http.Request) (any, int) {
		s, ok := o.sessions[r.PathValue("id")]
		switch {
		case !strings.HasPrefix(r.PathValue("id"), "ses"):
			return nil, 500 // so it answers in other places where an id begins otherwise
		case !ok:
			return nil, 404
		}
		return s.Raw, 200
	})
	handle("POST /session", o.createSession)
	handle("POST /session/{id}/prompt_async", o.prompt)
	handle("POST /session/{id}/abort", func(*http.Request) (any, int) { return true, 200 })
	handle("POST /permission/{id}/reply", func(r *http.Request) (any, int) {
		var in struct{ Reply string }
		decode(r, &in)
		a, known := o.asks[r.PathValue("id")]
		delete(o.asks, a.ID)
		return o.settled(known, "permission.replied", fmt.Sprintf(`{"sessionID":%q,"requestID":%q,"reply":%q}`, a.SessionID, a.ID, in.Reply))
	})
	handle("POST /question/{id}/reply", func(r *http.Request) (any, int) {
		var in struct{ Answers json.RawMessage }
		decode(r, &in)
		q, known := o.questions[r.PathValue("id")]
		delete(o.questions, q.ID)
		return o.settled(known, "question.replied", fmt.Sprintf(`{"sessionID":%q,"requestID":%q,"answers":%s}`, q.SessionID, q.ID, in.Answers))
	})
	handle("POST /question/{id}/reject", func(r *http.Request) (any, int) {
		q, known := o.questions[r.PathValue("id")]
		delete(o.questions, q.ID)
		return o.settled(known, "question.rejected", fmt.Sprintf(`{"sessionID":%q,"requestID":%q}`, q.SessionID, q.ID))
	})
	return m
}

func writeList(w io.Writer, list []json.RawMessage) {
	comma := "["
	for _, raw := range list {
		fmt.Fprintf(w, "%s%s", comma, raw)
		comma = ","
	}
	if len(list) == 0 {
		io.WriteString(w, comma)
	}
	io.WriteString(w, "]")
}

func (o *outside) settled(known bool, typ, properties string) (any, int) {
	if !known {
		return nil, 404
	}
	if !o.silent {
		o.stream(plain(typ, properties))
	}
	return true, 200
}

func decode(r *http.Request, into any) { _ = json.NewDecoder(r.Body).Decode(into) }

// here keeps what belongs to sessions of the directory asked for.
func here[V any](o *outside, r *http.Request, all map[string]V, session func(string, V) string) map[string]V {
	kept := map[string]V{}
	for id, v := range all {
		if s := o.sessions[session(id, v)]; s.Directory == r.URL.Query().Get("directory") {
			kept[id] = v
		}
	}
	return kept
}

func raws[V any](all map[string]V, raw func(V) json.RawMessage) []json.RawMessage {
	list := []json.RawMessage{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, raw(all[id]))
	}
	return list
}

func (o *outside) serveHistory(r *http.Request) (any, int) {
	known := map[string]int64{}
	decode(r, &known)
	missing := []json.RawMessage{}
	for _, h := range o.history {
		var at struct {
			Aggregate string `json:"aggregate_id"`
			Seq       int64
		}
		_ = json.Unmarshal(h, &at)
		if last, named := known[at.Aggregate]; !named || at.Seq > last {
			missing = append(missing, h)
		}
	}
	return missing, 200
}

func (o *outside) createSession(r *http.Request) (any, int) {
	var in struct {
		Title    string          `json:"title"`
		Metadata json.RawMessage `json:"metadata"`
	}
	decode(r, &in)
	id := NewID("ses", time.Now())
	info := fmt.Sprintf(`{"id":%q,"directory":%q,"title":%q,"metadata":%s}`, id, r.URL.Query().Get("directory"), in.Title, in.Metadata)
	for _, f := range o.durablyLocked(id, "session.created", fmt.Sprintf(`{"sessionID":%q,"info":%s}`, id, info)) {
		o.hold(f)
		if !o.silent {
			o.stream(f)
		}
	}
	return json.RawMessage(info), 200
}

// prompt accepts a message, once, and starts a turn that does not end by itself.
func (o *outside) prompt(r *http.Request) (any, int) {
	var in struct{ MessageID string }
	decode(r, &in)
	session := r.PathValue("id")
	if _, ok := o.sessions[session]; !ok {
		return nil, 404
	}
	if o.prompts[in.MessageID] {
		return nil, 204
	}
	o.prompts[in.MessageID] = true
	frames := o.durablyLocked(session, "message.updated", userMessage(session, in.MessageID))
	frames = append(frames, plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"busy"}}`, session)))
	for _, f := range frames {
		o.hold(f)
		if !o.silent {
			o.stream(f)
		}
	}
	return nil, 204
}

func userMessage(session, message string) string {
	return fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"sessionID":%q,"role":"user","time":{"created":1}}}`, session, message, session)
}

// answer ends the turn of a session with an assistant message.
func (o *outside) answer(session, parent string) {
	done := fmt.Sprintf(`{"sessionID":%q,"info":{"id":%q,"sessionID":%q,"role":"assistant","parentID":%q,"time":{"created":1,"completed":2},"finish":"stop"}}`,
		session, NewID("msg", time.Now()), session, parent)
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
