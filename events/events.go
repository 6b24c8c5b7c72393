package events

// The catalogue: everything of our own that can happen. Rows are added, never changed or removed, because the stored
// form is a promise: a field may be added (optional), a kind may be added, nothing is renamed. OpenCode's own events
// are not listed: their type is stored verbatim and their JSON unchanged (see OpenCode in envelope.go).

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
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

// MessageSubmitted is a person's message, accepted by us. With Resumes it is the continue prompt that follows from a
// person's approval of an interrupted ask (role system for those who read the chat).
type MessageSubmitted struct {
	Message string `json:"message"`
	Parts   []Part `json:"parts"`
	Resumes string `json:"resumes,omitempty"` // the interrupted ask, per_…
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

// PermissionRequested is an ask that came over the API instead of from OpenCode: an agent's intent, which the policy or a
// person decides. Nobody is answered; who asked reads the decision.
type PermissionRequested struct {
	Permission string          `json:"permission"` // its id, unique in the chat
	Type       string          `json:"type"`       // bash, edit, …
	Patterns   []string        `json:"patterns,omitempty"`
	Metadata   json.RawMessage `json:"metadata,omitempty"` // object
	Message    string          `json:"message,omitempty"`
	Session    string          `json:"session,omitempty"`
	MessageID  string          `json:"message_id,omitempty"`
	Call       string          `json:"call,omitempty"`
}

// Decision is what a permission's decision says; the values are those clients write.
type Decision string

// The two decisions.
const (
	Authorized Decision = "authorized"
	Denied     Decision = "denied"
)

// PermissionDecided is the one decision about a permission ask. It repeats what was decided on, so that an exec can be
// checked against it alone. Who decided is the event's actor.
type PermissionDecided struct {
	Permission string    `json:"permission"` // OpenCode's per_… id
	Decision   Decision  `json:"decision"`
	Reason     string    `json:"reason,omitempty"` // why: a person's words, shown to the model with a denial, or the policy's
	RuleRef              // that decided, when the policy did
	Grant      string    `json:"grant,omitempty"` // the interrupted ask whose approval this one uses up
	Session    string    `json:"session"`
	Call       string    `json:"call,omitempty"`
	Type       string    `json:"type"`              // bash, edit, …
	Command    string    `json:"command,omitempty"` // exact bytes, for bash
	Cwd        string    `json:"cwd,omitempty"`     // bash: where it may run, absolute, symlinks resolved
	Edited     string    `json:"edited,omitempty"`  // bash: exact bytes of what runs instead of Command
	Expires    time.Time `json:"expires,omitzero"`  // it allows nothing after that
	Request    string    `json:"request"`           // SHA-256 of type, patterns and metadata: the same request asked again has the same
	Client     Client    `json:"client,omitzero"`   // with which a person decided
}

// RuleRef names a rule of the policy as it was when it decided. Several that allow a compound command are joined with " + ".
type RuleRef struct {
	Rule        string `json:"rule,omitempty"`         // as a person writes it: "bash: git status*"
	RuleID      string `json:"rule_id,omitempty"`      // <collection>/<record>; empty for one that is built in or was given at the start
	RuleVersion uint64 `json:"rule_version,omitempty"` // sequence of the event that made it so
}

// PermissionReferred says the policy has looked at an ask and left it to a person: from now on somebody is needed.
type PermissionReferred struct {
	Permission string `json:"permission"`
	Reason     string `json:"reason"` // a sentence for the person
	RuleRef           // that says to ask, when one does
}

// PermissionInterrupted says OpenCode forgot the ask because it restarted; it can still be decided.
type PermissionInterrupted struct {
	Permission string `json:"permission"`
}

// PermissionExpired says the ask cannot be answered any more: OpenCode does not know it and its turn is over.
type PermissionExpired struct {
	Permission string `json:"permission"`
	Reason     string `json:"reason"`
}

// QuestionAnswered is a person's answer to one of the questions the model asked together: labels or free text. OpenCode
// is answered when all of them have one. A rejection rejects all of them.
type QuestionAnswered struct {
	Question string   `json:"question"` // OpenCode's que_… id
	Index    int      `json:"index"`    // which of them, from 0
	Answers  []string `json:"answers,omitempty"`
	Rejected bool     `json:"rejected,omitempty"`
}

// QuestionExpired says the question cannot be answered any more.
type QuestionExpired struct {
	Question string `json:"question"`
	Reason   string `json:"reason"`
}

// ExecRequested says a command passed the gate and is handed to the sandbox.
type ExecRequested struct {
	Exec       string `json:"exec"`
	Permission string `json:"permission"`
	Session    string `json:"session"`
	Call       string `json:"call"`
	Command    string `json:"command"`            // as it runs
	Original   string `json:"original,omitempty"` // as the model gave it, when a person has edited it
	Cwd        string `json:"cwd"`
	Pool       string `json:"pool"`
}

// ExecRefused says a command was asked for that nothing had authorized. It was not run.
type ExecRefused struct {
	Exec    string `json:"exec"`
	Session string `json:"session"`
	Call    string `json:"call"`
	Command string `json:"command"`
	Cwd     string `json:"cwd"`
	Reason  string `json:"reason"`
}

// ExecFinished is the result of a command, recorded even when nobody waits for it any more.
type ExecFinished struct {
	Exec       string `json:"exec"`
	ExitCode   int    `json:"exit_code"`
	Signal     string `json:"signal,omitempty"`
	Reason     string `json:"reason,omitempty"` // cancelled, timeout, lost, refused; empty when it ended by itself
	Error      string `json:"error,omitempty"`
	DurationMS int64  `json:"duration_ms"`
	Stdout     Output `json:"stdout"`
	Stderr     Output `json:"stderr"`
}

// Output is what a command wrote to one stream: inline when the execution's output is at most MaxInline bytes, as text
// or, when it is not UTF-8, as base64; else whole in the BLOBS bucket.
type Output struct {
	Bytes  int64  `json:"bytes"`
	Text   string `json:"text,omitempty"`
	Base64 []byte `json:"base64,omitempty"`
	Blob   *Blob  `json:"blob,omitempty"`
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
func (PermissionReferred) Kind() string    { return "permission.referred" }
func (PermissionDecided) Kind() string     { return "permission.decided" }
func (PermissionInterrupted) Kind() string { return "permission.interrupted" }
func (PermissionExpired) Kind() string     { return "permission.expired" }
func (QuestionAnswered) Kind() string      { return "question.answered" }
func (QuestionExpired) Kind() string       { return "question.expired" }
func (ExecRequested) Kind() string         { return "exec.requested" }
func (ExecRefused) Kind() string           { return "exec.refused" }
func (ExecFinished) Kind() string          { return "exec.finished" }
func (TurnLost) Kind() string              { return "turn.lost" }
func (AbortRequested) Kind() string        { return "abort.requested" }

var catalogue = kinds(
	ChatCreated{}, SessionBound{},
	MessageSubmitted{}, MessageSending{}, MessageDelivered{}, MessageFailed{},
	PermissionReferred{}, PermissionDecided{}, PermissionInterrupted{}, PermissionExpired{},
	QuestionAnswered{}, QuestionExpired{},
	ExecRequested{}, ExecRefused{}, ExecFinished{},
	TurnLost{}, AbortRequested{},
	ChatUpdated{}, Deleted{}, PermissionRequested{}, RevertRequested{}, ForkRequested{},
	Saved{},
	AccountCreated{}, AccountUpdated{}, PasswordChanged{},
	SessionOpened{}, SessionRefreshed{}, SessionClosed{}, LoginFailed{},
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
