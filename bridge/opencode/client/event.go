package client

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

type Event struct {
	ID         string // evt_…, ascending in order of arrival
	Type       string // without the version that a durable event has in the history: "message.updated"
	Form       int    // that version; 0 when the event is not durable
	Session    string // empty if the event belongs to no session
	Seq        int64  // the session's gapless count of durable events, from 0; -1 when the event is not durable
	Properties json.RawMessage
}

// size estimates the size of an event in a buffer, in bytes.
func (e Event) size() int { return len(e.Properties) + 256 }

// durable reports whether OpenCode stores events of this type and announces each twice on the live stream: plain, and
// right after it as a sync twin with the same id and the sequence number.
func durable(typ string) bool {
	switch typ {
	case "session.created", "session.updated", "session.deleted",
		"message.updated", "message.removed", "message.part.updated", "message.part.removed":
		return true
	}
	return strings.HasPrefix(typ, "session.next.") && !strings.HasSuffix(typ, ".delta")
}

// ParseEvent reads one event of /global/event. ok is false for the plain half of a durable pair, which its twin
// replaces.
func ParseEvent(data []byte) (e Event, ok bool, err error) {
	var in struct {
		Payload struct {
			ID, Type   string
			Properties json.RawMessage
			SyncEvent  struct {
				Type, AggregateID string
				Seq               int64
				Data              json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return e, false, fmt.Errorf("read event %q: %w", data[:min(len(data), 200)], err)
	}
	p := in.Payload
	switch {
	case p.Type == "":
		return e, false, fmt.Errorf("read event %q: no type", data[:min(len(data), 200)])
	case p.Type == "sync":
		s := p.SyncEvent
		typ, form := splitVersion(s.Type)
		return Event{ID: p.ID, Type: typ, Form: form, Session: s.AggregateID, Seq: s.Seq, Properties: s.Data}, true, nil
	case durable(p.Type):
		return e, false, nil
	}
	return Event{ID: p.ID, Type: p.Type, Session: sessionOf(p.Properties), Seq: -1, Properties: p.Properties}, true, nil
}

// sessionOf returns the session that an event names, if any. The event is not durable.
func sessionOf(properties json.RawMessage) string {
	var p struct{ SessionID string }
	if json.Unmarshal(properties, &p) != nil {
		return "" // properties of another shape name no session
	}
	return p.SessionID
}

// splitVersion splits the type of a durable event, "session.created.1". The version is 0 if there is none.
func splitVersion(typ string) (name string, form int) {
	i := strings.LastIndexByte(typ, '.')
	form, err := strconv.Atoi(typ[i+1:])
	if i < 1 || err != nil || form < 1 {
		return typ, 0
	}
	return typ[:i], form
}
