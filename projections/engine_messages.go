package projections

import (
	"cmp"
	"encoding/json"

	"pocketcoder/events"
)

// What OpenCode says about messages. Its durable events change a row only when they are newer than what the row holds,
// so that duplicates and late ones change nothing.

// message gives the row of a message OpenCode speaks of: ours when we sent it, else a row of its own.
func (tx *Tx) message(engineMessage, session string, e events.Event) Message {
	m, found := tx.messages.get(tx.messageID(engineMessage))
	if !found {
		m.Chat, m.Position, m.OCSeq, m.Submitted, m.EngineParts = e.Subject.ID, int64(e.Seq), -1, "[]", "[]"
	}
	m.EngineMessage, m.Session = engineMessage, session
	return m
}

func (tx *Tx) messageID(engineMessage string) string {
	if alias, found := tx.engineIDs.get(engineMessage); found {
		return alias.Message
	}
	return RecordID(engineMessage)
}

func applyMessage(tx *Tx, e events.Event, b ocMessage) {
	m := tx.message(b.Info.ID, b.SessionID, e)
	s := tx.session(b.SessionID, e)
	defer func() { tx.sessions.put(s) }()
	if !newer(e, m.OCSeq) {
		return
	}
	m.OCSeq = max(m.OCSeq, e.OpenCodeSeq)
	first := m.Role == ""
	if b.Info.Role == roleAssistant {
		m.fillAssistant(b.Info)
		m.Copied = b.Info.Time.Created < s.Opened
		s.answered(m)
		tx.forgive(m.Parent)
	} else {
		if first {
			m.Role = roleUser
			s.Unanswered = max(s.Unanswered, m.EngineMessage)
		}
		notSent := m.UserStatus == statusFailed && m.ErrorDomain == domainInfrastructure
		if first || notSent || m.undelivered() { // OpenCode has it, whatever we thought
			tx.setUserStatus(&m, statusDelivered)
			m.ErrorDomain, m.ErrorPayload = "", ""
		}
		m.Agent = b.Info.Agent
	}
	tx.messages.put(m)
	tx.said(m.Chat, m.Session, "")
}

// forgive takes an error back from a user message that is answered after all: it was about the message before. OpenCode
// reports some errors twice, the second time when the next message may already be on its way.
func (tx *Tx) forgive(engineMessage string) {
	m, found := tx.messages.get(tx.messageID(engineMessage))
	if found && m.UserStatus == statusFailed && m.ErrorDomain == domainProvider {
		m.UserStatus, m.ErrorDomain, m.ErrorPayload = statusDelivered, "", ""
		tx.messages.put(m)
	}
}

func (m *Message) fillAssistant(i messageInfo) {
	m.Role, m.Parent, m.Agent, m.Provider, m.Model = roleAssistant, i.ParentID, i.Agent, i.ProviderID, i.ModelID
	m.Cost, m.TokensInput, m.TokensOutput, m.TokensReasoning = i.Cost, i.Tokens.Input, i.Tokens.Output, i.Tokens.Reasoning
	m.TokensCacheRead, m.TokensCacheWrite, m.Finish = i.Tokens.Cache.Read, i.Tokens.Cache.Write, i.Finish
	m.EngineStatus, m.ErrorDomain, m.ErrorPayload = statusProcessing, "", ""
	if hasError(i.Error) {
		m.EngineStatus, m.ErrorDomain, m.ErrorPayload = failure(i.Error), domainProvider, JSON(i.Error)
	} else if i.Time.Completed != 0 {
		m.EngineStatus = statusCompleted
	}
}

func hasError(e json.RawMessage) bool { return len(e) > 0 && string(e) != "null" }

// failure tells a turn that a person stopped from one that went wrong.
func failure(e json.RawMessage) string {
	var v struct {
		Name string `json:"name"`
	}
	if _ = json.Unmarshal(e, &v); v.Name == "MessageAbortedError" { // any other shape is some other error
		return statusAborted
	}
	return statusFailed
}

// answered notes what an assistant message says about the session's turn. It answers its parent and every user message
// before it: of several queued ones OpenCode answers the last.
func (s *Session) answered(m Message) {
	processing := m.EngineStatus == statusProcessing && !m.Removed
	s.setProcessing(m.ID, processing)
	if !processing {
		s.Outcome = m.EngineStatus
	}
	if m.Parent >= s.Awaiting {
		s.Awaiting = ""
	}
	if m.Parent >= s.Unanswered {
		s.Unanswered = ""
	}
}

func applyPart(tx *Tx, e events.Event, b ocPart) {
	s := tx.session(b.SessionID, e)
	tx.sessions.put(s)
	info := b.Part.info
	p, found := tx.parts.get(info.ID)
	if !found {
		p.OCSeq = -1
	}
	if !newer(e, p.OCSeq) {
		return
	}
	p.OCSeq = max(p.OCSeq, e.OpenCodeSeq)
	p.Message, p.Chat, p.Data = tx.messageID(info.MessageID), e.Subject.ID, b.Part.data
	if called := info.called(); called != "" {
		p.Reused = p.Reused || p.Called != "" && p.Called != called
		p.Called = cmp.Or(p.Called, called)
	}
	tx.parts.put(p)
	tx.messages.touch(p.Message) // clients see the parts in it
	if info.Type != "text" || info.Synthetic {
		info.Text = ""
	}
	tx.said(p.Chat, b.SessionID, info.Text)
}

func applyRemoved(tx *Tx, e events.Event, b ocRemoved) {
	s := tx.session(b.SessionID, e)
	if b.PartID != "" {
		p, found := tx.parts.get(b.PartID)
		if !found {
			p.OCSeq, p.Message, p.Chat = -1, tx.messageID(b.MessageID), e.Subject.ID
		}
		p.Removed = true
		tx.parts.put(p)
		tx.messages.touch(p.Message)
	} else {
		m := tx.message(b.MessageID, b.SessionID, e)
		m.Removed = true
		s.setProcessing(m.ID, false)
		tx.messages.put(m)
	}
	tx.sessions.put(s)
}

// applyError is about the user message that waits for an answer: with an assistant message there, that one carries the
// error itself. For an unknown agent OpenCode sends this and nothing else.
func applyError(tx *Tx, e events.Event, b ocError) {
	if b.SessionID == "" {
		return
	}
	s := tx.session(b.SessionID, e)
	target := s.Awaiting
	if target == "" {
		target = s.Unanswered
	}
	s.Awaiting, s.Unanswered = "", ""
	if target != "" || s.Processing != noMessages {
		s.Outcome = failure(b.Error)
	}
	tx.sessions.put(s)
	m, found := tx.messages.get(tx.messageID(target))
	if target == "" || !found {
		return
	}
	if failure(b.Error) == statusFailed {
		tx.setUserStatus(&m, statusFailed)
	}
	m.ErrorDomain, m.ErrorPayload = domainProvider, JSON(b.Error)
	tx.messages.put(m)
}

// endTurn ends what a session was doing when OpenCode will not: its running messages get the status and the error, and so
// does a delivered one that nothing has answered. One that is still being sent is not lost: it will be sent again.
func endTurn(tx *Tx, e events.Event, session, status string, payload JSON) {
	s := tx.session(session, e)
	for _, id := range s.ids() {
		m, _ := tx.messages.get(id)
		m.EngineStatus = status
		m.fail(payload)
		tx.messages.put(m)
		s.Outcome = status
	}
	waiting, found := tx.messages.get(tx.messageID(s.Awaiting))
	if found && !waiting.undelivered() {
		waiting.fail(payload)
		tx.messages.put(waiting)
		s.Outcome, s.Awaiting = status, ""
	}
	s.Status, s.Processing, s.Unanswered = sessionIdle, noMessages, ""
	tx.sessions.put(s)
}

func (m *Message) fail(payload JSON) {
	if payload != "" {
		m.ErrorDomain, m.ErrorPayload = domainInfrastructure, payload
	}
}
