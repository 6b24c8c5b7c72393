package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// This file lists the open effects: messages that OpenCode must still receive, decisions and answers that OpenCode has
// not confirmed, and aborts, reverts, forks and omissions that it has not carried out. For a comparison with OpenCode,
// it also lists messages without an answer, and requests and questions that wait for a person.
//
// Each list follows from the read models alone, so a caller needs no state of its own and loses nothing in a crash. An
// effect stays in its list until the read models include an event that makes the effect done or unnecessary. Exception:
// an approved request that OpenCode forgot stays in DecidedRequests until the model makes the same call again, or the
// request expires. The outbox resumes its turn once.

// PendingMessage is a person's message on its way to OpenCode. Submitted is empty, because many large messages may
// wait: see SubmittedParts. EngineParts holds the ids of the parts in OpenCode, once they are decided.
type PendingMessage struct {
	Message
	ChatAgent     string `db:"chat_agent"`
	ChatTitle     string `db:"chat_title"`
	ChatTitled    bool   `db:"chat_titled"`    // the title does not follow that of the session
	ChatUser      string `db:"chat_user"`      // the chat's owner
	ChatDirectory string `db:"chat_directory"` // where a delegate works; empty for the workspace
	ChatParent    string `db:"chat_parent"`    // of a delegate
	ChatRoot      string `db:"chat_root"`      // of the tree of its delegates
	Engine        string `db:"engine"`
	Bound         string `db:"bound"`     // the chat's own session; empty when it has none yet
	Directory     string `db:"directory"` // of that session
	Free          bool   `db:"free"`      // no turn is running there but this message's own
	// sequences of the last messages that were sent, of the chat and of all chats of its owner
	ChatStarted int64 `db:"chat_started"`
	UserStarted int64 `db:"user_started"`
}

var selectOutbox = "SELECT " + outboxColumns() + `, c.agent AS chat_agent, c.title AS chat_title, c.titled AS chat_titled, c.user AS chat_user, c.directory AS chat_directory, c.parent AS chat_parent, c.root AS chat_root, c.engine AS engine,
		c.started AS chat_started, (SELECT max(started) FROM chats WHERE user=c.user) AS user_started,
		c.ai_engine_session_id AS bound, coalesce(s.directory,'') AS directory,
		coalesce(NOT s.runs AND s.awaiting IN ('', m.ai_engine_message_id), 1) AS free
	FROM messages m JOIN chats c ON c.id=m.chat AND NOT c.removed LEFT JOIN sessions s ON s.id=c.ai_engine_session_id `

// outboxColumns returns the columns of the messages m but submitted.
func outboxColumns() string {
	columns := slices.DeleteFunc(store.Columns[Message](), func(c string) bool { return c == "submitted" })
	return "m." + strings.Join(columns, ",m.")
}

// SubmittedParts returns the parts of a message as they were submitted, or changed by a person since.
func (m *Model) SubmittedParts(ctx context.Context, message string) (parts []events.Part, err error) {
	row, _, err := store.First[struct{ Submitted store.JSON }](ctx, m.Model, "parts of message "+message,
		"SELECT submitted FROM messages WHERE id={:id}", dbx.Params{"id": message})
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal([]byte(row.Submitted), &parts); err != nil {
		return nil, fmt.Errorf("read the parts of message %s: %w", message, err)
	}
	return parts, nil
}

// PendingMessages lists messages that are pending or sending, in log order. It leaves out messages of deleted chats.
func (m *Model) PendingMessages(ctx context.Context) ([]PendingMessage, error) {
	return store.List[PendingMessage](ctx, m.Model, "outbox", selectOutbox+
		"WHERE m.user_message_status IN ('pending','sending') ORDER BY m.position", nil)
}

// ReportedMessage is a message of a user that OpenCode reported and that belongs to no submitted message.
type ReportedMessage struct {
	Session       string     `db:"session"`
	EngineMessage string     `db:"ai_engine_message_id"`
	Parts         store.JSON `db:"parts"` // list of the ids of its parts
}

// PartIDs returns OpenCode's ids of the parts, in order.
func (r ReportedMessage) PartIDs() (ids []string) {
	_ = json.Unmarshal([]byte(r.Parts), &ids) // the query makes the list
	return ids
}

// ReportedMessage returns the reported message of a chat whose id ends with tail.
func (m *Model) ReportedMessage(ctx context.Context, chat, tail string) (ReportedMessage, bool, error) {
	return store.First[ReportedMessage](ctx, m.Model, "reported messages of "+chat, `SELECT session, ai_engine_message_id,
			(SELECT json_group_array(id) FROM (SELECT id FROM parts p WHERE p.message=m.id AND NOT p.removed ORDER BY id)) AS parts
		FROM messages m WHERE chat={:chat} AND role='user' AND submitted='[]' AND NOT removed
			AND substr(ai_engine_message_id, -length({:tail}))={:tail} ORDER BY position LIMIT 1`,
		dbx.Params{"chat": chat, "tail": tail})
}

// UnansweredMessages lists messages that were delivered and have no answer yet.
func (m *Model) UnansweredMessages(ctx context.Context) ([]PendingMessage, error) {
	return store.List[PendingMessage](ctx, m.Model, "unanswered messages", selectOutbox+`
		WHERE m.ai_engine_message_id IN (SELECT awaiting FROM sessions WHERE runs AND processing='' AND awaiting<>'')
		AND m.user_message_status='delivered' ORDER BY m.position`, nil)
}

// PendingRequest is a permission request with the directory and the engine of its session. OpenCode needs the directory
// in a reply.
type PendingRequest struct {
	Permission
	Directory string `db:"directory"`
	Engine    string `db:"engine"`
}

const selectPendingRequests = "SELECT p.*, coalesce(s.directory,'') AS directory, coalesce(s.engine,'') AS engine FROM permissions p LEFT JOIN sessions s ON s.id=p.session_id WHERE "

// PendingRequests lists the requests of OpenCode that wait for a decision, interrupted ones too, oldest first.
func (m *Model) PendingRequests(ctx context.Context) ([]PendingRequest, error) {
	return store.List[PendingRequest](ctx, m.Model, "pending asks", selectPendingRequests+
		"p.status='draft' AND NOT p.replied ORDER BY p.asked_seq", nil)
}

// DecidedRequests lists the requests that were decided and that OpenCode has not confirmed, in the order of the
// decisions. It leaves out those that OpenCode forgot and that need nothing more: they were denied, or the approval was
// used.
func (m *Model) DecidedRequests(ctx context.Context) ([]PendingRequest, error) {
	return store.List[PendingRequest](ctx, m.Model, "decided asks", selectPendingRequests+
		"p.status IN ('authorized','denied') AND NOT p.replied AND NOT (p.interrupted AND (p.status='denied' OR p.grant_used)) ORDER BY p.decided_seq", nil)
}

// InterruptedTogether lists the ids of the authorized requests that OpenCode has forgotten and that came from the same
// answer as p, in the order of the decisions. p is one of them.
func (m *Model) InterruptedTogether(ctx context.Context, p Permission) ([]string, error) {
	rows, err := store.List[struct {
		ID string `db:"ai_engine_permission_id"`
	}](ctx, m.Model, "requests of answer "+p.EngineMessage, `SELECT ai_engine_permission_id FROM permissions
		WHERE chat={:chat} AND session_id={:session} AND message_id={:message} AND status='authorized' AND interrupted ORDER BY decided_seq`,
		dbx.Params{"chat": p.Chat, "session": p.Session, "message": p.EngineMessage})
	var ids []string
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids, err
}

// PendingQuestion is a question with the directory and the engine of its session.
type PendingQuestion struct {
	Question
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

// PendingEffects lists the aborts, reverts, forks and omissions that an engine has not carried out, in log order.
func (m *Model) PendingEffects(ctx context.Context, engine string) ([]Effect, error) {
	return store.List[Effect](ctx, m.Model, "open effects",
		"SELECT e.* FROM effects e JOIN chats c ON c.id=e.chat WHERE e.state='open' AND c.engine={:engine} ORDER BY e.position", dbx.Params{"engine": engine})
}

// IsAborting reports whether an abort of a chat is open.
func (m *Model) IsAborting(ctx context.Context, chat string) (bool, error) {
	_, found, err := store.First[Effect](ctx, m.Model, "open aborts",
		"SELECT * FROM effects WHERE state='open' AND chat={:chat} AND kind='abort'", dbx.Params{"chat": chat})
	return found, err
}
