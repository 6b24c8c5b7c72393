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

// Question is one of the questions the model asked together. The first answer to a question counts. A rejection rejects
// all questions that were asked together.
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
	Own            bool       `db:"own" json:"-"`                         // asked by the tool ask_person
	Position       int64      `db:"position" json:"position"`
}

// The statuses of a question.
const (
	QuestionAsked    = "asked"
	QuestionReplied  = "replied"
	QuestionRejected = "rejected"
	QuestionExpired  = events.Expired
)

// WaitsForPerson reports whether a person has to answer the question. The view waiting_questions says the same.
func (q Question) WaitsForPerson() bool { return q.Status == QuestionAsked && !q.Removed }

// questionTable is the table of questions while an event changes it.
type questionTable struct {
	*store.Table[Question]
	all *tables
}

// updateQuestions applies an event of a chat. The turn of a session waits for the answers to its questions.
func updateQuestions(all *tables, e events.Event, body any) error {
	t := questionTable{all.questions, all}
	switch b := body.(type) {
	case events.QuestionRequest:
		t.add(e, b, false)
	case events.QuestionRequested:
		t.add(e, b.Request(), true)
	case opencode.PartUpdated:
		t.endCall(b)
	case opencode.QuestionReplied:
		t.change(b.RequestID, func(i int, q *Question) { q.engineReplied(i, e, b) })
	case events.QuestionAnswered:
		return t.answer(e, b)
	case events.QuestionInterrupted:
		t.interrupt(b)
	case events.MessageSubmitted: // which answers interrupted questions
		t.change(b.Resumes, func(_ int, q *Question) { q.EngineReplied = true })
	case events.QuestionExpired:
		t.change(b.Question, func(_ int, q *Question) {
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

func (t questionTable) put(q Question) {
	t.Put(q)
	if q.Status == QuestionRejected && q.Call != "" {
		t.all.deny(q.Chat, q.EngineMessage)
	}
	t.all.setWaiting(q.Session, q.ID, q.WaitsForPerson() && !q.Interrupted)
}

// change changes every question of those asked together.
func (t questionTable) change(engineQuestion string, fn func(int, *Question)) {
	for i := 0; ; i++ {
		q, found := t.Get(questionID(engineQuestion, i))
		if !found {
			return
		}
		fn(i, &q)
		t.put(q)
	}
}

// askPerson is the name of the tool ask_person in OpenCode.
const askPerson = "pocketcoder_ask_person"

// OwnQuestionID returns the id of the question of a call of the tool ask_person.
func OwnQuestionID(session, engineMessage, call string) string {
	return "que_" + store.RecordID(session+"/"+engineMessage+"/"+call)
}

// endCall records that a call of the tool ask_person has returned its answer. A question without an answer stays: it
// expires, because its call was aborted.
func (t questionTable) endCall(b opencode.PartUpdated) {
	var state struct{ Status string }
	if b.Part.Tool != askPerson || json.Unmarshal(b.Part.State, &state) != nil ||
		state.Status != "completed" && state.Status != "error" {
		return
	}
	t.change(OwnQuestionID(b.SessionID, b.Part.MessageID, b.Part.CallID), func(_ int, q *Question) {
		q.EngineReplied = q.EngineReplied || q.Status != QuestionAsked
	})
}

func (t questionTable) add(e events.Event, b events.QuestionRequest, own bool) {
	for i, asked := range b.Questions {
		q, found := t.Get(questionID(b.ID, i))
		if found { // seen again after a reconnect
			continue
		}
		labels, descriptions := []string{}, []string{}
		for _, o := range asked.Options {
			labels, descriptions = append(labels, o.Label), append(descriptions, o.Description)
		}
		q.EngineQuestion, q.Index, q.Session, q.Chat = b.ID, int64(i), b.SessionID, e.Subject.ID
		q.EngineMessage, q.Call, q.Request = b.Tool.MessageID, b.Tool.CallID, b.ContentHash()
		q.Question, q.Header, q.Choices, q.Descriptions = asked.Question, asked.Header, encoded(labels), encoded(descriptions)
		q.Own = own
		q.Multiple, q.Custom, q.Reply, q.Status, q.Position = asked.Multiple, asked.Free(), "[]", QuestionAsked, int64(e.Seq)
		t.put(q)
	}
}

// interrupt marks questions as interrupted. They can still be answered, unless they were rejected.
func (t questionTable) interrupt(b events.QuestionInterrupted) {
	rejected := false
	t.change(b.Question, func(_ int, q *Question) {
		if events.IsElicitation(b.Question) && q.Status == QuestionAsked {
			q.Status, q.Reason = QuestionExpired, "the MCP server does not wait for it any more"
			return
		}
		q.Interrupted = true
		rejected = rejected || q.Status == QuestionRejected
	})
	if rejected {
		t.change(b.Question, func(_ int, q *Question) { q.EngineReplied = true })
	}
}

// engineReplied records what OpenCode reports: the answers that it has, or that the question was dismissed. An expired
// question is dismissed in OpenCode, too.
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

// answer records the first answer of each question. A rejection rejects all questions that were asked
// together.
func (t questionTable) answer(e events.Event, b events.QuestionAnswered) error {
	if _, found := t.Get(questionID(b.Question, b.Index)); !found {
		return fmt.Errorf("question %s has no index %d", b.Question, b.Index)
	}
	t.change(b.Question, func(i int, q *Question) {
		q.EngineReplied = q.EngineReplied || b.Rejected && q.Interrupted ||
			events.IsElicitation(b.Question) && (b.Rejected || i == b.Index)
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

// Questions lists questions in the order they were asked. An empty chat or status does not narrow the list.
func (m *Model) Questions(ctx context.Context, chat, status string) ([]Question, error) {
	by := dbx.Params{"chat": chat, "status": status}
	where := store.Narrowed(by)
	if status == QuestionAsked { // a parameter would not choose the index of the few questions that wait
		where += " AND status='asked'"
	}
	return store.List[Question](ctx, m.Model, "questions", "SELECT * FROM questions"+where+" ORDER BY position, idx", by)
}
