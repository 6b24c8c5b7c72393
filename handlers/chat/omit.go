package chat

import (
	"context"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/handlers"
)

// Omit leaves files out of what the model gets of a chat, after the provider refused the last message. Which file it
// refused is not known, so Omit leaves out all that are new to the model.
type Omit struct {
	handlers.Command
	Chat string `json:"chat"`
}

// The reasons why Omit is refused.
const (
	omitRuns    = "A turn is running. Wait for its end, or stop it."
	omitAgain   = "The files were left out already. Send the next message."
	omitAnswer  = "The last message was neither refused by the provider nor stopped, so no file is left out."
	omitNothing = "The chat has no file that can be left out."
)

// omissionState is a chat, what the model gets of each of its sessions, and what was left out.
type omissionState struct {
	requestState
	session   string            // where the chat's messages are sent
	sent      map[string]string // OpenCode's ids of messages by ours
	contexts  map[string]*modelContext
	omissions map[string]omission // requested and not failed, by the id of the event
}

type omission struct {
	seq uint64
	events.OmissionRequested
}

// modelContext is what the model gets of a session, as far as a decision depends on it. OpenCode's ids of messages
// ascend.
type modelContext struct {
	files    []events.OmittedFile // in the order of the log
	prompt   string               // newest message to answer
	answered string               // newest answer without an error
	last     step
}

// step is the newest assistant message.
type step struct {
	id, prompt string
	seq        uint64 // of its first event
	isWritten  bool
	isRefused  bool // or stopped: OpenCode tries a failing provider until a person stops the turn
}

func newOmissionState(command string) *omissionState {
	return &omissionState{
		requestState: requestState{kind: events.OmissionRequested{}.Kind(), command: command}, sent: map[string]string{},
		contexts: map[string]*modelContext{}, omissions: map[string]omission{},
	}
}

func (s *omissionState) Apply(e events.Event) {
	s.requestState.Apply(e)
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.SessionBound:
		s.session = d.Session
	case events.MessageSending:
		s.session, s.sent[d.Message] = d.Session, d.EngineMessage
		s.in(d.Session).prompt = d.EngineMessage
	case events.MessageFailed:
		if c := s.in(s.session); s.sent[d.Message] == c.prompt {
			c.prompt = c.last.prompt
		}
	case events.OmissionRequested:
		s.omissions[e.ID] = omission{e.Seq, d}
	case events.EffectFailed:
		delete(s.omissions, d.Effect)
	case events.EffectDone:
		for _, f := range s.omissions[d.Effect].Files {
			s.in(s.session).drop(func(other events.OmittedFile) bool { return other.Part == f.Part })
		}
	case events.TurnLost:
		s.in(d.Session).prompt, s.in(d.Session).last = "", step{}
	case events.OpenCode:
		s.applyOpenCode(e, d)
	}
}

func (s *omissionState) in(session string) *modelContext {
	if s.contexts[session] == nil {
		s.contexts[session] = &modelContext{}
	}
	return s.contexts[session]
}

func (s *omissionState) applyOpenCode(e events.Event, d events.OpenCode) {
	payload, err := opencode.Decode(d)
	if err != nil {
		return
	}
	switch p := payload.(type) {
	case opencode.MessageUpdated:
		s.in(p.SessionID).message(e, p.Info)
	case opencode.PartUpdated:
		c := s.in(p.SessionID)
		c.drop(func(f events.OmittedFile) bool { return f.Part == p.Part.ID })
		if names := p.Part.Files(); len(names) > 0 {
			c.files = append(c.files, events.OmittedFile{Message: p.Part.MessageID, Part: p.Part.ID,
				Name: strings.Join(names, ", ")})
		}
	case opencode.SessionError:
		c := s.in(p.SessionID)
		c.prompt = c.last.prompt // OpenCode answers no other message of the turn
	case opencode.PartRemoved:
		s.in(p.SessionID).drop(func(f events.OmittedFile) bool { return f.Part == p.PartID })
	case opencode.MessageRemoved:
		s.in(p.SessionID).drop(func(f events.OmittedFile) bool { return f.Message == p.MessageID })
	}
}

func (c *modelContext) drop(which func(events.OmittedFile) bool) {
	c.files = slices.DeleteFunc(c.files, which)
}

func (c *modelContext) message(e events.Event, m opencode.Message) {
	if m.Role != "assistant" {
		c.prompt = max(c.prompt, m.ID)
		return
	}
	if m.ID < c.last.id {
		return
	}
	if m.ID > c.last.id {
		c.last = step{id: m.ID, seq: e.Seq}
	}
	c.last.prompt, c.last.isRefused = m.ParentID, m.Error.Refused() || m.Error.Aborted()
	c.last.isWritten = m.Error.Exists() || m.Time.Completed != 0
	if m.Time.Completed != 0 && !m.Error.Exists() && m.Agent != opencode.AgentCompaction {
		c.answered = max(c.answered, m.ID)
	}
}

// Omit returns the files that are left out.
func (h *Chats) Omit(ctx context.Context, c Omit) (files []events.OmittedFile, seq uint64, err error) {
	if err := handlers.CheckChat(c.Chat); err != nil {
		return nil, 0, err
	}
	f := handlers.NewFold(newOmissionState(c.ID), events.ChatSubject(c.Chat, events.OmissionRequested{}.Kind()),
		handlers.ChatFilter(c.Chat), events.ChatSubject(c.Chat, "session.bound"),
		events.ChatSubject(c.Chat, "message.*"), events.ChatSubject(c.Chat, "effect.*"),
		events.ChatSubject(c.Chat, events.TurnLost{}.Kind()), events.ChatOpenCodeSubject(c.Chat, "session.error"),
		events.ChatOpenCodeSubject(c.Chat, "message.*"), events.ChatOpenCodeSubject(c.Chat, "message.part.*"))
	seq, err = f.ExecuteOne(ctx, h.Log, c.Chat, c.Command, func(s *omissionState) (events.Data, uint64, error) {
		var seq uint64
		var err error
		if files, seq, err = s.omit(c); err != nil || seq != 0 {
			return nil, seq, err
		}
		return events.OmissionRequested{Files: files}, 0, nil
	})
	return files, seq, err
}

// omit returns the files to leave out, or the sequence at which the command was carried out with its files.
func (s *omissionState) omit(c Omit) (files []events.OmittedFile, seq uint64, err error) {
	if err := s.Missing(c.Chat); err != nil {
		return nil, 0, err
	}
	for _, earlier := range s.omissions {
		if s.done != 0 && earlier.seq == s.done {
			return earlier.Files, s.done, nil
		}
	}
	at := s.in(s.session)
	switch {
	case at.prompt > at.last.prompt, at.last.id != "" && !at.last.isWritten:
		return nil, 0, handlers.Refuse(handlers.Conflict, omitRuns)
	case !at.last.isRefused:
		return nil, 0, handlers.Refuse(handlers.Conflict, omitAnswer)
	}
	for _, earlier := range s.omissions {
		if earlier.seq > at.last.seq {
			return nil, 0, handlers.Refuse(handlers.Conflict, omitAgain)
		}
	}
	if files = events.OfferedFiles(at.files, at.answered); len(files) == 0 {
		return nil, 0, handlers.Refuse(handlers.Conflict, omitNothing)
	}
	return files, 0, nil
}
