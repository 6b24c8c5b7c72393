package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
)

type askArguments struct {
	signed
	Question string   `json:"question" jsonschema:"one question, in plain words"`
	Options  []string `json:"options,omitempty" jsonschema:"answers to choose from; leave it out for free text"`
}

// reportTime bounds the wait for OpenCode's event about a call. OpenCode sends that event before it makes the call.
const reportTime = 30 * time.Second

// askPerson asks a question, and waits for the answer. If the call ends before, the question stays open in the chat.
func (s *Server) askPerson(ctx context.Context, c call, in askArguments) (string, error) {
	at, err := s.runningAt(ctx, c)
	if err != nil {
		return "", err
	}
	question := events.Question{Question: in.Question, Options: []events.Option{}}
	for _, label := range in.Options {
		question.Options = append(question.Options, events.Option{Label: label})
	}
	id := projections.OwnQuestionID(c.Session, at.Message, c.Call)
	seq, err := s.Chats.RequestQuestion(ctx, chat.RequestQuestion{Command: s.command(), Chat: c.chat,
		QuestionRequested: events.QuestionRequested{Question: id, Session: c.Session, MessageID: at.Message, Call: c.Call,
			Questions: []events.Question{question}}})
	if err != nil {
		return "", err
	}
	var a answers
	err = c.await("A person has been asked: "+id, func() (err error) {
		a, err = s.awaitAnswers(ctx, id, seq)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case a.status == projections.QuestionRejected:
		return "", handlers.Refuse(handlers.Conflict, "The person does not want to answer this question.")
	case a.status == projections.QuestionExpired:
		return "", handlers.Refuse(handlers.Conflict, "The question expired: %s.", a.reason)
	}
	return strings.Join(a.texts[0], ", "), nil
}

// runningAt returns where a running call is in the chat.
func (s *Server) runningAt(ctx context.Context, c call) (projections.RunningCall, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	at, err := s.Model.AwaitRunningCall(ctx, c.chat, c.Session, c.Call)
	if err != nil {
		return at, fmt.Errorf("find call %s: %w", c.Call, err)
	}
	return at, nil
}

// answers is the end of questions that were asked together.
type answers struct {
	status string     // replied, rejected or expired
	reason string     // why they expired
	texts  [][]string // of each question
}

// awaitAnswers waits until the questions of the event at seq were answered, were rejected or have expired.
func (s *Server) awaitAnswers(ctx context.Context, id string, seq uint64) (a answers, err error) {
	for {
		if err := s.Model.Wait(ctx, seq); err != nil {
			return a, err
		}
		seq = s.Model.Seq() + 1
		group, err := s.Model.QuestionsOf(ctx, id)
		if err != nil {
			return a, err
		}
		a = answers{status: projections.QuestionReplied}
		for _, q := range group {
			if q.Status != projections.QuestionReplied {
				a.status, a.reason = q.Status, q.Reason
				break
			}
		}
		if len(group) > 0 && a.status != projections.QuestionAsked {
			a.texts, _, err = projections.AnswersTo(group)
			return a, err
		}
	}
}
