// Package opencode decodes the payloads of OpenCode's events, with the fields that PocketCoder reads (OpenCode 1.18,
// `GET /doc`). Each payload has one type here. Permission requests and questions have theirs in the package events,
// because requests over our API have the same form.
//
// Promises: a type that OpenCode adds decodes as OtherPayload, and an unknown field is ignored. Decode refuses a
// payload without the ids by which rows are found.
//
// The package must not know what a payload means for a chat.
package opencode

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
)

// Decode returns the payload of an event as one of the types of this package, events.PermissionRequest or
// events.QuestionAsk.
func Decode(o events.OpenCode) (any, error) {
	switch o.Type {
	case "session.created", "session.updated":
		return decode(o, func(p SessionUpdated) []string { return []string{p.SessionID} })
	case "session.status":
		return decode(o, func(p SessionStatus) []string { return []string{p.SessionID, p.Status.Type} })
	case "session.error":
		return decode(o, func(SessionError) []string { return nil })
	case "session.deleted":
		return decode(o, func(p SessionDeleted) []string { return []string{p.SessionID} })
	case "message.updated":
		return decode(o, func(p MessageUpdated) []string { return []string{p.SessionID, p.Info.ID, p.Info.Role} })
	case "message.part.updated":
		return decode(o, func(p PartUpdated) []string {
			return []string{p.SessionID, p.Part.ID, p.Part.MessageID, p.Part.Type}
		})
	case "message.removed":
		return decode(o, func(p MessageRemoved) []string { return []string{p.SessionID, p.MessageID} })
	case "message.part.removed":
		return decode(o, func(p PartRemoved) []string { return []string{p.SessionID, p.MessageID, p.PartID} })
	case events.PermissionAsked:
		return decode(o, func(p events.PermissionRequest) []string { return []string{p.SessionID, p.ID, p.Permission} })
	case events.PermissionReplied:
		return decode(o, func(p PermissionReplied) []string { return []string{p.SessionID, p.RequestID, p.Reply} })
	case events.QuestionAsked:
		return decode(o, func(p events.QuestionRequest) []string { return []string{p.SessionID, p.ID} })
	case events.QuestionReplied, events.QuestionRejected:
		return decode(o, func(p QuestionReplied) []string { return []string{p.SessionID, p.RequestID} })
	}
	return decode(o, func(OtherPayload) []string { return nil })
}

// decode reads the properties as a T. It returns an error if one of the required fields is empty.
func decode[T any](o events.OpenCode, required func(T) []string) (any, error) {
	p, err := Read[T](o)
	if err != nil {
		return nil, err
	}
	if slices.Contains(required(p), "") {
		return nil, fmt.Errorf("a %s without a required field", o.Type)
	}
	return p, nil
}

// Read returns the payload of an event whose type the caller knows. It does not check for ids. With an error, it
// returns the fields that it could read.
func Read[T any](o events.OpenCode) (p T, err error) {
	err = json.Unmarshal(o.Properties, &p)
	return p, err
}

// SessionUpdated is the payload of session.created and session.updated.
type SessionUpdated struct {
	SessionID string  `json:"sessionID"`
	Info      Session `json:"info"`
}

// Session is a session of OpenCode. ParentID is set if the model started it as a subagent.
type Session struct {
	ID        string `json:"id"`
	ParentID  string `json:"parentID"`
	Directory string `json:"directory"`
	Title     string `json:"title"`
	Agent     string `json:"agent"`
	Time      struct {
		Created int64 `json:"created"` // Unix ms
	} `json:"time"`
}

// defaultTitle matches the titles that OpenCode gives to sessions without one, and to their forks.
var defaultTitle = regexp.MustCompile(`^(New|Child) session - \d{4}-\d\d-\d\dT[\d:.]+Z( \(fork #\d+\))*$`)

// IsDefaultTitle reports whether a title of a session says only when the session was created.
func IsDefaultTitle(title string) bool { return defaultTitle.MatchString(title) }

// SessionStatus is the payload of session.status.
type SessionStatus struct {
	SessionID string `json:"sessionID"`
	Status    struct {
		Type string `json:"type"` // idle, busy, retry
		Retry
	} `json:"status"`
}

// Retry says why OpenCode waits for the model provider, and until when.
type Retry struct {
	Attempt int     `json:"attempt"` // that failed, from 1
	Message string  `json:"message"`
	Next    float64 `json:"next"` // Unix ms
}

// FailingAttempts is the number of failed attempts after which the content of the message may be the cause.
const FailingAttempts = 3

// MayBeFile reports whether the provider has failed so often that a file of the message may be the cause.
func (r Retry) MayBeFile() bool { return r.Attempt >= FailingAttempts }

// NextTry returns the time of the next try, the zero time if it is unknown.
func (r Retry) NextTry() time.Time {
	if r.Next <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(int64(r.Next))
}

// SessionError is the payload of session.error. It may lack a session.
type SessionError struct {
	SessionID string `json:"sessionID"`
	Error     Error  `json:"error"`
}

// Error is the error of a session or message as OpenCode sent it: null or {name, data}.
type Error struct{ json.RawMessage }

func (e Error) Exists() bool { return len(e.RawMessage) > 0 && string(e.RawMessage) != "null" }

// Aborted reports whether the error says that a user aborted the turn.
func (e Error) Aborted() bool { return e.Name() == "MessageAbortedError" }

// Name returns the name of the error, "" if there is none.
func (e Error) Name() string { return e.fields().Name }

// String returns the first line of the message, or the name if there is no message.
func (e Error) String() string {
	f := e.fields()
	message, _, _ := strings.Cut(f.Data.Message, "\n") // a stack trace may follow
	return cmp.Or(message, f.Name)
}

// Refused reports whether the content of a request may be why the provider did not answer it. Some providers answer a
// file that they cannot read with a failure of their server.
func (e Error) Refused() bool {
	switch status := e.fields().Data.Status; status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return true
	default:
		return status >= http.StatusInternalServerError
	}
}

type errorFields struct {
	Name string `json:"name"`
	Data struct {
		Message string `json:"message"`
		Status  int    `json:"statusCode"` // of the provider's answer
	} `json:"data"`
}

// fields returns the fields that could be read: an error of another shape has none.
func (e Error) fields() (f errorFields) {
	_ = json.Unmarshal(e.RawMessage, &f)
	return f
}

// SessionDeleted is the payload of session.deleted.
type SessionDeleted struct {
	SessionID string `json:"sessionID"`
}

// MessageUpdated is the payload of message.updated.
type MessageUpdated struct {
	SessionID string  `json:"sessionID"`
	Info      Message `json:"info"`
}

// Message is a message without its parts. Cost is in US dollars, tokens are counts.
type Message struct {
	ID         string   `json:"id"`
	Role       string   `json:"role"`     // user, assistant
	ParentID   string   `json:"parentID"` // of an assistant message: the user message that it answers
	Agent      string   `json:"agent"`
	ProviderID string   `json:"providerID"`
	ModelID    string   `json:"modelID"`
	Cost       float64  `json:"cost"`
	Finish     string   `json:"finish"` // stop, tool-calls, …
	Tokens     struct { // providers may report fractions
		Input     float64 `json:"input"`
		Output    float64 `json:"output"`
		Reasoning float64 `json:"reasoning"`
		Cache     struct {
			Read  float64 `json:"read"`
			Write float64 `json:"write"`
		} `json:"cache"`
	} `json:"tokens"`
	Time struct { // Unix ms
		Created   int64 `json:"created"`
		Completed int64 `json:"completed"`
	} `json:"time"`
	Error Error `json:"error"`
}

// PartUpdated is the payload of message.part.updated.
type PartUpdated struct {
	SessionID string `json:"sessionID"`
	Part      Part   `json:"part"`
}

type Part struct {
	ID        string `json:"id"`
	MessageID string `json:"messageID"`
	Type      string `json:"type"` // text, reasoning, tool, …
	Text      string `json:"text"`
	Synthetic bool   `json:"synthetic"`

	Tool   string          `json:"tool"`
	CallID string          `json:"callID"`
	State  json.RawMessage `json:"state"` // of a tool: an object

	Raw string `json:"-"` // the whole part as OpenCode sent it
}

// UnmarshalJSON also sets Raw.
func (p *Part) UnmarshalJSON(b []byte) error {
	type fields Part
	p.Raw = string(b)
	return json.Unmarshal(b, (*fields)(p))
}

// Files names the files of the part that the model gets as files: the part itself, or what a tool call has returned.
// OpenCode turns other files into text.
func (p Part) Files() (names []string) {
	var part struct {
		file
		State struct {
			Input struct {
				FilePath string `json:"filePath"`
			} `json:"input"`
			Attachments []file `json:"attachments"`
		} `json:"state"`
	}
	if json.Unmarshal([]byte(p.Raw), &part) != nil {
		return nil
	}
	if p.Type == "file" && part.isSent() {
		return []string{cmp.Or(part.Filename, part.Mime)}
	}
	for _, f := range part.State.Attachments {
		if p.Type == "tool" && f.isSent() {
			names = append(names, cmp.Or(f.Filename, path.Base(cmp.Or(part.State.Input.FilePath, f.Mime))))
		}
	}
	return names
}

// LeftOut follows the name of a file in the sentence that replaces the file.
const LeftOut = " was left out: the provider refused it"

// MarkLeftOut is a field of metadata with the names of the files that were left out: in the metadata of a part, or of
// the state of a tool call.
const MarkLeftOut = "pocketcoder_left_out"

// AgentCompaction is the agent with which OpenCode shortens a session. Its message is no answer, and sends no files.
const AgentCompaction = "compaction"

type file struct {
	Mime     string `json:"mime"`
	Filename string `json:"filename"`
}

func (f file) isSent() bool {
	return f.Mime != "" && f.Mime != "text/plain" && f.Mime != "application/x-directory"
}

// MessageRemoved is the payload of message.removed.
type MessageRemoved struct {
	SessionID string `json:"sessionID"`
	MessageID string `json:"messageID"`
}

// PartRemoved is the payload of message.part.removed.
type PartRemoved struct {
	SessionID string `json:"sessionID"`
	MessageID string `json:"messageID"`
	PartID    string `json:"partID"`
}

// PermissionReplied is the payload of permission.replied.
type PermissionReplied struct {
	SessionID string `json:"sessionID"`
	RequestID string `json:"requestID"`
	Reply     string `json:"reply"` // once, always or reject
}

// QuestionReplied is the payload of question.replied, and of question.rejected, which has no answers.
type QuestionReplied struct {
	SessionID string     `json:"sessionID"`
	RequestID string     `json:"requestID"`
	Answers   [][]string `json:"answers"`
}

// OtherPayload is the payload of any other type. It may lack a session.
type OtherPayload struct {
	SessionID string `json:"sessionID"`
}
