package demo

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"maps"
	"net/http"
	"time"
	"unicode/utf8"
)

// reply writes one chat completion: as server-sent events while it is generated, or as one JSON object at the end.
// The format is that of https://platform.openai.com/docs/api-reference/chat, with reasoning_content as most
// compatible servers have it.
type reply struct {
	w       http.ResponseWriter
	stream  bool
	started bool // the stream's first event is out

	id      string
	model   string
	created int64
	in      int // estimated tokens
	out     int // bytes sent

	content, reasoning string // only without stream
	calls              []toolCall
}

type toolCall struct {
	Index    int      `json:"index"`
	ID       string   `json:"id,omitempty"`
	Type     string   `json:"type,omitempty"`
	Function function `json:"function"`
}

type function struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

type delta struct {
	Role      string     `json:"role,omitempty"`
	Content   string     `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Calls     []toolCall `json:"tool_calls,omitempty"`
}

// tokenBytes is the usual estimate of how much text one token is.
const tokenBytes = 4

func newReply(w http.ResponseWriter, req request) *reply {
	return &reply{
		w: w, stream: req.Stream, id: "chatcmpl-" + rand.Text(), model: req.Model, created: time.Now().Unix(),
		in: req.size / tokenBytes,
	}
}

func (r *reply) setHeader(h http.Header) { maps.Copy(r.w.Header(), h) }

func (r *reply) text(s string, reasoning bool) error {
	r.out += len(s)
	switch {
	case r.stream && reasoning:
		return r.send(delta{Reasoning: s})
	case r.stream:
		return r.send(delta{Content: s})
	case reasoning:
		r.reasoning += s
	default:
		r.content += s
	}
	return nil
}

// call sends a tool call with its arguments in pieces of chunk characters, or whole if chunk is 0.
func (r *reply) call(a action, chunk int) error {
	args := a.args
	r.out += len(args)
	c := toolCall{Index: len(r.calls), ID: cmp.Or(a.id, "call_"+rand.Text()), Type: "function",
		Function: function{a.tool, args}}
	r.calls = append(r.calls, c)
	if !r.stream {
		return nil
	}
	if chunk == 0 {
		return r.send(delta{Calls: []toolCall{c}})
	}
	c.Function.Arguments = ""
	if err := r.send(delta{Calls: []toolCall{c}}); err != nil {
		return err
	}
	for args != "" {
		n := prefix(args, chunk)
		if err := r.send(delta{Calls: []toolCall{{Index: c.Index, Function: function{Arguments: args[:n]}}}}); err != nil {
			return err
		}
		args = args[n:]
	}
	return nil
}

// prefix returns the length in bytes of the first n characters of s.
func prefix(s string, n int) int {
	size := 0
	for ; n > 0 && size < len(s); n-- {
		_, width := utf8.DecodeRuneInString(s[size:])
		size += width
	}
	return size
}

// finish ends the answer for a reason, or for the usual one if it is empty. It reports in and out tokens, or an
// estimate if both are 0.
func (r *reply) finish(reason string, in, out int) error {
	if in == 0 && out == 0 {
		in, out = r.in, (r.out+tokenBytes-1)/tokenBytes
	}
	usage := map[string]int{"prompt_tokens": in, "completion_tokens": out, "total_tokens": in + out}
	usual := "stop"
	if len(r.calls) > 0 {
		usual = "tool_calls"
	}
	reason = cmp.Or(reason, usual)
	if !r.stream {
		return r.whole(reason, usage)
	}
	if err := r.event([]any{map[string]any{"index": 0, "delta": delta{}, "finish_reason": reason}}, nil); err != nil {
		return err
	}
	if err := r.event([]any{}, usage); err != nil {
		return err
	}
	return r.write([]byte("[DONE]"))
}

func (r *reply) whole(reason string, usage map[string]int) error {
	message := delta{Role: "assistant", Content: r.content, Reasoning: r.reasoning, Calls: r.calls}
	return writeJSON(r.w, http.StatusOK, map[string]any{
		"id": r.id, "object": "chat.completion", "created": r.created, "model": r.model, "usage": usage,
		"choices": []any{map[string]any{"index": 0, "message": message, "finish_reason": reason}},
	})
}

func (r *reply) fail(status int, message string) error { return writeError(r.w, status, message) }

func (r *reply) send(d delta) error {
	if !r.started {
		d.Role = "assistant"
	}
	return r.event([]any{map[string]any{"index": 0, "delta": d, "finish_reason": nil}}, nil)
}

func (r *reply) event(choices []any, usage map[string]int) error {
	chunk := map[string]any{
		"id": r.id, "object": "chat.completion.chunk", "created": r.created, "model": r.model, "choices": choices,
	}
	if usage != nil {
		chunk["usage"] = usage
	}
	data, err := json.Marshal(chunk)
	if err != nil {
		return err
	}
	return r.write(data)
}

func (r *reply) write(data []byte) error {
	if !r.started {
		r.started = true
		r.w.Header().Set("Content-Type", "text/event-stream")
		r.w.Header().Set("Cache-Control", "no-cache")
	}
	if _, err := r.w.Write([]byte("data: " + string(data) + "\n\n")); err != nil {
		return err
	}
	return http.NewResponseController(r.w).Flush()
}

func writeError(w http.ResponseWriter, status int, message string) error {
	return writeJSON(w, status, map[string]any{
		"error": map[string]any{"message": message, "type": "demo_error", "code": status},
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	return json.NewEncoder(w).Encode(v)
}
