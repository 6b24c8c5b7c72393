// Package events has the types of all events: their bodies, their envelope and their subjects. The stored form of each is a
// promise for ever.
//
// It is pure: it has no connection and does no I/O. events/log stores events, and events/secret redacts them before.
package events

// The catalogue: everything of our own that can happen. Rows are added, never changed or removed, because the stored
// form is a promise: a field may be added (optional), a kind may be added, nothing is renamed. OpenCode's own events
// are not listed: their type is stored verbatim and their JSON unchanged (see OpenCode in envelope.go).

import (
	"encoding/json"
	"fmt"
	"reflect"
)

// Data is the body of an event of our own.
type Data interface {
	Kind() string // past tense, stored for ever, never derived from the Go name
}

// ChatCreated opens a chat. A chat that was opened in OpenCode's own TUI is adopted.
type ChatCreated struct {
	Title   string `json:"title"`
	User    string `json:"user,omitempty"` // owner; empty for an adopted chat
	Engine  string `json:"engine"`
	Agent   string `json:"agent,omitempty"`
	Adopted bool   `json:"adopted,omitempty"`

	Description string `json:"description,omitempty"`
	Archived    bool   `json:"archived,omitempty"`
	Tags        string `json:"tags,omitempty"`
}

// ChatUpdated changes what a person says about a chat; a nil field stays as it was.
type ChatUpdated struct {
	Title       *string `json:"title,omitempty"`
	Description *string `json:"description,omitempty"`
	Archived    *bool   `json:"archived,omitempty"`
	Tags        *string `json:"tags,omitempty"`
	Agent       *string `json:"agent,omitempty"`
	User        *string `json:"user,omitempty"` // a new owner
}

// Deleted takes a chat, a config record or an account away from those who read. The log keeps what was.
type Deleted struct{}

// SessionBound ties an OpenCode root session to the chat. The last one bound is the chat's own session.
type SessionBound struct {
	Session   string `json:"session"`
	Directory string `json:"directory"`
}

// Part is a piece of a person's message: type "text" with Text, or "file" with Mime, URL and Filename.
type Part struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	Mime     string `json:"mime,omitempty"`
	URL      string `json:"url,omitempty"`
	Filename string `json:"filename,omitempty"`
}

// MessageSubmitted is a person's message, accepted by us. With Resumes it is the prompt that resumes a stopped turn
// and follows from a person's decision or answers (role system for those who read the chat).
type MessageSubmitted struct {
	Message string `json:"message"`
	Parts   []Part `json:"parts"`
	Resumes string `json:"resumes,omitempty"` // the ask that was decided, or the interrupted questions that were answered (que_…)
}

// MessageSending fixes the ids under which OpenCode gets the message, before it is sent: a resend after a crash uses
// the same, and OpenCode runs it once.
type MessageSending struct {
	Message       string   `json:"message"`
	Session       string   `json:"session"`
	EngineMessage string   `json:"engine_message"`
	EngineParts   []string `json:"engine_parts"`
}

// MessageDelivered says OpenCode has accepted the message.
type MessageDelivered struct {
	Message       string `json:"message"`
	EngineMessage string `json:"engine_message"`
}

// MessageFailed says the message could not be delivered and will not be tried again.
type MessageFailed struct {
	Message string `json:"message"`
	Domain  string `json:"domain"` // "infrastructure" or "provider"
	Error   string `json:"error"`
}

// MessageHeld says why a message waits although nothing runs in its chat: what may be spent is spent. It goes on its way when
// more is allowed, or there is a new limit or a new day.
type MessageHeld struct {
	Message    string `json:"message"`
	Permission string `json:"permission"` // the ask, of type budget, that decides about more; it may be another chat's
	Reason     string `json:"reason"`     // a sentence for the person
}

// ModelReplaced says that another model than the selected one answers the message, because OpenCode cannot use that one.
type ModelReplaced struct {
	Message  string `json:"message"`
	Selected string `json:"selected"` // "provider/model"
	Used     string `json:"used"`     // "provider/model"
	Reason   string `json:"reason"`   // a sentence for the person
}

// QuestionAnswered is a person's answer to one of the questions the model asked together: labels or free text. OpenCode
// is answered when all of them have one. A rejection rejects all of them.
type QuestionAnswered struct {
	Question string   `json:"question"` // OpenCode's que_… id
	Index    int      `json:"index"`    // which of them, from 0
	Answers  []string `json:"answers,omitempty"`
	Rejected bool     `json:"rejected,omitempty"`
}

// QuestionInterrupted says OpenCode forgot the questions because it restarted; they can still be answered.
type QuestionInterrupted struct {
	Question string `json:"question"`
}

// QuestionExpired says the question cannot be answered any more.
type QuestionExpired struct {
	Question string `json:"question"`
	Reason   string `json:"reason"`
}

// TurnLost says a turn ended without an end: OpenCode went away in the middle of it. It can be resumed.
type TurnLost struct {
	Session string `json:"session"`
}

// AbortRequested is a person's wish that the running turn stop; what OpenCode made of it are its own events. Session
// narrows it to one subagent.
type AbortRequested struct {
	Session string `json:"session,omitempty"`
}

// RevertRequested is a person's wish that a message, what came after it and its changes to files be taken back, or, without
// a message, that the last such wish be undone. What OpenCode made of it are its own events.
type RevertRequested struct {
	Message string `json:"message,omitempty"` // OpenCode's id
}

// ForkRequested is a person's wish for a new chat that begins as this one was before a message, or as it is.
type ForkRequested struct {
	Message string `json:"message,omitempty"` // OpenCode's id
	Chat    string `json:"chat"`              // the new one
}

func (ChatCreated) Kind() string           { return "created" }
func (ChatUpdated) Kind() string           { return "updated" }
func (Deleted) Kind() string               { return "deleted" }
func (PermissionRequested) Kind() string   { return "permission.requested" }
func (RevertRequested) Kind() string       { return "revert.requested" }
func (ForkRequested) Kind() string         { return "fork.requested" }
func (SessionBound) Kind() string          { return "session.bound" }
func (MessageSubmitted) Kind() string      { return "message.submitted" }
func (MessageSending) Kind() string        { return "message.sending" }
func (MessageDelivered) Kind() string      { return "message.delivered" }
func (MessageFailed) Kind() string         { return "message.failed" }
func (MessageHeld) Kind() string           { return "message.held" }
func (ModelReplaced) Kind() string         { return "model.replaced" }
func (PermissionReferred) Kind() string    { return "permission.referred" }
func (PermissionDecided) Kind() string     { return "permission.decided" }
func (PermissionInterrupted) Kind() string { return "permission.interrupted" }
func (PermissionExpired) Kind() string     { return "permission.expired" }
func (QuestionAnswered) Kind() string      { return "question.answered" }
func (QuestionInterrupted) Kind() string   { return "question.interrupted" }
func (QuestionExpired) Kind() string       { return "question.expired" }
func (TurnLost) Kind() string              { return "turn.lost" }
func (AbortRequested) Kind() string        { return "abort.requested" }

var catalogue = kinds(
	ChatCreated{}, SessionBound{},
	MessageSubmitted{}, MessageSending{}, MessageDelivered{}, MessageFailed{}, MessageHeld{}, ModelReplaced{},
	PermissionReferred{}, PermissionDecided{}, PermissionInterrupted{}, PermissionExpired{},
	QuestionAnswered{}, QuestionInterrupted{}, QuestionExpired{},
	ExecRequested{}, ExecRefused{}, ExecStarted{}, ExecSignalled{}, ExecConnected{}, ExecChanged{}, ExecFinished{},
	TurnLost{}, AbortRequested{},
	ChatUpdated{}, Deleted{}, PermissionRequested{}, RevertRequested{}, ForkRequested{},
	Saved{},
	AccountCreated{}, AccountUpdated{}, PasswordChanged{},
	SessionOpened{}, SessionRefreshed{}, SessionClosed{}, LoginFailed{},
	NotificationQueued{}, NotificationSent{}, NotificationFailed{},
)

func kinds(data ...Data) map[string]reflect.Type {
	m := make(map[string]reflect.Type, len(data))
	for _, d := range data {
		m[d.Kind()] = reflect.TypeOf(d)
	}
	return m
}

// Decode gives the body of an event of our own as the catalogue's type, by value. An OpenCode event decodes to OpenCode.
func Decode(e Event) (Data, error) {
	if e.Malformed != nil {
		return nil, e.Malformed
	}
	if typ, ok := e.Subject.OpenCodeType(); ok {
		return OpenCode{Type: typ, Properties: e.Data}, nil
	}
	t, ok := catalogue[e.Subject.Kind]
	if !ok {
		return nil, fmt.Errorf("decode #%d %s: unknown kind", e.Seq, e.RawSubject)
	}
	v := reflect.New(t)
	if err := json.Unmarshal(e.Data, v.Interface()); err != nil {
		return nil, fmt.Errorf("decode #%d %s: %w", e.Seq, e.RawSubject, err)
	}
	return v.Elem().Interface().(Data), nil
}
