package realtime

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"pocketcoder/events/log"
	"pocketcoder/projections"
)

// How often something is said at most: what a text grew by, and a message so far.
const (
	betweenDeltas    = 10 * time.Millisecond
	betweenSnapshots = 50 * time.Millisecond
)

// talk puts together what is being said in a chat's own session, from fragments and from records, in whatever order they
// come. It knows no clock and no one to tell: say gives what there is to say.
type talk struct {
	messages map[string]*spoken // by OpenCode's id
	asked    map[string]bool    // records of messages of persons that were seen
	failed   map[string]bool    // those whose failure was told
	began    uint64             // what was asked up to here is not waited for
	wanted   map[string]bool    // records to look up: fragments came of messages that were not known
	open     uint64             // the record of what was asked or said that no end followed, 0 for none
	out      []*message
	spoke    time.Time
}

func newTalk(began uint64) talk {
	return talk{messages: map[string]*spoken{}, asked: map[string]bool{}, failed: map[string]bool{}, wanted: map[string]bool{}, began: began}
}

// spoken is one message of the assistant.
type spoken struct {
	id    string
	known bool // its record is
	over  bool // it has ended, or is a subagent's
	last  uint64
	parts map[string]*spokenPart
	dirty bool
	shown time.Time
}

func (t *talk) message(id string) *spoken {
	m := t.messages[id]
	if m == nil {
		m = &spoken{id: id, parts: map[string]*spokenPart{}}
		t.messages[id] = m
	}
	return m
}

func (m *spoken) part(id string) *spokenPart {
	p := m.parts[id]
	if p == nil {
		p = &spokenPart{}
		m.parts[id] = p
	}
	return p
}

// hear takes in a fragment.
func (t *talk) hear(d log.Delta) {
	var f struct {
		MessageID, PartID, Field, Delta string
		Part                            json.RawMessage
	}
	if json.Unmarshal(d.Data, &f) != nil {
		return // a fragment is never needed
	}
	var is partShape
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
		t.wanted[projections.RecordID(f.MessageID)] = true
	}
	m := t.message(f.MessageID)
	if m.over {
		return
	}
	p := m.part(f.PartID)
	switch {
	case f.Part != nil && !ended(p.is):
		p.data, p.is, p.fresh, m.dirty = f.Part, is, true, true
	case f.Field == "text":
		p.heard, p.unsaid, m.dirty = append(p.heard, f.Delta...), append(p.unsaid, f.Delta...), true
	}
}

// learn takes in records: first what was asked, then what was answered. An end that came after told waits for its turn, so
// that ends come in order; it says whether there was one.
func (t *talk) learn(rows []row, told uint64) (later bool) {
	for _, r := range rows {
		if r.Role != "assistant" && r.Subagent == "" && !t.asked[r.ID] && r.first <= told {
			t.asked[r.ID] = true
			if r.ours() && r.first > t.began {
				t.open = r.first
			}
		}
	}
	for _, r := range rows {
		if r.over() && r.last > told {
			later = true
		} else {
			t.learnOne(r)
		}
	}
	return later
}

func (t *talk) learnOne(r row) {
	switch {
	case r.Role != "assistant" && r.Subagent == "":
		if r.failed() && !t.failed[r.ID] {
			t.failed[r.ID] = true
			t.end(r)
		}
	case r.EngineID != "":
		m := t.message(r.EngineID)
		if m.over || r.last <= m.last {
			return
		}
		m.known, m.last = true, r.last
		processing := r.EngineStatus == "processing"
		if m.over = r.Subagent != "" || r.removed || !processing; !m.over {
			m.learn(r.Parts)
			return
		}
		m.parts = nil
		if r.Subagent == "" && !r.removed {
			t.end(r)
		}
	}
}

// learn takes in the parts of the record: what it does not have any more was removed.
func (m *spoken) learn(parts []json.RawMessage) {
	there := map[string]bool{}
	for _, data := range parts {
		var is partShape
		if json.Unmarshal(data, &is) != nil || is.ID == "" {
			continue
		}
		there[is.ID] = true
		if p := m.part(is.ID); !p.fresh || ended(is) {
			p.data, p.is, p.fresh = data, is, false
		}
	}
	maps.DeleteFunc(m.parts, func(id string, p *spokenPart) bool { return p.data != nil && !p.fresh && !there[id] })
	m.dirty = true
}

// settle takes in whose turn it was after told: one that ended without a word is told of too.
func (t *talk) settle(turn string, told uint64) {
	if turn == projections.TurnUser && t.open != 0 && t.open <= told {
		t.open = 0
		t.tell(&message{data: errorEvent("", "The turn ended without an answer.")})
	}
}

func (t *talk) end(r row) {
	t.open = 0
	t.tell(r.end())
}

func (t *talk) tell(m *message) { t.out = append(t.out, m) }

// say gives what is to be told by now, and after what time to ask again.
func (t *talk) say(now time.Time) (out []*message, next time.Duration) {
	next = time.Hour
	if wait := t.spoke.Add(betweenDeltas).Sub(now); wait > 0 {
		out, t.out = t.out, nil
		return out, wait
	}
	for _, id := range slices.Sorted(maps.Keys(t.messages)) {
		m := t.messages[id]
		if !m.known || m.over || !m.dirty {
			continue
		}
		t.open, t.spoke = m.last, now
		t.sayParts(m)
		if wait := m.shown.Add(betweenSnapshots).Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		m.dirty, m.shown = false, now
		t.tell(m.snapshot())
	}
	out, t.out = t.out, nil
	return out, next
}

func (t *talk) sayParts(m *spoken) {
	for _, id := range slices.Sorted(maps.Keys(m.parts)) {
		p := m.parts[id]
		if len(p.unsaid) > 0 {
			t.tell(&message{data: hotEvent("text_delta", map[string]any{"messageID": m.id, "partID": id, "text": string(p.unsaid)})})
			p.unsaid = nil
		}
		if status := p.is.State.Status; status != p.status {
			p.status = status
			t.tell(&message{data: hotEvent("tool_status", map[string]any{"messageID": m.id, "partID": id, "tool": p.is.Tool, "status": status})})
		}
	}
}

// rest gives what is to be told besides snapshots, however little time has passed.
func (t *talk) rest() (out []*message) {
	for _, id := range slices.Sorted(maps.Keys(t.messages)) {
		if m := t.messages[id]; m.known && !m.over {
			t.sayParts(m)
		}
	}
	out, t.out = t.out, nil
	return out
}

// story is what somebody is told who follows from now on: what ended since, up to told, and what is being said.
func (t *talk) story(since, told uint64, rows []row) (all []*message) {
	for _, r := range rows {
		if since < r.last && r.last <= told && r.over() {
			all = append(all, r.end())
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.messages)) {
		if m := t.messages[id]; m.known && !m.over {
			all = append(all, m.snapshot())
		}
	}
	return all
}

func (m *spoken) snapshot() *message {
	parts := []json.RawMessage{}
	for _, id := range slices.Sorted(maps.Keys(m.parts)) {
		if data := m.parts[id].whole(); data != nil {
			parts = append(parts, data)
		}
	}
	return &message{replaces: m.id, data: hotEvent("message_snapshot", map[string]any{"messageID": m.id, "role": "assistant", "parts": parts})}
}
