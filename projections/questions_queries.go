package projections

import (
	"context"

	"github.com/pocketbase/dbx"

	"pocketcoder/projections/store"
)

// Questions lists questions in the order they were asked; an empty chat or status does not narrow.
func (m *Model) Questions(ctx context.Context, chat, status string) ([]Question, error) {
	return store.List[Question](ctx, m.Model, "questions", "SELECT * FROM questions"+narrowed(chat, status)+" ORDER BY position, idx", dbx.Params{"chat": chat, "status": status})
}

// OpenQuestion is a question with where its session works.
type OpenQuestion struct {
	Question
	Directory string `db:"directory" json:"directory"`
	Engine    string `db:"engine" json:"engine"`
}

const selectOpenQuestions = "SELECT q.*, coalesce(s.directory,'') AS directory, coalesce(s.engine,'') AS engine FROM questions q LEFT JOIN sessions s ON s.id=q.session_id WHERE "

// QuestionsOf returns the questions that were asked together, in order. An unknown id has none.
func (m *Model) QuestionsOf(ctx context.Context, engineQuestion string) ([]OpenQuestion, error) {
	return store.List[OpenQuestion](ctx, m.Model, "questions "+engineQuestion, selectOpenQuestions+"q.ai_engine_question_id={:id} ORDER BY q.idx", dbx.Params{"id": engineQuestion})
}

// PendingQuestions lists what waits for an answer, oldest first.
func (m *Model) PendingQuestions(ctx context.Context) ([]OpenQuestion, error) {
	return store.List[OpenQuestion](ctx, m.Model, "pending questions", selectOpenQuestions+"q.status='asked' ORDER BY q.position, q.idx", nil)
}

// AnsweredUnreplied lists questions that OpenCode can be answered: all of those asked together have an answer, or they
// were rejected. They come together, in order.
func (m *Model) AnsweredUnreplied(ctx context.Context) ([]OpenQuestion, error) {
	return store.List[OpenQuestion](ctx, m.Model, "answered questions", selectOpenQuestions+`NOT q.engine_replied AND q.status <> 'expired'
		AND NOT EXISTS (SELECT 1 FROM questions o WHERE o.ai_engine_question_id=q.ai_engine_question_id AND o.position=q.position AND o.status='asked')
		ORDER BY q.position, q.idx`, nil)
}

// DeadQuestion is an unanswered question that needs no answer any more, and why. When it was not interrupted, OpenCode may
// still be about to say what became of it.
type DeadQuestion struct {
	OpenQuestion
	Why string `db:"why"`
}

// DeadQuestions lists them. A tool call that is over without an answer was aborted: an answer is heard of before the end.
func (m *Model) DeadQuestions(ctx context.Context) ([]DeadQuestion, error) {
	return store.List[DeadQuestion](ctx, m.Model, "dead questions", `SELECT * FROM (
		SELECT q.*, coalesce(s.directory,'') AS directory, coalesce(s.engine,'') AS engine, CASE
			WHEN c.removed THEN 'the chat was deleted'
			WHEN s.removed THEN 'its session was deleted'
			WHEN q.interrupted THEN (SELECT 'asked again as '||o.ai_engine_question_id FROM questions o
				WHERE o.chat=q.chat AND o.request=q.request AND o.position>q.position AND NOT o.interrupted ORDER BY o.position LIMIT 1)
			WHEN EXISTS (SELECT 1 FROM messages m JOIN parts p ON p.message=m.id
				WHERE q.message_id<>'' AND m.ai_engine_message_id=q.message_id AND json_extract(p.data,'$.callID')=q.call_id
				AND json_extract(p.data,'$.state.status') IN ('completed','error')) THEN 'the turn was aborted'
			END AS why
		FROM questions q JOIN chats c ON c.id=q.chat LEFT JOIN sessions s ON s.id=q.session_id WHERE q.status='asked')
		WHERE why IS NOT NULL ORDER BY position, idx`, nil)
}
