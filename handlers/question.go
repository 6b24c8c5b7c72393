package handlers

import (
	"context"
	"encoding/json"
	"strings"

	"pocketcoder/events"
)

// AnswerQuestion answers one of the questions the model asked together, or rejects all of them. The first answer wins.
type AnswerQuestion struct {
	Command
	Chat     string   `json:"chat"`
	Question string   `json:"question"` // OpenCode's que_… id
	Index    int      `json:"index"`
	Answers  []string `json:"answers,omitempty"` // labels or free text
	Rejected bool     `json:"rejected,omitempty"`
}

type questions struct {
	chatState
	asks     map[string]events.QuestionAsk
	answered map[string]map[int]answered
	over     map[string]string // rejected, expired, or answered in OpenCode by somebody else: how
}

type answered struct {
	seq   uint64
	cause string
}

func newQuestions() *questions {
	return &questions{
		asks: map[string]events.QuestionAsk{}, answered: map[string]map[int]answered{}, over: map[string]string{},
	}
}

func (s *questions) apply(e events.Event) {
	s.chatState.apply(e)
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.QuestionAnswered:
		if s.answered[d.Question] == nil {
			s.answered[d.Question] = map[int]answered{}
		}
		s.answered[d.Question][d.Index] = answered{e.Seq, e.Cause}
		if d.Rejected {
			s.over[d.Question] = "rejected by " + e.Actor
		}
	case events.QuestionExpired:
		s.over[d.Question] = "expired: " + d.Reason
	case events.OpenCode:
		s.applyOpenCode(d)
	}
}

func (s *questions) applyOpenCode(d events.OpenCode) {
	switch d.Type {
	case events.QuestionAsked:
		var ask events.QuestionAsk
		if json.Unmarshal(d.Properties, &ask) == nil {
			s.asks[ask.ID] = ask
		}
	case events.QuestionReplied, events.QuestionRejected:
		var reply struct{ RequestID string }
		if json.Unmarshal(d.Properties, &reply) == nil && s.over[reply.RequestID] == "" {
			s.over[reply.RequestID] = "answered in OpenCode"
		}
	}
}

// AnswerQuestion carries out the command.
func (h *Handlers) AnswerQuestion(ctx context.Context, c AnswerQuestion) (uint64, error) {
	if _, err := events.ParseID(c.Chat); err != nil {
		return 0, refuseField(Invalid, "chat", "chat: %v", err)
	}
	s := newQuestions()
	filters := []string{events.ChatSubject(c.Chat, "question.*"), events.ChatSubject(c.Chat, "opencode.question.*"), chatFilter(c.Chat)}
	return h.handle(ctx, c.Chat, c.Command, s, filters, func() (events.Data, uint64, error) { return s.answer(c) })
}

func (s *questions) answer(c AnswerQuestion) (events.Data, uint64, error) {
	if s.deleted != 0 {
		return nil, 0, s.missing(c.Chat)
	}
	ask, known := s.asks[c.Question]
	if !known || c.Index < 0 || c.Index >= len(ask.Questions) {
		return nil, 0, refuse(NotFound, "there is no question %s/%d in chat %s", c.Question, c.Index, c.Chat)
	}
	if earlier, ok := s.answered[c.Question][c.Index]; ok {
		if c.ID != "" && earlier.cause == c.ID {
			return nil, earlier.seq, nil
		}
		return nil, 0, refuseField(Conflict, "status", "question %s/%d is answered already", c.Question, c.Index)
	}
	if how := s.over[c.Question]; how != "" {
		return nil, 0, refuseField(Conflict, "status", "question %s is over: %s", c.Question, how)
	}
	if !c.Rejected && strings.TrimSpace(strings.Join(c.Answers, "")) == "" {
		return nil, 0, refuseField(Invalid, "reply", "the answer is empty")
	}
	if len(c.Answers) > 1 && !ask.Questions[c.Index].Multiple {
		return nil, 0, refuseField(Invalid, "reply", "question %s/%d takes one answer, got %d", c.Question, c.Index, len(c.Answers))
	}
	return events.QuestionAnswered{Question: c.Question, Index: c.Index, Answers: c.Answers, Rejected: c.Rejected}, 0, nil
}
