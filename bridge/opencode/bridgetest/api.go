package bridgetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"pocketcoder/bridge/opencode/client"
)

func (o *OpenCode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	got := Request{r.Method, r.URL.Path, r.URL.Query().Get("directory"), string(body)}
	o.mu.Lock()
	o.received = append(o.received, got)
	o.serving[got.Path]++
	away, refuse := o.away, o.refuse
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.serving[got.Path]--
	}()
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
	fmt.Fprintf(w, `{"name":%q,"data":{"message":"as the test wants it"}}`,
		map[bool]string{true: "NotFoundError", false: "BadRequest"}[status == 404])
}

func (o *OpenCode) serveStream(w http.ResponseWriter, r *http.Request) {
	frames := make(chan []byte, 1<<16)
	frames <- Plain("server.connected", "{}")
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

func (o *OpenCode) mux() http.Handler {
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
		return o.waiting(r, o.requests), 200
	})
	handle("GET /mcp", func(*http.Request) (any, int) { return map[string]any{}, 200 })
	handle("GET /question", func(r *http.Request) (any, int) {
		return o.waiting(r, o.Questions), 200
	})
	handle("GET /pocketcoder/history", func(*http.Request) (any, int) { return o.numbers(), 200 })
	handle("POST /pocketcoder/history", o.serveHistory)
	handle("GET /config/providers", func(*http.Request) (any, int) {
		return json.RawMessage(`{"providers":[{"id":"opencode","models":{"free":{}}},{"id":"p","models":{"new":{},"other":{}}}],"default":{"opencode":"free","p":"new"}}`), 200
	})
	handle("GET /session/{id}", func(r *http.Request) (any, int) {
		s, ok := o.Sessions[r.PathValue("id")]
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
	handle("PATCH /session/{id}", o.updateSession)
	handle("DELETE /session/{id}", o.deleteSession)
	handle("POST /session/{id}/fork", o.ForkSession)
	handle("POST /session/{id}/revert", func(*http.Request) (any, int) { return true, 200 })
	handle("POST /session/{id}/unrevert", func(*http.Request) (any, int) { return true, 200 })
	handle("GET /session/{id}/diff", func(*http.Request) (any, int) {
		return []json.RawMessage{[]byte(`{"file": "f"}`)}, 200
	})
	handle("GET /session/{id}/todo", func(*http.Request) (any, int) { return nil, 404 })
	handle("GET /session/{id}/message", func(r *http.Request) (any, int) { return o.messages(r.PathValue("id")), 200 })
	handle("GET /session/{id}/message/{message}", o.message)
	handle("DELETE /session/{id}/message/{message}", o.deleteMessage)
	handle("POST /permission/{id}/reply", func(r *http.Request) (any, int) {
		var in struct{ Reply string }
		decode(r, &in)
		a, known := o.requests[r.PathValue("id")]
		delete(o.requests, a.ID)
		return o.settled(known, "permission.replied", fmt.Sprintf(`{"sessionID":%q,"requestID":%q,"reply":%q}`, a.SessionID,
			a.ID, in.Reply))
	})
	handle("POST /question/{id}/reply", func(r *http.Request) (any, int) {
		var in struct{ Answers json.RawMessage }
		decode(r, &in)
		q, known := o.Questions[r.PathValue("id")]
		delete(o.Questions, q.ID)
		return o.settled(known, "question.replied", fmt.Sprintf(`{"sessionID":%q,"requestID":%q,"answers":%s}`, q.SessionID,
			q.ID, in.Answers))
	})
	handle("POST /question/{id}/reject", func(r *http.Request) (any, int) {
		q, known := o.Questions[r.PathValue("id")]
		delete(o.Questions, q.ID)
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

func (o *OpenCode) settled(known bool, typ, properties string) (any, int) {
	if !known {
		return nil, 404
	}
	if !o.Silent {
		o.stream(Plain(typ, properties))
	}
	return true, 200
}

func decode(r *http.Request, into any) { _ = json.NewDecoder(r.Body).Decode(into) }

// here keeps what belongs to sessions of the directory asked for.
func here[V any](o *OpenCode, r *http.Request, all map[string]V, session func(string, V) string) map[string]V {
	kept := map[string]V{}
	for id, v := range all {
		if s := o.Sessions[session(id, v)]; s.Directory == r.URL.Query().Get("directory") {
			kept[id] = v
		}
	}
	return kept
}

// waiting lists the requests of the directory asked for.
func (o *OpenCode) waiting(r *http.Request, all map[string]client.Request) []json.RawMessage {
	all = here(o, r, all, func(_ string, q client.Request) string { return q.SessionID })
	list := []json.RawMessage{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[id].Raw)
	}
	return list
}

// eventPosition is the place of a durable event.
type eventPosition struct {
	Session string `json:"aggregate_id"`
	Seq     int64
}

func positionOf(event json.RawMessage) (p eventPosition) {
	_ = json.Unmarshal(event, &p)
	return p
}

// numbers returns the last sequence number of each session.
func (o *OpenCode) numbers() map[string]int64 {
	last := map[string]int64{}
	for _, h := range o.history {
		p := positionOf(h)
		last[p.Session] = max(last[p.Session], p.Seq)
	}
	return last
}

// pageEvents is how many events a page of the history has at most.
const pageEvents = 3

// serveHistory returns a page of the history, as the plugin in OpenCode does.
func (o *OpenCode) serveHistory(r *http.Request) (any, int) {
	var pairs [][2]any
	decode(r, &pairs)
	page := []json.RawMessage{}
	for _, pair := range pairs {
		for _, h := range o.history {
			if p := positionOf(h); p.Session == pair[0] && p.Seq > int64(pair[1].(float64)) && len(page) < pageEvents {
				page = append(page, h)
			}
		}
	}
	return page, 200
}

func (o *OpenCode) createSession(r *http.Request) (any, int) {
	var in struct {
		Title    string          `json:"title"`
		Metadata json.RawMessage `json:"metadata"`
	}
	decode(r, &in)
	id := client.NewID("ses", time.Now())
	info := fmt.Sprintf(`{"id":%q,"directory":%q,"title":%q,"metadata":%s}`, id, r.URL.Query().Get("directory"), in.Title,
		in.Metadata)
	for _, f := range o.durablyLocked(id, "session.created", fmt.Sprintf(`{"sessionID":%q,"info":%s}`, id, info)) {
		o.hold(f)
		if !o.Silent {
			o.stream(f)
		}
	}
	return json.RawMessage(info), 200
}

// prompt accepts a message, once, and starts a turn that does not end by itself.
func (o *OpenCode) prompt(r *http.Request) (any, int) {
	var in struct{ MessageID string }
	decode(r, &in)
	session := r.PathValue("id")
	if _, ok := o.Sessions[session]; !ok {
		return nil, 404
	}
	if _, known := o.prompts[in.MessageID]; known {
		return nil, 204
	}
	o.prompts[in.MessageID] = o.process
	frames := o.durablyLocked(session, "message.updated", UserMessage(session, in.MessageID))
	frames = append(frames, Plain("session.status", fmt.Sprintf(`{"sessionID":%q,"status":{"type":"busy"}}`, session)))
	for _, f := range frames {
		o.hold(f)
		if !o.Silent {
			o.stream(f)
		}
	}
	return nil, 204
}
