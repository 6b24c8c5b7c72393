package chat

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/handlers"
)

// AnswerQuestion is the command to answer one question of a tool call, or to reject all of them. The first answer wins.
type AnswerQuestion struct {
	handlers.Command
	Chat     string   `json:"chat"`
	Question string   `json:"question"` // OpenCode's que_… id
	Index    int      `json:"index"`
	Answers  []string `json:"answers,omitempty"` // labels or free text, MaxAnswer bytes in all
	Rejected bool     `json:"rejected,omitempty"`
}

// MaxAnswer is the longest answer to a question, in bytes.
const MaxAnswer = 32 << 10

// ExpireQuestion means that questions need no answer any more. It does not change a question that is answered or over.
type ExpireQuestion struct {
	handlers.Command
	Chat, Question, Reason string
}

// RequestQuestion asks a person a question of the tool ask_person.
type RequestQuestion struct {
	handlers.Command
	Chat string
	events.QuestionRequested
}

type questions struct {
	handlers.ChatState
	requests map[string]events.QuestionRequest
	answered map[string]map[int]answerRecord
	over     map[string]string // rejected, expired, or answered in OpenCode itself: how
}

type answerRecord struct {
	seq       uint64
	cause, by string
}

func newQuestions() *questions {
	return &questions{
		requests: map[string]events.QuestionRequest{}, answered: map[string]map[int]answerRecord{}, over: map[string]string{},
	}
}

func (s *questions) Apply(e events.Event) {
	s.ChatState.Apply(e)
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.QuestionRequested:
		s.requests[d.Question] = d.Request()
	case events.QuestionAnswered:
		if s.answered[d.Question] == nil {
			s.answered[d.Question] = map[int]answerRecord{}
		}
		s.answered[d.Question][d.Index] = answerRecord{e.Seq, e.Cause, e.Actor}
		if d.Rejected {
			s.over[d.Question] = "rejected by " + e.Actor
		}
	case events.QuestionExpired:
		s.over[d.Question] = "expired: " + d.Reason
	case events.QuestionInterrupted:
		if events.IsElicitation(d.Question) {
			s.over[d.Question] = "expired: the MCP server does not wait for it any more"
		}
	case events.OpenCode:
		s.applyOpenCode(d)
	}
}

func (s *questions) applyOpenCode(d events.OpenCode) {
	switch d.Type {
	case events.QuestionAsked:
		if request, err := opencode.Read[events.QuestionRequest](d); err == nil {
			s.requests[request.ID] = request
		}
	case events.QuestionReplied, events.QuestionRejected:
		if reply, err := opencode.Read[opencode.QuestionReplied](d); err == nil && s.over[reply.RequestID] == "" {
			s.over[reply.RequestID] = "answered in OpenCode"
		}
	}
}

// RequestQuestion has no effect if a question was asked under the same id.
func (h *Chats) RequestQuestion(ctx context.Context, c RequestQuestion) (uint64, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	return h.onQuestions(ctx, c.Chat, c.Command, func(s *questions) (events.Data, uint64, error) {
		if err := s.Missing(c.Chat); err != nil {
			return nil, 0, err
		}
		if _, asked := s.requests[c.Question]; asked {
			return nil, 0, handlers.RefuseField(handlers.Conflict, "question", "question %s was asked already", c.Question)
		}
		return c.QuestionRequested, 0, nil
	})
}

// The limits of a question of the tool ask_person.
const (
	maxQuestion = 4 << 10 // bytes
	maxOptions  = 20
	maxOption   = 500 // bytes
)

func (c RequestQuestion) check() error {
	for _, q := range c.Questions {
		if strings.TrimSpace(q.Question) == "" || len(q.Question) > maxQuestion || !utf8.ValidString(q.Question) {
			return handlers.RefuseField(handlers.Invalid, "question", "question: want 1 to %d bytes of UTF-8, got %d",
				maxQuestion, len(q.Question))
		}
		if len(q.Options) > maxOptions {
			return handlers.RefuseField(handlers.Invalid, "options", "options: want at most %d, got %d", maxOptions,
				len(q.Options))
		}
		for i, o := range q.Options {
			if strings.TrimSpace(o.Label) == "" || len(o.Label) > maxOption || !utf8.ValidString(o.Label) {
				return handlers.RefuseField(handlers.Invalid, "options", "option %d: want 1 to %d bytes of UTF-8, got %d", i+1,
					maxOption, len(o.Label))
			}
			if slices.ContainsFunc(q.Options[:i], func(other events.Option) bool { return other.Label == o.Label }) {
				return handlers.RefuseField(handlers.Invalid, "options", "option %d: %.100q is offered twice", i+1, o.Label)
			}
		}
	}
	return nil
}

func (h *Chats) AnswerQuestion(ctx context.Context, c AnswerQuestion) (uint64, error) {
	return h.onQuestions(ctx, c.Chat, c.Command, func(s *questions) (events.Data, uint64, error) { return s.answer(c) })
}

// ExpireQuestion also works in a deleted chat.
func (h *Chats) ExpireQuestion(ctx context.Context, c ExpireQuestion) (uint64, error) {
	return h.onQuestions(ctx, c.Chat, c.Command, func(s *questions) (events.Data, uint64, error) {
		return s.expire(c), 0, nil
	})
}

func (h *Chats) onQuestions(ctx context.Context, chat string, c handlers.Command,
	decide func(*questions) (events.Data, uint64, error)) (uint64, error) {
	if err := handlers.CheckChat(chat); err != nil {
		return 0, err
	}
	f := handlers.NewFold(newQuestions(), events.ChatSubject(chat, "question.*"),
		events.ChatSubject(chat, "opencode.question.*"), handlers.ChatFilter(chat))
	return f.ExecuteOne(ctx, h.Log, chat, c, decide)
}

func (s *questions) answer(c AnswerQuestion) (events.Data, uint64, error) {
	if s.Deleted != 0 {
		return nil, 0, s.Missing(c.Chat)
	}
	request, known := s.requests[c.Question]
	if !known || c.Index < 0 || c.Index >= len(request.Questions) {
		return nil, 0, handlers.Refuse(handlers.NotFound, "there is no question %s/%d in chat %s", c.Question, c.Index,
			c.Chat)
	}
	if earlier, ok := s.answered[c.Question][c.Index]; ok {
		if c.ID != "" && earlier.cause == c.ID {
			return nil, earlier.seq, nil
		}
		return nil, 0, handlers.RefuseField(handlers.Conflict, "status", "question %s/%d is answered already, by %s",
			c.Question, c.Index, earlier.by)
	}
	if how := s.over[c.Question]; how != "" {
		return nil, 0, handlers.RefuseField(handlers.Conflict, "status", "question %s is over: %s", c.Question, how)
	}
	if err := c.check(request.Questions[c.Index]); err != nil {
		return nil, 0, err
	}
	return events.QuestionAnswered{Question: c.Question, Index: c.Index, Answers: c.Answers, Rejected: c.Rejected}, 0, nil
}

func (c AnswerQuestion) check(q events.Question) error {
	text := strings.Join(c.Answers, "")
	switch {
	case c.Rejected && len(c.Answers) > 0:
		return handlers.RefuseField(handlers.Invalid, "reply", "a question is answered or rejected, not both")
	case c.Rejected:
		return nil
	case strings.TrimSpace(text) == "":
		return handlers.RefuseField(handlers.Invalid, "reply", "the answer is empty")
	case len(c.Answers) > 1 && !q.Multiple:
		return handlers.RefuseField(handlers.Invalid, "reply", "question %s/%d takes one answer, got %d", c.Question,
			c.Index, len(c.Answers))
	case len(text) > MaxAnswer:
		return handlers.RefuseField(handlers.Invalid, "reply", "the answer is %d bytes; the limit is %d", len(text),
			MaxAnswer)
	case !utf8.ValidString(text):
		return handlers.RefuseField(handlers.Invalid, "reply", "the answer is not UTF-8")
	}
	for i, answer := range c.Answers {
		offered := slices.ContainsFunc(q.Options, func(o events.Option) bool { return o.Label == answer })
		switch {
		case strings.TrimSpace(answer) == "":
			return handlers.RefuseField(handlers.Invalid, "reply", "answer %d of %d is empty", i+1, len(c.Answers))
		case slices.Contains(c.Answers[:i], answer):
			return handlers.RefuseField(handlers.Invalid, "reply", "the answer %.100q is given twice", answer)
		case !offered && !q.Free():
			return handlers.RefuseField(handlers.Invalid, "reply",
				"the answer %.100q is none of those that question %s/%d offers", answer, c.Question, c.Index)
		}
	}
	return nil
}

// expire returns no event for questions that are over, or have all their answers.
func (s *questions) expire(c ExpireQuestion) events.Data {
	request, known := s.requests[c.Question]
	if !known || s.over[c.Question] != "" || len(s.answered[c.Question]) == len(request.Questions) {
		return nil
	}
	return events.QuestionExpired{Question: c.Question, Reason: c.Reason}
}
