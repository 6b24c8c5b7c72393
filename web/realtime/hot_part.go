package realtime

import "encoding/json"

// spokenPart is a part as far as it is known.
type spokenPart struct {
	data   json.RawMessage // nil while there are but fragments
	is     partShape       // data, read
	fresh  bool            // data is newer than the record's
	heard  []byte          // all fragments
	unsaid []byte          // those that were not told
	status string          // of a tool, as it was told
}

// partShape is what is looked at in a part of OpenCode's.
type partShape struct {
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

// ended says whether a part will not change any more.
func ended(is partShape) bool {
	return is.Time.End != 0 || is.State.Status == "completed" || is.State.Status == "error"
}

// whole is the part with the text heard so far.
func (p *spokenPart) whole() json.RawMessage {
	if p.data == nil || ended(p.is) || len(p.heard) <= len(p.is.Text) {
		return p.data
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(p.data, &fields) != nil {
		return p.data
	}
	fields["text"] = compact(string(p.heard))
	return compact(fields)
}
