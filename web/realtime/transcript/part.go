package transcript

import (
	"encoding/json"

	"pocketcoder/events"
)

// livePart is a part as far as it is known.
type livePart struct {
	data     json.RawMessage // nil before the first whole part
	info     partInfo        // data, decoded
	fresh    bool            // data is newer than the record's
	received []byte          // the text of all deltas
	unsent   []byte          // the end of received that was not sent
	status   string          // of a tool, as it was sent
}

// partInfo has the fields of an OpenCode part that are used here. It is narrower than the type in events/opencode,
// because parts arrive with each chunk of output.
type partInfo struct {
	ID        string `json:"id"`
	MessageID string `json:"messageID"`
	Type      string `json:"type"`
	Text      string `json:"text"`
	Time      struct {
		End float64 `json:"end"`
	} `json:"time"`
	Tool  string `json:"tool"`
	State struct {
		Status string `json:"status"`
	} `json:"state"`
}

// hasEnded reports whether a part will not change any more.
func hasEnded(is partInfo) bool {
	return is.Time.End != 0 || is.State.Status == "completed" || is.State.Status == "error"
}

// current returns the part with all text received so far.
func (p *livePart) current() json.RawMessage {
	if p.data == nil || hasEnded(p.info) || len(p.received) <= len(p.info.Text) {
		return p.data
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(p.data, &fields) != nil {
		return p.data
	}
	fields["text"] = events.MustEncode(string(p.received))
	return events.MustEncode(fields)
}
