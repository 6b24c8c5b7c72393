package projections

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
)

// Question is one of the questions the model asked together.
type Question struct {
	Record
	EngineQuestion string `db:"ai_engine_question_id" json:"ai_engine_question_id"`
	Index          int64  `db:"idx" json:"idx"` // which of those asked together, from 0
	Session        string `db:"session_id" json:"session_id"`
	Call           string `db:"call_id" json:"call_id"`
	Chat           string `db:"chat" json:"chat"`
	Question       string `db:"question" json:"question"`
	Header         string `db:"header" json:"header"`
	Choices        JSON   `db:"choices" json:"choices"`           // list of labels
	Descriptions   JSON   `db:"descriptions" json:"descriptions"` // list, one for each choice
	Multiple       bool   `db:"multiple" json:"multiple"`
	Reply          JSON   `db:"reply" json:"reply"`   // list of labels or free text
	Status         string `db:"status" json:"status"` // asked, replied, rejected, expired
	RepliedBy      string `db:"replied_by" json:"replied_by"`
	EngineReplied  bool   `db:"engine_replied" json:"engine_replied"`
	Position       int64  `db:"position" json:"position"`
}

// What has become of a question.
const (
	QuestionAsked    = "asked"
	QuestionReplied  = "replied"
	QuestionRejected = "rejected"
	QuestionExpired  = "expired"
)

type questions struct{}

func (questions) Name() string        { return "questions" }
func (questions) Schema() string      { return schema("questions") }
func (questions) Scope() events.Scope { return events.ScopeChat }

func (questions) Apply(tx *Tx, e events.Event, body any) error {
	switch b := body.(type) {
	case events.QuestionAsk:
		questionsAsked(tx, e, b)
	case ocAnswer:
		tx.changeQuestions(b.RequestID, func(i int, q *Question) { q.engineReplied(i, e, b) })
	case events.QuestionAnswered:
		return questionAnswered(tx, e, b)
	case events.QuestionExpired:
		tx.changeQuestions(b.Question, func(_ int, q *Question) {
			if !q.EngineReplied {
				q.Status = QuestionExpired
			}
		})
	}
	return nil
}

func questionID(engineQuestion string, index int) string {
	return RecordID(engineQuestion + "/" + strconv.Itoa(index))
}

// changeQuestions changes every question of those asked together.
func (tx *Tx) changeQuestions(engineQuestion string, change func(int, *Question)) {
	for i := 0; ; i++ {
		q, found := tx.questions.get(questionID(engineQuestion, i))
		if !found {
			return
		}
		change(i, &q)
		tx.questions.put(q)
	}
}

func questionsAsked(tx *Tx, e events.Event, b events.QuestionAsk) {
	for i, asked := range b.Questions {
		q, found := tx.questions.get(questionID(b.ID, i))
		if found { // seen again after a reconnect
			continue
		}
		labels, descriptions := []string{}, []string{}
		for _, o := range asked.Options {
			labels, descriptions = append(labels, o.Label), append(descriptions, o.Description)
		}
		q.EngineQuestion, q.Index, q.Session, q.Call, q.Chat = b.ID, int64(i), b.SessionID, b.Tool.CallID, e.Subject.ID
		q.Question, q.Header, q.Choices, q.Descriptions = asked.Question, asked.Header, encoded(labels), encoded(descriptions)
		q.Multiple, q.Reply, q.Status, q.Position = asked.Multiple, "[]", QuestionAsked, int64(e.Seq)
		tx.questions.put(q)
	}
}

// engineReplied takes OpenCode's word: the answers it has, or that the question was dismissed.
func (q *Question) engineReplied(i int, e events.Event, b ocAnswer) {
	q.EngineReplied = true
	if q.RepliedBy == "" {
		q.RepliedBy = e.Actor
	}
	if b.Answers == nil {
		q.Status = QuestionRejected
		return
	}
	q.Status = QuestionReplied
	if i < len(b.Answers) {
		q.Reply = encoded(b.Answers[i])
	}
}

// questionAnswered keeps the first answer of each question; a rejection rejects all asked together.
func questionAnswered(tx *Tx, e events.Event, b events.QuestionAnswered) error {
	if _, found := tx.questions.get(questionID(b.Question, b.Index)); !found {
		return fmt.Errorf("question %s has no index %d", b.Question, b.Index)
	}
	tx.changeQuestions(b.Question, func(i int, q *Question) {
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

// Questions lists questions in the order they were asked; an empty chat or status does not narrow.
func (m *Model) Questions(ctx context.Context, chat, status string) ([]Question, error) {
	return list[Question](ctx, m, "questions", "SELECT * FROM questions"+narrowed(chat, status)+" ORDER BY position, idx", dbx.Params{"chat": chat, "status": status})
}

// OpenQuestion is a question with where its session works.
type OpenQuestion struct {
	Question
	Directory string `db:"directory" json:"directory"`
	Engine    string `db:"engine" json:"engine"`
}

const selectOpenQuestions = "SELECT q.*, coalesce(s.directory,'') AS directory, coalesce(s.engine,'') AS engine FROM questions q LEFT JOIN sessions s ON s.id=q.session_id WHERE "

// PendingQuestions lists what waits for an answer, oldest first.
func (m *Model) PendingQuestions(ctx context.Context) ([]OpenQuestion, error) {
	return list[OpenQuestion](ctx, m, "pending questions", selectOpenQuestions+"q.status='asked' ORDER BY q.position, q.idx", nil)
}

// AnsweredUnreplied lists questions that OpenCode can be answered: all of those asked together have an answer, or they
// were rejected. They come together, in order.
func (m *Model) AnsweredUnreplied(ctx context.Context) ([]OpenQuestion, error) {
	return list[OpenQuestion](ctx, m, "answered questions", selectOpenQuestions+`NOT q.engine_replied AND q.status <> 'expired'
		AND NOT EXISTS (SELECT 1 FROM questions o WHERE o.ai_engine_question_id=q.ai_engine_question_id AND o.position=q.position AND o.status='asked')
		ORDER BY q.position, q.idx`, nil)
}
