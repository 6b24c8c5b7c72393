package projections

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// Message is a message of a chat, subagents' included. Tokens are counts, cost is in US dollars.
type Message struct {
	store.Record
	Chat string `db:"chat" json:"chat"`
	// OpenCode's; empty until it is sent
	Session string `db:"session" json:"session"`
	Role    string `db:"role" json:"role"` // user, assistant, system
	// processing, completed, failed, aborted
	EngineStatus string `db:"engine_message_status" json:"engine_message_status"`
	// pending, sending, delivered, failed
	UserStatus    string     `db:"user_message_status" json:"user_message_status"`
	EngineMessage string     `db:"ai_engine_message_id" json:"ai_engine_message_id"`
	Parent        string     `db:"parent_id" json:"parent_id"`       // engine id of the user message it answers
	ErrorDomain   string     `db:"error_domain" json:"error_domain"` // infrastructure, provider
	ErrorPayload  store.JSON `db:"error_payload" json:"error_payload"`
	Agent         string     `db:"agent" json:"agent"`    // its name
	ChosenAgent   string     `db:"chosen_agent" json:"-"` // record of the agent that a person's message is for
	Provider      string     `db:"provider" json:"provider"`
	Model         string     `db:"model" json:"model"`
	Figures
	Finish      string     `db:"finish" json:"finish"`
	Submitted   store.JSON `db:"submitted" json:"-"`
	EngineParts store.JSON `db:"engine_parts" json:"-"`
	Held        string     `db:"held" json:"held"`         // why it is pending
	HeldBy      string     `db:"held_by" json:"held_by"`   // request for more budget that it waits for; empty for a person
	Notice      string     `db:"notice" json:"notice"`     // a sentence about how it was delivered
	Delivery    string     `db:"delivery" json:"delivery"` // of a person's: queue, steer
	Sender      string     `db:"sender" json:"sender"`     // chat whose assistant wrote it; empty for a person
	Reports     store.JSON `db:"reports" json:"reports"`   // delegated messages whose delegates it reports on
	Schedule    string     `db:"schedule" json:"schedule"` // record of the schedule that submitted it
	Origin      store.JSON `db:"origin" json:"-"`          // of a person's in a messenger: events.Origin
	ByPerson    bool       `db:"by_person" json:"-"`       // a person submitted it, so that a stop of the turn holds it
	Copied      bool       `db:"copied" json:"-"`          // by a fork
	// of an assistant's: how a turn ends with it; empty while it is written, and if another step follows
	Ending turnstate.Ending `db:"ending" json:"ending"`
	Texts  int64            `db:"texts" json:"-"` // parts with more than blanks
	Calls  int64            `db:"calls" json:"-"` // parts that are tool calls
	Ends   int64            `db:"ends" json:"-"`  // parts that say that it is over
	// a request of a call was denied without a reason, or a question was dismissed
	Denied bool `db:"denied" json:"-"`
	// a request of a call was rejected in OpenCode, which does not report the reason
	Rejected bool  `db:"rejected" json:"-"`
	Position int64 `db:"position" json:"position"` // order within the chat
	// sequence of the event that wrote it or a part of it last: the end of a command changes its marks, but does not
	// make it unread
	Written int64 `db:"written_seq" json:"-"`
	OCSeq   int64 `db:"oc_seq" json:"oc_seq"`
}

// usage returns the usage of a message. A copy of a fork has none, because the source chat has it.
func (m Message) usage() Usage {
	if m.Role != roleAssistant || m.Copied {
		return Usage{}
	}
	return usageOf(m.Chat, m.Provider, m.Model, m.Figures)
}

// part is a piece of a message as OpenCode sent it.
type part struct {
	store.Record            // the id is OpenCode's
	Message      string     `db:"message"`
	Chat         string     `db:"chat"`
	OCSeq        int64      `db:"oc_seq"`
	Data         store.JSON `db:"data"`
	Called       string     `db:"called"`
	Reused       bool       `db:"reused"`
	Kind         string     `db:"kind"` // what it says about the end of its message: text, call, end; empty for nothing
}

// kindOf returns the kind of a part.
func kindOf(p opencode.Part) string {
	switch {
	case p.Type == "text" && strings.TrimSpace(p.Text) != "":
		return "text"
	case p.Type == "tool":
		return "call"
	case p.Type == "step-finish":
		return "end"
	}
	return ""
}

// count counts a part of a kind in its message: 1 for a new one, -1 for one that is gone.
func (m *Message) count(kind string, by int64) {
	switch kind {
	case "text":
		m.Texts += by
	case "call":
		m.Calls += by
	case "end":
		m.Ends += by
	}
}

// step returns what the end of a turn depends on. A message of no assistant is no step.
func (m Message) step() turnstate.Step {
	if m.Role != roleAssistant {
		return turnstate.Step{}
	}
	s := turnstate.Step{Outcome: m.EngineStatus, Infrastructure: m.ErrorDomain == domainInfrastructure,
		Error: opencode.Error{RawMessage: []byte(m.ErrorPayload)}.Name(), Finish: m.Finish, Agent: m.Agent,
		HasText: m.Texts > 0, HasCall: m.Calls > 0, IsWhole: m.Ends > 0, IsDenied: m.Denied,
		IsRejected: m.Rejected}
	if s.Outcome == statusProcessing {
		s.Outcome = ""
	}
	return s
}

// engineID maps OpenCode's id of a message to ours.
type engineID struct {
	store.Record        // the id is OpenCode's
	Message      string `db:"message"`
}

// The words of a message's columns.
const (
	roleUser      = "user"
	roleAssistant = "assistant"
	roleSystem    = "system"

	statusPending   = "pending"
	statusSending   = "sending"
	statusDelivered = "delivered"
	statusWithdrawn = "withdrawn" // of a removed message

	statusProcessing = "processing"
	statusFailed     = turnstate.Failed

	agentTitle = "title" // of OpenCode, which finds a title

	domainInfrastructure = "infrastructure"
	domainProvider       = "provider"
)

func updateMessages(t *tables, e events.Event, body any) error {
	if events.ReleasesQueue(e, body) {
		t.releaseQueue(e.Subject.ID)
	}
	switch b := body.(type) {
	case events.MessageSubmitted:
		return addSubmitted(t, e, b)
	case events.MessageEdited:
		return edited(t, e, b)
	case events.MessageMoved:
		return moved(t, e, b)
	case events.MessageSteered:
		return steered(t, e, b)
	case events.MessageWithdrawn:
		return withdrawn(t, e, b)
	case events.AbortRequested:
		if b.HoldsQueue(e) {
			t.holdQueue(e.Subject.ID)
		}
	case events.MessageSending:
		return sending(t, e, b)
	case events.MessageDelivered:
		return recordDelivered(t, e, b)
	case events.MessageFailed:
		return undelivered(t, e, b)
	case events.MessageHeld:
		return recordHeld(t, e, b)
	case events.ModelReplaced:
		return setNotice(t, e, b.Message, b.Reason)
	case events.SessionReplaced:
		return setNotice(t, e, b.Message, b.Reason)
	case events.TurnLost:
		endTurn(t, e, b.Session, turnstate.Lost, encoded(ownError{"TurnLost", turnstate.EndLost.Sentence()}))
	case events.FileSent:
		addFile(t, e, b)
	case events.TitleGenerated:
		addTitle(t, e, b)
	case opencode.SessionDeleted:
		endTurn(t, e, b.SessionID, turnstate.Aborted, "")
	case opencode.MessageUpdated:
		applyMessage(t, e, b)
	case opencode.PartUpdated:
		applyPart(t, e, b)
	case opencode.MessageRemoved:
		applyMessageRemoved(t, e, b)
	case opencode.PartRemoved:
		applyPartRemoved(t, e, b)
	case opencode.SessionError:
		applyError(t, e, b)
	}
	return nil
}

// ownError is the error_payload of what we report ourselves.
type ownError struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

// addSubmitted adds the row of a submitted message. The client chooses the id. A message whose id is in use gets no
// row, so it is never delivered. This is not an error, because a client could otherwise fill the dead letters.
func addSubmitted(t *tables, e events.Event, b events.MessageSubmitted) error {
	m, found := t.messages.Get(b.Message)
	if found {
		return nil
	}
	chat, found := t.chats.Get(e.Subject.ID)
	if !found {
		return fmt.Errorf("chat %s was never created", e.Subject.ID)
	}
	chat.Outbox++
	t.chats.Put(chat)
	m.Chat, m.Role, m.UserStatus = e.Subject.ID, roleUser, statusPending
	if b.Resumes != "" || b.IsReport() {
		m.Role = roleSystem // PocketCoder wrote it
	}
	m.Sender, m.Reports = b.Sender, encodedList(append(slices.Clone(b.Results), b.Silent...))
	m.Submitted, m.EngineParts, m.Position, m.OCSeq = encoded(b.Parts), "[]", int64(e.Seq), -1
	m.Delivery, m.Schedule, m.ByPerson = cmp.Or(b.Delivery, events.DeliveryQueue), b.Schedule, b.IsByPerson(e)
	if b.Origin != nil {
		m.Origin = encoded(b.Origin)
	}
	t.messages.Put(m)
	if m.Role == roleUser {
		t.enqueue(m)
	}
	return nil
}

// filePart is the part of a message with a file that the assistant sent.
type filePart struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Filename string `json:"filename"`
	Mime     string `json:"mime"`
	URL      string `json:"url"`  // from the address of the server
	Text     string `json:"text"` // caption
}

// addTitle counts what a request for a title cost. The row is that of a removed message of the assistant: removed
// messages are not shown, and their cost counts.
func addTitle(t *tables, e events.Event, b events.TitleGenerated) {
	m, _ := t.messages.Get(store.RecordID("title/" + e.ID))
	was := m.usage()
	m.Chat, m.Session, m.Role, m.Agent, m.Removed = e.Subject.ID, b.Session, roleAssistant, agentTitle, true
	m.Provider, m.Model, m.EngineStatus, m.Position, m.OCSeq = b.Provider, b.Model, turnstate.Completed, int64(e.Seq), -1
	m.Submitted, m.EngineParts, m.Reports = "[]", "[]", "[]"
	m.Figures = Figures{Cost: b.Cost, TokensInput: b.Input, TokensOutput: b.Output, TokensReasoning: b.Reasoning,
		TokensCacheRead: b.CacheRead, TokensCacheWrite: b.CacheWrite}
	updateUsage(t.usage, was, m.usage())
	t.messages.Put(m)
}

// addFile adds the part of a file that the assistant sent. Its id sorts it after the part of the call.
func addFile(t *tables, e events.Event, b events.FileSent) {
	p, found := t.parts.Get(b.Part + "_" + b.File)
	if found {
		return // the event was appended twice
	}
	p.Message, p.Chat, p.OCSeq = t.messageID(b.MessageID), e.Subject.ID, -1
	p.Data = encoded(filePart{ID: p.ID, Type: "file", Filename: path.Base(b.Path), Mime: b.Mime,
		URL: "/api/artifacts/" + b.File + "/content", Text: b.Caption})
	t.parts.Put(p)
	t.changeMessage(e, p.Message)
}

// submittedMessage returns the message that an event of its chat is about.
func (t *tables) submittedMessage(e events.Event, id string) (Message, error) {
	m, found := t.messages.Get(id)
	if !found || m.Chat != e.Subject.ID {
		return m, fmt.Errorf("message %s was never submitted in chat %s", id, e.Subject.ID)
	}
	return m, nil
}

func sending(t *tables, e events.Event, b events.MessageSending) error {
	m, err := t.submittedMessage(e, b.Message)
	if err != nil {
		return err
	}
	t.join(&m, b)
	alias, _ := t.engineIDs.Get(b.EngineMessage)
	alias.Message = b.Message
	t.engineIDs.Put(alias)
	m.Session, m.EngineMessage, m.EngineParts = b.Session, b.EngineMessage, encoded(b.EngineParts)
	m.ChosenAgent, m.Agent = b.Agent, b.AgentName
	t.setUserStatus(&m, statusSending)
	t.messages.Put(m)
	return nil
}

// join merges a message that OpenCode reported into the submitted message with the same OpenCode id. After a loss of
// events, the report can be in the log before the sending.
func (t *tables) join(m *Message, b events.MessageSending) {
	reported, found := t.messages.Get(store.RecordID(b.EngineMessage))
	if !found || reported.Removed {
		return
	}
	m.OCSeq = reported.OCSeq
	for _, id := range b.EngineParts {
		if p, found := t.parts.Get(id); found {
			p.Message = m.ID
			t.parts.Put(p)
		}
	}
	reported.EngineMessage, reported.Removed = "", true
	t.messages.Put(reported)
}

// recordDelivered changes nothing if OpenCode has already reported the message, or an error about it.
func recordDelivered(t *tables, e events.Event, b events.MessageDelivered) error {
	m, err := t.submittedMessage(e, b.Message)
	if err != nil {
		return err
	}
	if m.undelivered() {
		t.setUserStatus(&m, statusDelivered)
		t.messages.Put(m)
	}
	return nil
}

// recordHeld changes nothing if OpenCode has the message. A budget does not hold a message that is being sent, or that
// waits for a person.
func recordHeld(t *tables, e events.Event, b events.MessageHeld) error {
	m, err := t.submittedMessage(e, b.Message)
	if err == nil && b.IsAfterLoss() && m.undelivered() {
		t.holdAfterLoss(m, b.Reason)
		return nil
	}
	if err != nil || b.IsAfterLoss() || m.UserStatus != statusPending || m.WaitsForPerson() {
		return err
	}
	t.changeOutbox(&m, func() { m.Held, m.HeldBy = b.Reason, b.Permission })
	t.messages.Put(m)
	return nil
}

func setNotice(t *tables, e events.Event, message, notice string) error {
	m, err := t.submittedMessage(e, message)
	if err == nil {
		m.Notice = notice
		t.messages.Put(m)
	}
	return err
}

func undelivered(t *tables, e events.Event, b events.MessageFailed) error {
	m, err := t.submittedMessage(e, b.Message)
	if err != nil {
		return err
	}
	if !m.undelivered() {
		return nil
	}
	t.setUserStatus(&m, statusFailed)
	m.ErrorDomain, m.ErrorPayload = b.Domain, encoded(ownError{"MessageFailed", b.Error})
	t.messages.Put(m)
	chat, _ := t.chats.Get(m.Chat)
	if s, found := t.sessions.Get(cmp.Or(m.Session, chat.Session)); found {
		s.Undelivered(m.EngineMessage)
		t.putSession(s)
	}
	return nil
}

func (m Message) undelivered() bool {
	return m.UserStatus == statusPending || m.UserStatus == statusSending
}

func (t *tables) setUserStatus(m *Message, status string) {
	if m.UserStatus == statusPending && status != statusPending {
		t.setQueue(m.Chat, t.queueWithout(*m))
	}
	t.changeOutbox(m, func() { m.UserStatus, m.Held, m.HeldBy = status, "", "" })
}

// changeOutbox also counts the chat's messages that OpenCode does not have yet, without held ones, which wait for a
// person.
func (t *tables) changeOutbox(m *Message, change func()) {
	onItsWay := func() bool { return m.undelivered() && m.Held == "" }
	was := onItsWay()
	change()
	if is := onItsWay(); is != was {
		chat, _ := t.chats.Get(m.Chat)
		if chat.Outbox--; is {
			chat.Outbox += 2
		}
		t.chats.Put(chat)
	}
}
