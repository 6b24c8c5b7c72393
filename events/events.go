// Package events has the types of all events: their bodies, their envelope and their subjects. The stored form of each
// is a promise for ever.
//
// The kinds of PocketCoder's own events follow, in the order in which they occur. → means "then", | means "or", and
// brackets enclose what may be missing. An event is about a chat, unless the line says otherwise. OpenCode's events are
// stored beside them as opencode.<type>; the lines name the few that matter here.
//
//	chat        created → [updated] → [deleted]; session.bound (an OpenCode session); erased (by an operator)
//	message     message.submitted → [session.bound] → [message.sending] (again if OpenCode lost the session)
//	            → message.delivered | message.failed
//	            while it waits: message.held (a budget is spent, or events are lost), message.edited, message.moved, message.steered, message.withdrawn
//	            after message.sending: model.replaced, session.replaced (OpenCode has lost the session of the chat)
//	turn        opencode.message.updated and opencode.message.part.updated (the answer) → opencode.session.status (idle) | turn.lost (OpenCode does not end it).
//	            projections/turnstate says when the turn is over
//	permission  opencode.permission.asked | permission.requested (by a client of the API, a budget, a command that needs a host,
//	            or with exec.finished for each protected name that the command created)
//	            → [permission.referred (to a person)] → permission.decided → opencode.permission.replied (to asked only)
//	            permission.expired: the request no longer needs a decision, or its decision is no longer valid
//	            permission.applied: the sandbox has carried out a decision about a name that a command created (type keep)
//	            permission.interrupted: OpenCode forgot the request. An approval of it leads to message.submitted, which resumes
//	            the turn, or to permission.expired
//	question    opencode.question.asked | question.requested (by the tool ask_person) → question.answered | question.expired
//	            question.interrupted: OpenCode forgot the question
//	execution   exec.refused, or exec.requested → [exec.started] → exec.finished → [exec.changed (files)]
//	            while it runs: exec.connected (to a host, or refused), exec.signalled
//	title       [title.generated (its cost)] → opencode.session.updated (the title): of a chat without a title of a person
//	file        file.sent: a file that the assistant sends to the person
//	tool        mcp.called → mcp.returned: a call of a tool of an MCP server. mcp.connected: about the record of a server
//	effect      abort.requested | revert.requested | fork.requested | omission.requested → effect.done | effect.failed
//	delegate    created (with a parent), message.submitted (with a sender) → [worker.silent] → worker.finished (of the
//	            delegate), for each delegated message → message.submitted with the results, in the parent's chat. worktree.closed: after the
//	            delegate was deleted
//	channel     channel.queued → channel.sending → [channel.delayed] → channel.sent | channel.failed: a message to a messenger
//	webhook     webhook.delivered, webhook.failed, webhook.replayed: about a record of webhook_targets
//	notice      notification.queued → notification.sent | notification.failed: about a chat, an account or a record
//	account     account.created, account.updated, password.changed, deleted; session.opened, session.refreshed, session.closed
//	            (login sessions); login.failed, also about no account; chat.seen (up to an event): about an account
//	record      saved, deleted: about a configuration record
//	schedule    fired (with message.submitted) | skipped: about the record of a schedule
//
// The package is pure: it has no connection and does no I/O. events/secret redacts events, and events/log stores them.
package events

// The catalogue: everything of our own that can happen. Rows are added, never changed or removed, because the stored
// form is a promise: a field may be added (optional), a kind may be added, nothing is renamed. A form that must change
// in another way gets a new version (forms.go). OpenCode's own events are not listed: their type is stored verbatim
// and their JSON unchanged (see OpenCode in envelope.go).

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// Data is the body of an event of our own.
type Data interface {
	Kind() string // past tense, stored for ever, never derived from the Go name
}

// ChatCreated opens a chat. A chat that was opened in OpenCode's own TUI is adopted.
type ChatCreated struct {
	// empty if no person gave one: the first words of the chat are its title, until OpenCode has generated one
	Title   string `json:"title"`
	User    string `json:"user,omitempty"` // owner; empty for an adopted chat
	Engine  string `json:"engine"`
	Agent   string `json:"agent,omitempty"`
	Adopted bool   `json:"adopted,omitempty"`

	Description string `json:"description,omitempty"`
	Archived    bool   `json:"archived,omitempty"`
	Tags        string `json:"tags,omitempty"`
	Project     string `json:"project,omitempty"` // empty for the project whose id is the engine; see ProjectID

	Parent *Parent `json:"parent,omitempty"` // of a delegate
	// of a run of an assistant's schedule, and of a fork of a delegate or of such a run: it may do no more than this chat
	Ceiling *Ceiling `json:"ceiling,omitempty"`
}

// DefaultEngine is the engine of the first project of an installation. It is also the id of that project.
const DefaultEngine = "local"

// ProjectID returns the project of the chat. A chat of an earlier version belongs to the project of its engine.
func (c ChatCreated) ProjectID() string { return cmp.Or(c.Project, c.Engine, DefaultEngine) }

// DefaultTitle is the title of a chat without a title and without words.
const DefaultTitle = "New chat"

// ForkSuffix ends the title of a fork.
const ForkSuffix = " (fork)"

// ChatUpdated changes fields of a chat. A nil field does not change.
type ChatUpdated struct {
	Title       *string `json:"title,omitempty"`
	Description *string `json:"description,omitempty"`
	Archived    *bool   `json:"archived,omitempty"`
	Tags        *string `json:"tags,omitempty"`
	Agent       *string `json:"agent,omitempty"`
	User        *string `json:"user,omitempty"`   // a new owner
	Shared      *bool   `json:"shared,omitempty"` // whether all who have access to the project may read the chat
}

// Deleted hides a chat, a configuration record or an account. The log keeps its history.
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

// MessageSubmitted is a person's message that PocketCoder has accepted. With Resumes it is the prompt that resumes a
// stopped turn after a person's decision or answers (role system in the chat).
type MessageSubmitted struct {
	Message string `json:"message"`
	Parts   []Part `json:"parts"`
	// the interrupted request or the request for a budget that was approved, or the interrupted questions that were
	// answered (que_…)
	Resumes string `json:"resumes,omitempty"`

	Delivery string `json:"delivery,omitempty"` // DeliverySteer; empty for DeliveryQueue

	// chat whose assistant wrote it; empty for a person, and for PocketCoder itself. From its parent, it is
	// delegated work
	Sender string `json:"sender,omitempty"`

	// A report to the parent of delegates (role system in the chat) names delegated messages. Results are the messages
	// whose results it carries. Silent are the messages whose delegates it reports as silent.
	Results []string `json:"results,omitempty"`
	Silent  []string `json:"silent,omitempty"`

	Schedule string  `json:"schedule,omitempty"` // record of the schedule that submitted it; empty for a person
	Origin   *Origin `json:"origin,omitempty"`   // of a message that a person wrote in a messenger
}

// IsReport reports whether PocketCoder wrote the message to report on delegates.
func (d MessageSubmitted) IsReport() bool { return len(d.Results)+len(d.Silent) > 0 }

// Values of a message's delivery.
const (
	DeliveryQueue = "queue" // it waits until the running turn is over
	DeliverySteer = "steer" // it is sent at once; OpenCode reads it after the current step of the running turn
)

// MessageEdited replaces the content of a message that waits.
type MessageEdited struct {
	Message string `json:"message"`
	Parts   []Part `json:"parts"`
}

// MessageMoved moves a waiting message to another place in the queue of its chat.
type MessageMoved struct {
	Message string `json:"message"`
	Before  string `json:"before,omitempty"` // the waiting message that follows it; empty for the end of the queue
}

// MessageSteered means that a message of the queue is sent at once (DeliverySteer).
type MessageSteered struct {
	Message string `json:"message"`
}

// MessageWithdrawn deletes a message that waits. It is not sent.
type MessageWithdrawn struct {
	Message string `json:"message"`
}

// MessageSending fixes OpenCode's ids of the message before it is sent. A resend after a crash uses the same ids, so
// OpenCode runs the message once.
type MessageSending struct {
	Message       string   `json:"message"`
	Session       string   `json:"session"`
	EngineMessage string   `json:"engine_message"`
	EngineParts   []string `json:"engine_parts"`
	Agent         string   `json:"agent,omitempty"`      // record of ai_agents as which the assistant answers
	AgentName     string   `json:"agent_name,omitempty"` // its name then
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

// MessageHeld means that a message waits because a budget is spent. It is sent when a person allows more, the limit
// changes or a new day begins. After a loss of events it means that the log cannot tell whether the message was sent.
// The message then waits until a person sends or deletes it.
type MessageHeld struct {
	Message string `json:"message"`
	// the request of type budget that decides about more; it may belong to another chat. Empty after a loss
	Permission string `json:"permission"`
	Reason     string `json:"reason"` // a sentence for the person
}

// IsAfterLoss reports whether the message waits because events are lost.
func (d MessageHeld) IsAfterLoss() bool { return d.Permission == "" }

// ModelReplaced means that another model answers the message, because OpenCode cannot use the selected one.
type ModelReplaced struct {
	Message  string `json:"message"`
	Selected string `json:"selected"` // "provider/model"
	Used     string `json:"used"`     // "provider/model"
	Reason   string `json:"reason"`   // a sentence for the person
}

// SessionReplaced means that a message goes to a new session of OpenCode, because OpenCode has lost that of the chat.
type SessionReplaced struct {
	Message string `json:"message"`
	Before  string `json:"before"`
	Session string `json:"session"`
	Reason  string `json:"reason"` // a sentence for the person
}

// QuestionRequested is a question that the model asks a person with the tool ask_person. OpenCode does not know it: the
// tool call waits for the answers.
type QuestionRequested struct {
	Question  string     `json:"question"` // id: que_…
	Session   string     `json:"session"`
	MessageID string     `json:"message_id,omitempty"` // OpenCode's id of the message with the call
	Call      string     `json:"call"`
	Questions []Question `json:"questions"`
}

// QuestionAnswered is a person's answer to one of the questions that the model asked together: labels or free text.
// OpenCode receives the answers once every question has one. A rejection rejects all of them.
type QuestionAnswered struct {
	Question string   `json:"question"` // que_…
	Index    int      `json:"index"`    // which of them, from 0
	Answers  []string `json:"answers,omitempty"`
	Rejected bool     `json:"rejected,omitempty"`
}

// QuestionInterrupted says OpenCode restarted and forgot the questions, or the call that waits for their answers. They
// can still be answered.
type QuestionInterrupted struct {
	Question string `json:"question"`
}

// QuestionExpired says the question cannot be answered any more.
type QuestionExpired struct {
	Question string `json:"question"`
	Reason   string `json:"reason"`
}

// FileSent is a file that the assistant sends to the person with the tool send_file, as it was then. In the chat it
// follows the call.
type FileSent struct {
	File      string `json:"file"` // id
	Session   string `json:"session"`
	MessageID string `json:"message_id"` // OpenCode's id of the message with the call
	Part      string `json:"part"`       // OpenCode's id of the part with the call
	Path      string `json:"path"`       // from the directory of the session, symlinks resolved
	Caption   string `json:"caption,omitempty"`
	Mime      string `json:"mime"`
	Content   Blob   `json:"content"`
}

// TurnLost means that OpenCode does not run a turn any more and has not ended it. The turn can be resumed.
type TurnLost struct {
	Session string `json:"session"`
}

// AbortRequested is a command to stop the running turn, or one subagent if Session is set. OpenCode's events have the
// result.
type AbortRequested struct {
	Session string `json:"session,omitempty"`
}

// HoldsQueue reports whether the messages of persons that wait in the chat stay there after an abort: a person has
// stopped the whole turn. ReleasesQueue says until when.
func (d AbortRequested) HoldsQueue(e Event) bool { return d.Session == "" && e.IsOfPerson() }

// IsByPerson reports whether a person submitted the message, so that a stop of the turn holds it in the queue. Messages
// of schedules, webhooks, other chats and PocketCoder are not held.
func (d MessageSubmitted) IsByPerson(e Event) bool {
	return d.Schedule == "" && d.Sender == "" && d.Resumes == "" && !d.IsReport() &&
		!strings.HasPrefix(e.Actor, WebhookActor(""))
}

// ReleasesQueue reports whether an event ends the hold of the queue of its chat: a person sends the next message, or
// sends one of the queue at once.
func ReleasesQueue(e Event, d any) bool {
	switch d := d.(type) {
	case MessageSubmitted:
		return d.Resumes == "" && e.IsOfPerson()
	case MessageSteered:
		return true
	}
	return false
}

// RevertRequested is a command to revert a message, all later ones and their changes to files. Without a message it
// undoes the last revert. OpenCode's events have the result.
type RevertRequested struct {
	Message string `json:"message,omitempty"` // OpenCode's id
	// files that differ from the state that the turns, or the last revert, left are changed too; else they are kept
	Overwrite bool `json:"overwrite,omitempty"`
}

// ForkRequested is a command to create a chat with the history of this chat, before a message or in full.
type ForkRequested struct {
	Message string `json:"message,omitempty"` // OpenCode's id
	Chat    string `json:"chat"`              // the new one
}

// OmissionRequested is a command to leave files out of what the model gets of a chat, because its provider refused a
// request that contained them. OpenCode's events have the result.
type OmissionRequested struct {
	Files []OmittedFile `json:"files"`
}

// OmittedFile is a file of a message, or the files in the result of a tool call.
type OmittedFile struct {
	Message string `json:"message"` // OpenCode's id
	Part    string `json:"part"`    // OpenCode's id
	Name    string `json:"name"`
}

// OfferedFiles returns the files that a person can leave out after a refusal: all files after the newest answer,
// because the provider does not say which file it refused. If there is none, it returns all files: the provider, or a
// new model, refused one that was accepted before. answered is OpenCode's id of the newest answer.
func OfferedFiles(all []OmittedFile, answered string) (offered []OmittedFile) {
	for _, f := range all {
		if f.Message >= answered {
			offered = append(offered, f)
		}
	}
	if len(offered) == 0 {
		return all
	}
	return offered
}

// EffectDone says that OpenCode has carried out an abort.requested, a revert.requested, a fork.requested or an
// omission.requested, or that there was nothing to do.
type EffectDone struct {
	Effect string   `json:"effect"`         // id of that event
	Kept   []string `json:"kept,omitempty"` // of a revert: absolute paths of the files that it kept as they were
	// of a revert: directory with the earlier versions of Kept files that were changed during the revert; empty for none
	Copies string `json:"copies,omitempty"`
}

// EffectFailed says that OpenCode has refused such a command for good, or that a revert could not keep files.
type EffectFailed struct {
	Effect string `json:"effect"` // id of the event with the command
	Reason string `json:"reason"`
}

// TitleGenerated says what a request of OpenCode for the title of a session cost. OpenCode reports the title, and no
// cost.
type TitleGenerated struct {
	Session    string  `json:"session"`
	Provider   string  `json:"provider"`
	Model      string  `json:"model"`
	Cost       float64 `json:"cost"`  // in US dollars
	Input      int64   `json:"input"` // tokens, as those below
	Output     int64   `json:"output"`
	Reasoning  int64   `json:"reasoning,omitempty"`
	CacheRead  int64   `json:"cache_read,omitempty"`
	CacheWrite int64   `json:"cache_write,omitempty"`
}

func (ChatCreated) Kind() string           { return "created" }
func (ChatUpdated) Kind() string           { return "updated" }
func (Deleted) Kind() string               { return "deleted" }
func (PermissionRequested) Kind() string   { return "permission.requested" }
func (RevertRequested) Kind() string       { return "revert.requested" }
func (ForkRequested) Kind() string         { return "fork.requested" }
func (SessionBound) Kind() string          { return "session.bound" }
func (MessageSubmitted) Kind() string      { return "message.submitted" }
func (MessageEdited) Kind() string         { return "message.edited" }
func (MessageMoved) Kind() string          { return "message.moved" }
func (MessageSteered) Kind() string        { return "message.steered" }
func (MessageWithdrawn) Kind() string      { return "message.withdrawn" }
func (MessageSending) Kind() string        { return "message.sending" }
func (MessageDelivered) Kind() string      { return "message.delivered" }
func (MessageFailed) Kind() string         { return "message.failed" }
func (MessageHeld) Kind() string           { return "message.held" }
func (ModelReplaced) Kind() string         { return "model.replaced" }
func (SessionReplaced) Kind() string       { return "session.replaced" }
func (PermissionReferred) Kind() string    { return "permission.referred" }
func (PermissionDecided) Kind() string     { return "permission.decided" }
func (PermissionInterrupted) Kind() string { return "permission.interrupted" }
func (PermissionExpired) Kind() string     { return "permission.expired" }
func (PermissionApplied) Kind() string     { return "permission.applied" }
func (QuestionRequested) Kind() string     { return "question.requested" }
func (QuestionAnswered) Kind() string      { return "question.answered" }
func (QuestionInterrupted) Kind() string   { return "question.interrupted" }
func (QuestionExpired) Kind() string       { return "question.expired" }
func (FileSent) Kind() string              { return "file.sent" }
func (TitleGenerated) Kind() string        { return "title.generated" }
func (TurnLost) Kind() string              { return "turn.lost" }
func (AbortRequested) Kind() string        { return "abort.requested" }
func (OmissionRequested) Kind() string     { return "omission.requested" }
func (EffectDone) Kind() string            { return "effect.done" }
func (EffectFailed) Kind() string          { return "effect.failed" }

var catalogue = kinds(
	ChatCreated{}, SessionBound{},
	MessageSubmitted{}, MessageSending{}, MessageDelivered{}, MessageFailed{}, MessageHeld{}, ModelReplaced{}, SessionReplaced{},
	MessageEdited{}, MessageMoved{}, MessageSteered{}, MessageWithdrawn{},
	PermissionReferred{}, PermissionDecided{}, PermissionInterrupted{}, PermissionExpired{}, PermissionApplied{},
	QuestionRequested{}, QuestionAnswered{}, QuestionInterrupted{}, QuestionExpired{},
	ExecRequested{}, ExecRefused{}, ExecStarted{}, ExecSignalled{}, ExecConnected{}, ExecChanged{}, ExecFinished{},
	FileSent{}, TitleGenerated{}, TurnLost{}, AbortRequested{},
	ChatUpdated{}, Deleted{}, ChatErased{}, PermissionRequested{}, RevertRequested{}, ForkRequested{}, OmissionRequested{}, EffectDone{},
	EffectFailed{},
	Saved{},
	AccountCreated{}, AccountUpdated{}, PasswordChanged{},
	SessionOpened{}, SessionRefreshed{}, SessionClosed{}, LoginFailed{}, ChatSeen{},
	NotificationQueued{}, NotificationSent{}, NotificationFailed{},
	DelegateFinished{}, DelegateSilent{}, WorktreeClosed{},
	ChannelQueued{}, ChannelSending{}, ChannelDelayed{}, ChannelSent{}, ChannelFailed{},
	WebhookDelivered{}, WebhookFailed{}, WebhookReplayed{},
	MCPCalled{}, MCPReturned{}, MCPConnected{},
	ScheduleFired{}, ScheduleSkipped{},
)

func kinds(data ...Data) map[string]reflect.Type {
	m := make(map[string]reflect.Type, len(data))
	for _, d := range data {
		m[d.Kind()] = reflect.TypeOf(d)
	}
	return m
}

// Decode returns the body of an event as its type in the catalogue, by value. An OpenCode event decodes to OpenCode.
func Decode(e Event) (Data, error) {
	if e.Malformed != nil {
		return nil, e.Malformed
	}
	if typ, ok := e.Subject.OpenCodeType(); ok {
		return OpenCode{Type: typ, Form: e.Form, Properties: e.Data}, nil
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
