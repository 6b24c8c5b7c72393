package projections

import (
	"context"

	"github.com/pocketbase/dbx"
	"pocketcoder/projections/store"
)

// PendingQuestion is a question with the directory and the engine of its session.
type PendingQuestion struct {
	PendingQuestion
	Directory string `db:"directory"`
	Engine    string `db:"engine"`
}

const selectPendingQuestions = "SELECT q.*, coalesce(s.directory,'') AS directory, coalesce(s.engine,'') AS engine FROM questions q LEFT JOIN sessions s ON s.id=q.session_id WHERE "

// QuestionsOf returns the questions that were asked together, in order. An unknown id has none.
func (m *Model) QuestionsOf(ctx context.Context, engineQuestion string) ([]PendingQuestion, error) {
	return store.List[PendingQuestion](ctx, m.Model, "questions "+engineQuestion,
		selectPendingQuestions+"q.ai_engine_question_id={:id} ORDER BY q.idx", dbx.Params{"id": engineQuestion})
}

// PendingQuestions lists the questions that wait for an answer, oldest first.
func (m *Model) PendingQuestions(ctx context.Context) ([]PendingQuestion, error) {
	return store.List[PendingQuestion](ctx, m.Model, "pending questions",
		selectPendingQuestions+"q.status='asked' ORDER BY q.position, q.idx", nil)
}

// AnsweredQuestions lists the questions whose answers OpenCode can receive: all questions that were asked together are
// answered or rejected. Questions that were asked together are neighbours, in order. A call of ask_person takes its
// answer itself, unless it was interrupted.
func (m *Model) AnsweredQuestions(ctx context.Context) ([]PendingQuestion, error) {
	return store.List[PendingQuestion](ctx, m.Model, "answered questions", selectPendingQuestions+`NOT q.engine_replied AND q.status <> 'expired' AND (q.interrupted OR NOT q.own)
		AND NOT EXISTS (SELECT 1 FROM questions o WHERE o.ai_engine_question_id=q.ai_engine_question_id AND o.position=q.position AND o.status='asked')
		ORDER BY q.position, q.idx`, nil)
}

// OwnQuestions lists the questions of ask_person whose calls have not returned and were not interrupted, oldest first.
func (m *Model) OwnQuestions(ctx context.Context) ([]PendingQuestion, error) {
	return store.List[PendingQuestion](ctx, m.Model, "questions of ask_person", selectPendingQuestions+
		"NOT q.engine_replied AND q.status <> 'expired' AND q.own AND NOT q.interrupted ORDER BY q.position, q.idx", nil)
}

// ObsoleteQuestion is an unanswered question that needs no answer any more, with the reason. If it was not interrupted,
// OpenCode may still report its end.
type ObsoleteQuestion struct {
	PendingQuestion
	Why string `db:"why"`
	// a question of ask_person whose call ended although the turn was not aborted: a person can still answer
	Answerable bool `db:"answerable"`
}

// ObsoleteQuestions lists unanswered questions that need no answer any more. A tool call that ended without an answer
// was aborted.
func (m *Model) ObsoleteQuestions(ctx context.Context) ([]ObsoleteQuestion, error) {
	return store.List[ObsoleteQuestion](ctx, m.Model, "dead questions", `SELECT * FROM (
		SELECT q.*, coalesce(s.directory,'') AS directory, coalesce(s.engine,'') AS engine, CASE
			WHEN c.removed THEN 'the chat was deleted'
			WHEN s.removed THEN 'its session was deleted'
			WHEN q.interrupted THEN (SELECT 'asked again as '||o.ai_engine_question_id FROM questions o
				WHERE o.chat=q.chat AND o.request=q.request AND o.position>q.position AND NOT o.interrupted ORDER BY o.position LIMIT 1)
			WHEN EXISTS (SELECT 1 FROM messages m JOIN parts p ON p.message=m.id
				WHERE q.message_id<>'' AND m.ai_engine_message_id=q.message_id AND json_extract(p.data,'$.callID')=q.call_id
				AND json_extract(p.data,'$.state.status') IN ('completed','error')) THEN 'the turn was aborted'
			END AS why,
			q.own AND NOT q.interrupted AND NOT c.removed AND NOT coalesce(s.removed,0) AND NOT EXISTS (
				SELECT 1 FROM effects e WHERE e.chat=q.chat AND e.kind='abort' AND e.position>q.position) AS answerable
		FROM questions q JOIN chats c ON c.id=q.chat LEFT JOIN sessions s ON s.id=q.session_id WHERE q.status='asked')
		WHERE why IS NOT NULL ORDER BY position, idx`, nil)
}

// AskedTogether groups the questions that were asked together, in order.
func AskedTogether(all []PendingQuestion) (groups [][]PendingQuestion) {
	for _, q := range all {
		if n := len(groups); n > 0 && groups[n-1][0].EngineQuestion == q.EngineQuestion {
			groups[n-1] = append(groups[n-1], q)
		} else {
			groups = append(groups, []PendingQuestion{q})
		}
	}
	return groups
}

// AnswersTo returns the answers to questions that were asked together, and whether they were rejected.
func AnswersTo(group []PendingQuestion) (all [][]string, rejected bool, err error) {
	for _, q := range group {
		answers, err := q.Answers()
		if err != nil {
			return nil, false, err
		}
		all, rejected = append(all, answers), rejected || q.Status == QuestionRejected
	}
	return all, rejected, nil
}
