package events

import (
	"fmt"
	"strings"
)

// Every subject of the log is spelled in this file only. An id for these functions comes from ParseID or NewID. New
// parses the subject again, so an invalid one is never stored.

// AllEvents is every fact: the subject of the EVENTS stream.
const AllEvents = "evt.>"

// AllDeltas is every fragment: the subject of the DELTAS stream.
const AllDeltas = "delta.>"

// ChatSubject is evt.chat.<chat>.<kind>, a fact of our own about a chat.
func ChatSubject(chat, kind string) string { return "evt.chat." + chat + "." + kind }

// ChatOpenCodeSubject is evt.chat.<chat>.opencode.<type>, an OpenCode event of a session of the chat, type verbatim.
func ChatOpenCodeSubject(chat, typ string) string { return ChatSubject(chat, openCode+typ) }

// EngineOpenCodeSubject is evt.engine.<engine>.opencode.<type>, an OpenCode event that belongs to no session.
func EngineOpenCodeSubject(engine, typ string) string {
	return "evt.engine." + engine + "." + openCode + typ
}

// ChatFilter is evt.chat.<chat>.>, a chat's whole history, child sessions included.
func ChatFilter(chat string) string { return "evt.chat." + chat + ".>" }

// PartDeltaSubject is delta.chat.<chat>.part: pieces of the parts of OpenCode's messages. The ids of the message and
// the part are in the body: NATS keeps each subject in memory as long as it has a fragment.
func PartDeltaSubject(chat string) string {
	return "delta.chat." + chat + ".part"
}

// ExecDeltaSubject is delta.exec.<chat>.<exec>: output chunks of one execution.
func ExecDeltaSubject(chat, exec string) string { return "delta.exec." + chat + "." + exec }

// ChatDeltaFilters is every fragment of a chat: delta.chat.<chat>.> and delta.exec.<chat>.>.
func ChatDeltaFilters(chat string) []string {
	return []string{"delta.chat." + chat + ".>", "delta.exec." + chat + ".>"}
}

// ConfigSubject is evt.config.<collection>.<id>.<kind>, a fact about a configuration record, such as an agent, a rule
// or a key.
func ConfigSubject(collection, id, kind string) string {
	return "evt.config." + collection + "." + id + "." + kind
}

// UserSubject is evt.user.<user>.<kind>, a fact about an account.
func UserSubject(user, kind string) string { return "evt.user." + user + "." + kind }

// AuditSubject is evt.audit.<kind>, a fact about no account, chat or record, such as a login with an unknown name.
func AuditSubject(kind string) string { return "evt.audit." + kind }

const openCode = "opencode."

// Scope is the kind of thing that an event is about.
type Scope string

// The scopes in use. A new one is a new word after evt.
const (
	ScopeChat   Scope = "chat"
	ScopeEngine Scope = "engine"
	ScopeConfig Scope = "config"
	ScopeUser   Scope = "user"
	ScopeAudit  Scope = "audit"
)

// Subject is a parsed subject evt.<scope>.<id>.<kind>. The subject of a configuration record has the collection before
// the id. A subject of the audit scope has no id.
type Subject struct {
	Scope      Scope
	Collection string // of a config record
	ID         string // of the chat, the engine, the record or the user
	Kind       string // "message.submitted", "opencode.session.idle": also the event's ce-type
}

// OpenCodeType returns the OpenCode event type, and whether the subject is that of an OpenCode event.
func (s Subject) OpenCodeType() (string, bool) { return strings.CutPrefix(s.Kind, openCode) }

func ParseSubject(subject string) (Subject, error) {
	tokens := strings.Split(subject, ".")
	if len(tokens) < 3 || tokens[0] != "evt" {
		return Subject{}, fmt.Errorf("parse subject %q: want evt.<scope>.<id>.<kind>", subject)
	}
	s, rest := Subject{Scope: Scope(tokens[1])}, tokens[2:]
	switch s.Scope {
	case ScopeChat, ScopeEngine, ScopeUser:
		s.ID, rest = rest[0], rest[1:]
	case ScopeConfig:
		if len(rest) < 2 {
			return Subject{}, fmt.Errorf("parse subject %q: want evt.config.<collection>.<id>.<kind>", subject)
		}
		s.Collection, s.ID, rest = rest[0], rest[1], rest[2:]
	case ScopeAudit:
	default:
		return Subject{}, fmt.Errorf("parse subject %q: unknown scope %q", subject, s.Scope)
	}
	if len(rest) == 0 {
		return Subject{}, fmt.Errorf("parse subject %q: it has no kind", subject)
	}
	for _, t := range tokens[2:] {
		if _, err := ParseID(t); err != nil {
			return Subject{}, fmt.Errorf("parse subject %q: %w", subject, err)
		}
	}
	s.Kind = strings.Join(rest, ".")
	return s, nil
}
