package projections

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
)

// Question is one of the questions the model asked together.
type Question struct {
	store.Record
	EngineQuestion string     `db:"ai_engine_question_id" json:"ai_engine_question_id"`
	Index          int64      `db:"idx" json:"idx"` // which of those asked together, from 0
	Session        string     `db:"session_id" json:"session_id"`
	EngineMessage  string     `db:"message_id" json:"message_id"`
	Call           string     `db:"call_id" json:"call_id"`
	Chat           string     `db:"chat" json:"chat"`
	Question       string     `db:"question" json:"question"`
	Header         string     `db:"header" json:"header"`
	Choices        store.JSON `db:"choices" json:"choices"`           // list of labels
	Descriptions   store.JSON `db:"descriptions" json:"descriptions"` // list, one for each choice
	Multiple       bool       `db:"multiple" json:"multiple"`
	Custom         bool       `db:"custom" json:"custom"`           // free text is an answer too
	Reply          store.JSON `db:"reply" json:"reply"`             // list of labels or free text
	Status         string     `db:"status" json:"status"`           // asked, replied, rejected, expired
	Interrupted    bool       `db:"interrupted" json:"interrupted"` // OpenCode restarted and forgot it
	Reason         string     `db:"reason" json:"reason"`           // why it expired
	RepliedBy      string     `db:"replied_by" json:"replied_by"`
	Request        string     `db:"request" json:"-"`                     // SHA-256, see events.QuestionAsk
	EngineReplied  bool       `db:"engine_replied" json:"engine_replied"` // OpenCode has its answer, or is owed none
	Position       int64      `db:"position" json:"position"`
}

// What has become of a question.
const (
	QuestionAsked    = "asked"
	QuestionReplied  = "replied"
	QuestionRejected = "rejected"
	QuestionExpired  = "expired"
)

func updateQuestions(t *tables, e events.Event, body any) error {
	switch b := body.(type) {
	case events.QuestionAsk:
		questionsAsked(t, e, b)
	case opencode.QuestionReplied:
		t.changeQuestions(b.RequestID, func(i int, q *Question) { q.engineReplied(i, e, b) })
	case events.QuestionAnswered:
		return questionAnswered(t, e, b)
	case events.QuestionInterrupted:
		questionsInterrupted(t, b)
	case events.MessageSubmitted: // which answers interrupted questions
		t.changeQuestions(b.Resumes, func(_ int, q *Question) { q.EngineReplied = true })
	case events.QuestionExpired:
		t.changeQuestions(b.Question, func(_ int, q *Question) {
			if !q.EngineReplied {
				q.Status, q.Reason = QuestionExpired, b.Reason
			}
		})
	}
	return nil
}

func questionID(engineQuestion string, index int) string {
	return store.RecordID(engineQuestion + "/" + strconv.Itoa(index))
}

func (t *tables) putQuestion(q Question) {
	t.questions.Put(q)
	t.setWaiting(q.Session, q.ID, q.Status == QuestionAsked && !q.Interrupted)
}

// changeQuestions changes every question of those asked together.
func (t *tables) changeQuestions(engineQuestion string, change func(int, *Question)) {
	for i := 0; ; i++ {
		q, found := t.questions.Get(questionID(engineQuestion, i))
		if !found {
			return
		}
		change(i, &q)
		t.putQuestion(q)
	}
}

func questionsAsked(t *tables, e events.Event, b events.QuestionAsk) {
	for i, asked := range b.Questions {
		q, found := t.questions.Get(questionID(b.ID, i))
		if found { // seen again after a reconnect
			continue
		}
		labels, descriptions := []string{}, []string{}
		for _, o := range asked.Options {
			labels, descriptions = append(labels, o.Label), append(descriptions, o.Description)
		}
		q.EngineQuestion, q.Index, q.Session, q.Chat = b.ID, int64(i), b.SessionID, e.Subject.ID
		q.EngineMessage, q.Call, q.Request = b.Tool.MessageID, b.Tool.CallID, b.Request()
		q.Question, q.Header, q.Choices, q.Descriptions = asked.Question, asked.Header, encoded(labels), encoded(descriptions)
		q.Multiple, q.Custom, q.Reply, q.Status, q.Position = asked.Multiple, asked.Free(), "[]", QuestionAsked, int64(e.Seq)
		t.putQuestion(q)
	}
}

// questionsInterrupted marks questions as interrupted. They can still be answered, unless they were rejected.
func questionsInterrupted(t *tables, b events.QuestionInterrupted) {
	rejected := false
	t.changeQuestions(b.Question, func(_ int, q *Question) {
		q.Interrupted = true
		rejected = rejected || q.Status == QuestionRejected
	})
	if rejected {
		t.changeQuestions(b.Question, func(_ int, q *Question) { q.EngineReplied = true })
	}
}

// engineReplied takes OpenCode's word: the answers it has, or that the question was dismissed, which is also how it is
// told of a question that expired.
func (q *Question) engineReplied(i int, e events.Event, b opencode.QuestionReplied) {
	if q.EngineReplied = true; q.Status == QuestionExpired && b.Answers == nil {
		return
	}
	q.RepliedBy = cmp.Or(q.RepliedBy, e.Actor)
	if b.Answers == nil {
		q.Status = QuestionRejected
		return
	}
	q.Status = QuestionReplied
	if i < len(b.Answers) {
		q.Reply = encoded(b.Answers[i])
	}
}

// questionAnswered records the first answer of each question. A rejection rejects all questions that were asked
// together.
func questionAnswered(t *tables, e events.Event, b events.QuestionAnswered) error {
	if _, found := t.questions.Get(questionID(b.Question, b.Index)); !found {
		return fmt.Errorf("question %s has no index %d", b.Question, b.Index)
	}
	t.changeQuestions(b.Question, func(i int, q *Question) {
		q.EngineReplied = q.EngineReplied || b.Rejected && q.Interrupted
		switch {
		case q.Status != QuestionAsked:
		case b.Rejected:
			q.Status, q.RepliedBy = QuestionRejected, e.Actor
		case i == b.Index:
			q.Status, q.RepliedBy, q.Reply = QuestionReplied, e.Actor, encoded(b.Answers)
		}
	})
	return nil
}

// Answers is the reply as a list.
func (q Question) Answers() (answers []string, err error) {
	if q.Reply == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(q.Reply), &answers); err != nil {
		return nil, fmt.Errorf("read the answer to question %s/%d: %w", q.EngineQuestion, q.Index, err)
	}
	return answers, nil
}

// Questions lists questions in the order they were asked; an empty chat or status does not narrow.
func (m *Model) Questions(ctx context.Context, chat, status string) ([]Question, error) {
	return store.List[Question](ctx, m.Model, "questions", "SELECT * FROM questions"+narrowed(chat, status)+
		" ORDER BY position, idx", dbx.Params{"chat": chat, "status": status})
}
