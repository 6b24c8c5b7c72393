package projections

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// OpenCode's events about messages. A durable event changes a row only if it is newer than the row, so duplicates and
// late events change nothing.

// message returns the row of a message by OpenCode's id: the row of the submitted message if we sent it, else a row of
// its own.
func (t *tables) message(engineMessage, session string, e events.Event) Message {
	m, found := t.messages.Get(t.messageID(engineMessage))
	if !found {
		m.Chat, m.Position, m.OCSeq = e.Subject.ID, int64(e.Seq), -1
		m.Submitted, m.EngineParts, m.Reports = "[]", "[]", "[]"
	}
	m.EngineMessage, m.Session = engineMessage, session
	return m
}

func (t *tables) messageID(engineMessage string) string {
	if alias, found := t.engineIDs.Get(engineMessage); found {
		return alias.Message
	}
	return store.RecordID(engineMessage)
}

// reported returns the message with an id of OpenCode, an empty one for none.
func (t *tables) reported(engineMessage string) (m Message) {
	if engineMessage != "" {
		m, _ = t.messages.Get(t.messageID(engineMessage))
	}
	return m
}

// putMessage stores a message that has changed itself: it is unread again.
func (t *tables) putMessage(e events.Event, m Message) {
	m.Ending = m.step().Ending()
	if old, found := t.messages.Get(m.ID); !found || old != m {
		m.Written = int64(e.Seq)
		t.messages.Put(m)
	}
}

// changeMessage marks a message as changed whose part has changed.
func (t *tables) changeMessage(e events.Event, id string) {
	if m, found := t.messages.Get(id); found && !m.Removed {
		m.Written = int64(e.Seq)
		t.messages.Put(m)
	}
}

// putPart stores a part, and counts its kind in its message, which may come later.
func (t *tables) putPart(e events.Event, session, engineMessage string, p part) {
	m, found := t.messages.Get(p.Message)
	if !found {
		m = t.message(engineMessage, session, e)
	}
	if before, _ := t.parts.Get(p.ID); !before.Removed {
		m.count(before.Kind, -1)
	}
	if !p.Removed {
		m.count(p.Kind, 1)
	}
	t.parts.Put(p)
	m.Ending = m.step().Ending()
	if !m.Removed {
		m.Written = int64(e.Seq)
	}
	t.messages.Put(m)
}

// deny records that a request of a call of a message was denied without a reason, or that a question of it was
// dismissed: OpenCode ends the turn.
func (t *tables) deny(chat, engineMessage string) {
	t.changeDenial(chat, engineMessage, func(m *Message) { m.Denied = true })
}

// reject records that a request of a call of a message was rejected in OpenCode. With a reason the turn goes on.
func (t *tables) reject(chat, engineMessage string) {
	t.changeDenial(chat, engineMessage, func(m *Message) { m.Rejected = true })
}

func (t *tables) changeDenial(chat, engineMessage string, change func(*Message)) {
	m, found := t.messages.Get(t.messageID(engineMessage))
	if !found || m.Chat != chat {
		return
	}
	change(&m)
	m.Ending = m.step().Ending()
	t.messages.Put(m)
	if s, found := t.sessions.Get(m.Session); found {
		t.putSession(s)
	}
}

func applyMessage(t *tables, e events.Event, b opencode.MessageUpdated) {
	m := t.message(b.Info.ID, b.SessionID, e)
	s := t.session(b.SessionID, e)
	defer func() { t.putSession(s) }()
	if !newer(e, m.OCSeq) {
		return
	}
	was := m
	m.OCSeq = max(m.OCSeq, e.OpenCodeSeq)
	first := m.Role == ""
	if b.Info.Role == roleAssistant {
		name := m.Agent
		m.fillAssistant(b.Info)
		if first {
			m.ChosenAgent, name = t.chosenAgent(s, m.Parent)
		}
		if m.ChosenAgent != "" && s.Parent == "" && m.Agent != opencode.AgentCompaction {
			m.Agent = name
		}
		// a fork copies finished messages; an answer of the session's own is not finished at first, whatever the clock says
		if first {
			m.Copied = b.Info.Time.Completed != 0 && b.Info.Time.Created < s.Opened
		}
		if s.Answer(m.ID, b.Info); m.Removed {
			s.Processing = s.Processing.With(m.ID, false)
		} else {
			s.Newest = max(s.Newest, m.EngineMessage)
		}
		t.clearError(e, m.Parent)
	} else {
		if first {
			m.Role = roleUser
			s.Unanswered = max(s.Unanswered, m.EngineMessage)
		}
		notSent := m.UserStatus == statusFailed && m.ErrorDomain == domainInfrastructure
		if first || notSent || m.undelivered() { // OpenCode has the message
			t.setUserStatus(&m, statusDelivered)
			m.ErrorDomain, m.ErrorPayload = "", ""
		}
		if m.ChosenAgent == "" {
			m.Agent = b.Info.Agent
		}
	}
	updateUsage(t.usage, was.usage(), m.usage())
	t.putMessage(e, m)
	t.addText(m.Chat, m.Session, "")
}

// chosenAgent returns the agent that a person has chosen for an answer, by record and name. It is that of the prompt. A
// prompt that OpenCode wrote itself, after a compaction or for a subagent, has that of the chat's last message.
func (t *tables) chosenAgent(s Session, prompt string) (record, name string) {
	if m, found := t.messages.Get(t.messageID(prompt)); found && m.Submitted != "[]" {
		return m.ChosenAgent, m.Agent
	}
	root, _ := t.sessions.Get(s.Root)
	return root.ChosenAgent, root.ChosenName
}

// clearError removes the error from a user message that is answered after all, because the error belonged to the
// message before. OpenCode reports some errors twice, the second time when the next message may already be sent.
func (t *tables) clearError(e events.Event, engineMessage string) {
	m, found := t.messages.Get(t.messageID(engineMessage))
	if found && m.UserStatus == statusFailed && m.ErrorDomain == domainProvider {
		m.UserStatus, m.ErrorDomain, m.ErrorPayload = statusDelivered, "", ""
		t.putMessage(e, m)
	}
}

func (m *Message) fillAssistant(i opencode.Message) {
	m.Role, m.Parent, m.Agent, m.Provider, m.Model = roleAssistant, i.ParentID, i.Agent, i.ProviderID, i.ModelID
	m.Cost, m.TokensInput, m.TokensOutput, m.TokensReasoning = i.Cost, int64(i.Tokens.Input), int64(i.Tokens.Output),
		int64(i.Tokens.Reasoning)
	m.TokensCacheRead, m.TokensCacheWrite, m.Finish = int64(i.Tokens.Cache.Read), int64(i.Tokens.Cache.Write), i.Finish
	m.EngineStatus, m.ErrorDomain, m.ErrorPayload = cmp.Or(turnstate.Outcome(i), statusProcessing), "", ""
	if i.Error.Exists() {
		m.ErrorDomain, m.ErrorPayload = domainProvider, store.JSON(i.Error.RawMessage)
	}
}

func applyPart(t *tables, e events.Event, b opencode.PartUpdated) {
	s := t.session(b.SessionID, e)
	defer func() { t.putSession(s) }()
	info := b.Part
	p, found := t.parts.Get(info.ID)
	if !found {
		p.OCSeq = -1
	}
	if !newer(e, p.OCSeq) {
		return
	}
	p.OCSeq = max(p.OCSeq, e.OpenCodeSeq)
	p.Message, p.Chat, p.Data = t.messageID(info.MessageID), e.Subject.ID, store.JSON(info.Raw)
	if called := callHash(info); called != "" {
		p.Reused = p.Reused || p.Called != "" && p.Called != called
		p.Called = cmp.Or(p.Called, called)
	}
	p.Kind = kindOf(info)
	t.putPart(e, b.SessionID, info.MessageID, p)
	if info.Type != "text" || info.Synthetic {
		info.Text = ""
	}
	t.addText(p.Chat, b.SessionID, info.Text)
}

// callHash returns a hash of the id, the tool and the arguments of a call that the gate reads or that are shown with
// its request. It returns "" if the part is not a call, or if its arguments are not known yet. Two calls of one message
// with the same id share a part. A part whose hash changes therefore stands for several calls.
func callHash(p opencode.Part) string {
	var state struct {
		Status string                     `json:"status"`
		Input  map[string]json.RawMessage `json:"input"`
	}
	if p.Type != "tool" || json.Unmarshal(p.State, &state) != nil || state.Status == "pending" {
		return ""
	}
	in := state.Input
	hashed := []any{p.CallID, p.Tool, in["command"], in["workdir"], in["filePath"]}
	if strings.HasPrefix(p.Tool, events.OwnTools) {
		delete(in, "caller") // PocketCoder adds it
		hashed = append(hashed, in)
	}
	sum := sha256.Sum256([]byte(encoded(hashed)))
	return hex.EncodeToString(sum[:16])
}

func applyMessageRemoved(t *tables, e events.Event, b opencode.MessageRemoved) {
	s := t.session(b.SessionID, e)
	m := t.message(b.MessageID, b.SessionID, e)
	m.Removed = true
	s.Processing = s.Processing.With(m.ID, false)
	t.putMessage(e, m)
	t.putSession(s)
}

func applyPartRemoved(t *tables, e events.Event, b opencode.PartRemoved) {
	s := t.session(b.SessionID, e)
	p, found := t.parts.Get(b.PartID)
	if !found { // it was removed before it was seen; queries read fields of data, so data must be JSON
		p.OCSeq, p.Message, p.Chat, p.Data = -1, t.messageID(b.MessageID), e.Subject.ID, "{}"
	}
	p.Removed = true
	t.putPart(e, b.SessionID, b.MessageID, p)
	t.putSession(s)
}

// applyError sets the error of the user message that waits for an answer. For an unknown agent, OpenCode sends this
// event only.
func applyError(t *tables, e events.Event, b opencode.SessionError) {
	if b.SessionID == "" {
		return
	}
	s := t.session(b.SessionID, e)
	target := s.Fail(b.Error)
	t.putSession(s)
	m, found := t.messages.Get(t.messageID(target))
	if target == "" || !found {
		return
	}
	if !b.Error.Aborted() {
		t.setUserStatus(&m, statusFailed)
	}
	m.ErrorDomain, m.ErrorPayload = domainProvider, store.JSON(b.Error.RawMessage)
	t.putMessage(e, m)
}

// endTurn ends the turn of a session that OpenCode will not finish. Running messages, and a delivered message without
// an answer, get the status and the error. A message that is being sent is not affected, because it will be sent again.
func endTurn(t *tables, e events.Event, session, outcome string, payload store.JSON) {
	s := t.session(session, e)
	for _, id := range s.Processing.All() {
		m, _ := t.messages.Get(id)
		m.EngineStatus = endStatus(outcome)
		m.fail(payload)
		t.putMessage(e, m)
	}
	sending := t.sending(s)
	if m, found := t.messages.Get(t.messageID(s.Awaiting)); found && !sending {
		m.fail(payload)
		t.putMessage(e, m)
	}
	s.End(outcome, sending)
	t.putSession(s)
}

// endStatus returns the status of messages and subagents whose turn ended. A lost one has failed.
func endStatus(outcome string) string {
	if outcome == turnstate.Lost {
		return statusFailed
	}
	return outcome
}

func (m *Message) fail(payload store.JSON) {
	if payload != "" {
		m.ErrorDomain, m.ErrorPayload = domainInfrastructure, payload
	}
}
