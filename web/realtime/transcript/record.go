package transcript

import (
	"cmp"
	"encoding/json"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// Record is a record of messages, with the sequences of its first and last change.
type Record struct {
	ID           string            `json:"id"`
	Chat         string            `json:"chat"`
	EngineID     string            `json:"ai_engine_message_id"`
	Role         string            `json:"role"`
	EngineStatus string            `json:"engine_message_status"`
	Subagent     string            `json:"subagent"`
	Parts        []json.RawMessage `json:"parts"`
	Error        json.RawMessage   `json:"error_payload"`
	First, Last  uint64            `json:"-"`
	Removed      bool              `json:"-"`
}

// isSubmitted reports whether a user submitted the message here. OpenCode's id of such a message is not the source of
// its record id.
func (r Record) isSubmitted() bool { return r.ID != store.RecordID(r.EngineID) }

// hasEnded reports whether the record shows the end of a message in the chat's own session.
func (r Record) hasEnded() bool {
	if r.Subagent != "" || r.Removed {
		return false
	}
	return r.Role == "assistant" && r.EngineStatus != "processing" || r.failed()
}

// failed reports whether the message is a user's and will have no answer.
func (r Record) failed() bool {
	return r.Role != "assistant" && len(r.Error) > 0 && string(r.Error) != "null" && !r.Removed
}

func (r Record) endEvent() Event {
	id := r.EngineID
	if id == "" { // OpenCode never had it
		id = r.ID
	}
	if r.EngineStatus == "completed" || r.EngineStatus == "aborted" {
		return Event{Last: r.Last, Data: encode("message_complete",
			map[string]any{"messageID": id, "parts": append([]json.RawMessage{}, r.Parts...), "status": r.EngineStatus,
				"role": r.Role})}
	}
	_, message := projections.ErrorOf(string(r.Error))
	return Event{Last: r.Last, Data: encodeError(id, cmp.Or(message, "The message failed."))}
}

func encode(event string, data map[string]any) []byte {
	return events.MustEncode(map[string]any{"event": event, "data": data})
}

func encodeError(message, text string) []byte {
	return encode("message_error", map[string]any{"messageID": message, "error": map[string]string{"message": text}})
}
