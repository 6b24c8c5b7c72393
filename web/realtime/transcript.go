package realtime

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// The shortest times between two events of a kind.
const (
	deltaInterval    = 10 * time.Millisecond
	snapshotInterval = 50 * time.Millisecond
)

type liveEvent struct {
	Data     []byte // JSON: {"event":…,"data":…}
	Last     uint64 // sequence of the last change of the record that it is about; 0 for none
	Replaces string // an earlier event with the same that was not sent yet is needless; empty for none
}

// transcript holds the messages of a chat's own session. Due returns the events to send.
type transcript struct {
	messages  map[string]*liveMessage // by OpenCode's id
	submitted map[string]bool         // records of users' messages that were added
	failed    map[string]bool         // those of them whose failure was queued
	since     uint64                  // messages submitted up to this sequence need no answer here
	Unknown   map[string]bool         // records to read: deltas came of messages without a known record
	open      uint64                  // sequence of the last message without an end, 0 for none
	out       []liveEvent             // events to send
	sentAt    time.Time               // when deltas were last queued
}

// newTranscript returns the transcript of a chat from an event on.
func newTranscript(since uint64) transcript {
	return transcript{messages: map[string]*liveMessage{}, submitted: map[string]bool{}, failed: map[string]bool{},
		Unknown: map[string]bool{}, since: since}
}

type liveMessage struct {
	id         string
	known      bool   // its record was read
	ended      bool   // or it is a subagent's
	last       uint64 // sequence of the last change of its record
	parts      map[string]*livePart
	dirty      bool // it changed after the last snapshot
	snapshotAt time.Time
}

func (t *transcript) message(id string) *liveMessage {
	m := t.messages[id]
	if m == nil {
		m = &liveMessage{id: id, parts: map[string]*livePart{}}
		t.messages[id] = m
	}
	return m
}

func (m *liveMessage) part(id string) *livePart {
	p := m.parts[id]
	if p == nil {
		p = &livePart{}
		m.parts[id] = p
	}
	return p
}

// AddDelta adds a fragment of a part, or a part as it is now.
func (t *transcript) AddDelta(d log.Delta) {
	var f struct {
		MessageID, PartID, Field, Delta string
		Part                            json.RawMessage
	}
	if json.Unmarshal(d.Data, &f) != nil {
		return // a fragment is never needed
	}
	var is partInfo
	if f.Part != nil {
		if json.Unmarshal(f.Part, &is) != nil {
			return
		}
		f.MessageID, f.PartID = is.MessageID, is.ID
	}
	if f.MessageID == "" || f.PartID == "" {
		return
	}
	if t.messages[f.MessageID] == nil {
		t.Unknown[store.RecordID(f.MessageID)] = true
	}
	m := t.message(f.MessageID)
	if m.ended {
		return
	}
	p := m.part(f.PartID)
	switch {
	case f.Part != nil && !hasEnded(p.info):
		p.data, p.info, p.fresh, m.dirty = f.Part, is, true, true
	case f.Field == "text":
		p.received, p.unsent, m.dirty = append(p.received, f.Delta...), append(p.unsent, f.Delta...), true
	}
}

// AddRecords adds records: first users' messages, then answers. It skips a message that ended after upTo, so that
// ends stay in order, and reports whether it skipped one.
func (t *transcript) AddRecords(rows []liveRecord, upTo uint64) (later bool) {
	for _, r := range rows {
		if r.Role != "assistant" && r.Subagent == "" && !t.submitted[r.ID] && r.First <= upTo {
			t.submitted[r.ID] = true
			if r.isSubmitted() && r.First > t.since {
				t.open = r.First
			}
		}
	}
	for _, r := range rows {
		if r.hasEnded() && r.Last > upTo {
			later = true
		} else {
			t.addRecord(r)
		}
	}
	return later
}

func (t *transcript) addRecord(r liveRecord) {
	switch {
	case r.Role != "assistant" && r.Subagent == "":
		if r.failed() && !t.failed[r.ID] {
			t.failed[r.ID] = true
			t.queueEnd(r)
		}
	case r.EngineID != "":
		m := t.message(r.EngineID)
		if m.ended || r.Last <= m.last {
			return
		}
		m.known, m.last = true, r.Last
		processing := r.EngineStatus == "processing"
		if m.ended = r.Subagent != "" || r.Removed || !processing; !m.ended {
			m.addParts(r.Parts)
			return
		}
		m.parts = nil
		if r.Subagent == "" && !r.Removed {
			t.queueEnd(r)
		}
	}
}

// addParts adds the parts of the record. A part that the record no longer has was removed.
func (m *liveMessage) addParts(parts []json.RawMessage) {
	there := map[string]bool{}
	for _, data := range parts {
		var is partInfo
		if json.Unmarshal(data, &is) != nil || is.ID == "" {
			continue
		}
		there[is.ID] = true
		if p := m.part(is.ID); !p.fresh || hasEnded(is) {
			p.data, p.info, p.fresh = data, is, false
		}
	}
	maps.DeleteFunc(m.parts, func(id string, p *livePart) bool { return p.data != nil && !p.fresh && !there[id] })
	m.dirty = true
}

// EndTurn queues an error if the turn has ended, as of upTo, without an answer.
func (t *transcript) EndTurn(turn string, upTo uint64) {
	if turn == projections.TurnUser && t.open != 0 && t.open <= upTo {
		t.open = 0
		t.queue(liveEvent{Data: encodeError("", "The turn ended without an answer.")})
	}
}

func (t *transcript) queueEnd(r liveRecord) {
	t.open = 0
	t.queue(r.endEvent())
}

func (t *transcript) queue(m liveEvent) { t.out = append(t.out, m) }

// Due returns the events to send now, and the time after which to call it again.
func (t *transcript) Due(now time.Time) (out []liveEvent, next time.Duration) {
	next = time.Hour
	if wait := t.sentAt.Add(deltaInterval).Sub(now); wait > 0 {
		out, t.out = t.out, nil
		return out, wait
	}
	for _, id := range slices.Sorted(maps.Keys(t.messages)) {
		m := t.messages[id]
		if !m.known || m.ended || !m.dirty {
			continue
		}
		t.open, t.sentAt = m.last, now
		t.queueParts(m)
		if wait := m.snapshotAt.Add(snapshotInterval).Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		m.dirty, m.snapshotAt = false, now
		t.queue(m.snapshot())
	}
	out, t.out = t.out, nil
	return out, next
}

func (t *transcript) queueParts(m *liveMessage) {
	for _, id := range slices.Sorted(maps.Keys(m.parts)) {
		p := m.parts[id]
		if len(p.unsent) > 0 {
			t.queue(liveEvent{Data: encode("text_delta", map[string]any{"messageID": m.id, "partID": id,
				"text": string(p.unsent)})})
			p.unsent = nil
		}
		if status := p.info.State.Status; status != p.status {
			p.status = status
			t.queue(liveEvent{Data: encode("tool_status", map[string]any{"messageID": m.id, "partID": id, "tool": p.info.Tool,
				"status": status})})
		}
	}
}

// Flush returns all events except snapshots, without regard to the intervals.
func (t *transcript) Flush() (out []liveEvent) {
	for _, id := range slices.Sorted(maps.Keys(t.messages)) {
		if m := t.messages[id]; m.known && !m.ended {
			t.queueParts(m)
		}
	}
	out, t.out = t.out, nil
	return out
}

// CatchUp returns the events for a new subscriber: the messages that ended after since, up to upTo, and snapshots of
// unfinished messages.
func (t *transcript) CatchUp(since, upTo uint64, rows []liveRecord) (all []liveEvent) {
	for _, r := range rows {
		if since < r.Last && r.Last <= upTo && r.hasEnded() {
			all = append(all, r.endEvent())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.messages)) {
		if m := t.messages[id]; m.known && !m.ended {
			all = append(all, m.snapshot())
		}
	}
	return all
}

func (m *liveMessage) snapshot() liveEvent {
	parts := []json.RawMessage{}
	for _, id := range slices.Sorted(maps.Keys(m.parts)) {
		if data := m.parts[id].current(); data != nil {
			parts = append(parts, data)
		}
	}
	return liveEvent{Replaces: m.id, Data: encode("message_snapshot",
		map[string]any{"messageID": m.id, "role": "assistant", "parts": parts})}
}

// liveRecord is a record of messages, with the sequences of its first and last change.
type liveRecord struct {
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
func (r liveRecord) isSubmitted() bool { return r.ID != store.RecordID(r.EngineID) }

// hasEnded reports whether the record shows the end of a message in the chat's own session.
func (r liveRecord) hasEnded() bool {
	if r.Subagent != "" || r.Removed {
		return false
	}
	return r.Role == "assistant" && r.EngineStatus != "processing" || r.failed()
}

// failed reports whether the message is a user's and will have no answer.
func (r liveRecord) failed() bool {
	return r.Role != "assistant" && len(r.Error) > 0 && string(r.Error) != "null" && !r.Removed
}

func (r liveRecord) endEvent() liveEvent {
	id := r.EngineID
	if id == "" { // OpenCode never had it
		id = r.ID
	}
	if r.EngineStatus == "completed" || r.EngineStatus == "aborted" {
		return liveEvent{Last: r.Last, Data: encode("message_complete",
			map[string]any{"messageID": id, "parts": append([]json.RawMessage{}, r.Parts...), "status": r.EngineStatus,
				"role": r.Role})}
	}
	_, message := projections.ErrorOf(string(r.Error))
	return liveEvent{Last: r.Last, Data: encodeError(id, cmp.Or(message, "The message failed."))}
}

func encode(event string, data map[string]any) []byte {
	return events.MustEncode(map[string]any{"event": event, "data": data})
}

func encodeError(message, text string) []byte {
	return encode("message_error", map[string]any{"messageID": message, "error": map[string]string{"message": text}})
}

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
