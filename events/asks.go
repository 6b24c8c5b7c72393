package events

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
)

// PermissionAsk is what we look at in OpenCode's permission.asked, and in its list of pending asks.
type PermissionAsk struct {
	ID         string          `json:"id"` // per_…
	SessionID  string          `json:"sessionID"`
	Permission string          `json:"permission"` // bash, edit, …
	Patterns   []string        `json:"patterns"`
	Metadata   json.RawMessage `json:"metadata"` // bash: {command}; edit: {filepath, diff}; …
	Always     []string        `json:"always"`
	Tool       Call            `json:"tool"`
}

// Call is the tool call an ask or a question belongs to.
type Call struct {
	MessageID string `json:"messageID"`
	CallID    string `json:"callID"`
}

// Types of the OpenCode events that ask a person, and of those that settle it.
const (
	PermissionAsked   = "permission.asked"
	PermissionReplied = "permission.replied"
	QuestionAsked     = "question.asked"
	QuestionReplied   = "question.replied"
	QuestionRejected  = "question.rejected"
)

// Ask gives what was asked over the API in the form in which OpenCode asks.
func (d PermissionRequested) Ask() PermissionAsk {
	return PermissionAsk{
		ID: d.Permission, SessionID: d.Session, Permission: d.Type, Patterns: d.Patterns, Metadata: d.Metadata,
		Tool: Call{MessageID: d.MessageID, CallID: d.Call},
	}
}

// Command is the command a bash ask is about, "" for others.
func (a PermissionAsk) Command() string {
	var m struct {
		Command string `json:"command"`
	}
	if a.Permission != "bash" || json.Unmarshal(a.Metadata, &m) != nil {
		return ""
	}
	return m.Command
}

// Request is the SHA-256, in hex, of what is asked for: type, patterns and metadata. The same request asked again, byte
// for byte, has the same.
func (a PermissionAsk) Request() string {
	patterns, _ := json.Marshal(a.Patterns)
	var metadata bytes.Buffer
	if json.Compact(&metadata, a.Metadata) != nil {
		metadata.Write(a.Metadata)
	}
	sum := sha256.Sum256([]byte(a.Permission + "\n" + string(patterns) + "\n" + metadata.String()))
	return hex.EncodeToString(sum[:])
}

// Redacted reports whether the log holds [redacted] in place of a part of the request.
func (a PermissionAsk) Redacted() bool {
	return bytes.Contains(a.Metadata, []byte(Redacted)) || strings.Contains(strings.Join(a.Patterns, "\n"), Redacted)
}

// QuestionAsk is what we look at in OpenCode's question.asked, and in its list of pending questions.
type QuestionAsk struct {
	ID        string     `json:"id"` // que_…
	SessionID string     `json:"sessionID"`
	Questions []Question `json:"questions"`
	Tool      Call       `json:"tool"`
}

// Question is one of those asked together.
type Question struct {
	Question string   `json:"question"`
	Header   string   `json:"header"`
	Options  []Option `json:"options"`
	Multiple bool     `json:"multiple"` // several may be taken
	Custom   *bool    `json:"custom"`   // free text is an answer too; nil is true
}

// Option is an answer that a question offers.
type Option struct {
	Label       string `json:"label"`
	Description string `json:"description"`
}

// Free says whether free text is an answer too. Without options nothing else could be.
func (q Question) Free() bool { return q.Custom == nil || *q.Custom || len(q.Options) == 0 }

// Request is the SHA-256, in hex, of the questions: the same ones asked again have the same.
func (a QuestionAsk) Request() string {
	body, _ := json.Marshal(a.Questions) // texts and truths always encode
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
