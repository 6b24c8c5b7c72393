package realtime

import (
	"cmp"
	"encoding/json"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

type messageRecord struct {
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

// isSubmitted reports whether a user submitted the message here. OpenCode's id of such a message is not the source of
// its record id.
func (r messageRecord) isSubmitted() bool { return r.ID != store.RecordID(r.EngineID) }

// hasEnded reports whether the record shows the end of a message in the chat's own session.
func (r messageRecord) hasEnded() bool {
	if r.Subagent != "" || r.removed {
		return false
	}
	return r.Role == "assistant" && r.EngineStatus != "processing" || r.failed()
}

// failed reports whether the message is a user's and will have no answer.
func (r messageRecord) failed() bool {
	return r.Role != "assistant" && len(r.Error) > 0 && string(r.Error) != "null" && !r.removed
}

// endEvent returns the event of a message that ended.
func (r messageRecord) endEvent() *message {
	id := r.EngineID
	if id == "" { // OpenCode never had it
		id = r.ID
	}
	if r.EngineStatus == "completed" || r.EngineStatus == "aborted" {
		return &message{last: r.last, data: hotEvent("message_complete",
			map[string]any{"messageID": id, "parts": append([]json.RawMessage{}, r.Parts...), "status": r.EngineStatus,
				"role": r.Role})}
	}
	return &message{last: r.last, data: errorEvent(id, errorText(r.Error))}
}

// errorText returns the error message of OpenCode, or ours.
func errorText(payload json.RawMessage) string {
	var e struct {
		Name, Message string
		Data          struct{ Message string }
	}
	_ = json.Unmarshal(payload, &e) // whatever it is, something is said
	return cmp.Or(e.Data.Message, e.Message, e.Name, "The message failed.")
}

func hotEvent(event string, data map[string]any) []byte {
	return events.MustEncode(map[string]any{"event": event, "data": data})
}

func errorEvent(message, text string) []byte {
	return hotEvent("message_error", map[string]any{"messageID": message, "error": map[string]string{"message": text}})
}
