package realtime

import (
	"bytes"
	"encoding/json"

	"pocketcoder/projections"
)

// row is the record of a message.
type row struct {
	ID           string            `json:"id"`
	Chat         string            `json:"chat"`
	EngineID     string            `json:"ai_engine_message_id"`
	Role         string            `json:"role"`
	EngineStatus string            `json:"engine_message_status"`
	Subagent     string            `json:"subagent"`
	Parts        []json.RawMessage `json:"parts"`
	Error        json.RawMessage   `json:"error_payload"`
	first, last  uint64
	removed      bool
}

// ours says whether the message came by way of us: its record is older than OpenCode's id of it.
func (r row) ours() bool { return r.ID != projections.RecordID(r.EngineID) }

// over says whether a record tells of an end in the chat's own session.
func (r row) over() bool {
	if r.Subagent != "" || r.removed {
		return false
	}
	return r.Role == "assistant" && r.EngineStatus != "processing" || r.failed()
}

// failed says whether it is a person's message that will have no answer.
func (r row) failed() bool {
	return r.Role != "assistant" && len(r.Error) > 0 && string(r.Error) != "null" && !r.removed
}

// end is the event of a message that ended.
func (r row) end() *message {
	id := r.EngineID
	if id == "" { // OpenCode never had it
		id = r.ID
	}
	if r.EngineStatus == "completed" || r.EngineStatus == "aborted" {
		return &message{last: r.last, data: hotEvent("message_complete", map[string]any{"messageID": id, "parts": append([]json.RawMessage{}, r.Parts...), "status": r.EngineStatus, "role": r.Role})}
	}
	return &message{last: r.last, data: errorEvent(id, errorText(r.Error))}
}

// errorText is what went wrong, in OpenCode's words or ours.
func errorText(payload json.RawMessage) string {
	var e struct {
		Name, Message string
		Data          struct{ Message string }
	}
	_ = json.Unmarshal(payload, &e) // whatever it is, something is said
	for _, text := range []string{e.Data.Message, e.Message, e.Name} {
		if text != "" {
			return text
		}
	}
	return "The message failed."
}

func hotEvent(event string, data map[string]any) []byte {
	return compact(map[string]any{"event": event, "data": data})
}

func errorEvent(message, text string) []byte {
	return hotEvent("message_error", map[string]any{"messageID": message, "error": map[string]string{"message": text}})
}

// compact gives JSON in one line, its text as it is.
func compact(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // it is made of strings and of JSON that was read
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
