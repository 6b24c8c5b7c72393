package projections

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// Turn is a turn of a chat: a message, and all that follows until OpenCode is idle. Its state and its ending follow
// from the rows of its message, its session and its last step, in whatever order their events come. A turn that is over
// stays over, unless OpenCode goes on with it.
type Turn struct {
	store.Record                  // the id is that of the message; that of the session if OpenCode named none
	Chat         string           `db:"chat"`
	State        string           `db:"state"`   // of package turnstate
	Ending       turnstate.Ending `db:"ending"`  // empty while it is not over
	LeftIn       string           `db:"left_in"` // state in which OpenCode left it
	Answer       string           `db:"answer"`  // OpenCode's id of its last step so far, empty for none
	Stopped      bool             `db:"stopped"` // a stop was requested before its end
	Started      string           `db:"started"` // when its message was sent first; empty before
	Finished     string           `db:"finished"`
	Began        int64            `db:"began"` // sequences of these events, 0 for none
	Ended        int64            `db:"ended"`
	Position     int64            `db:"position"`
}

// IsOver reports whether the turn has ended.
func (u Turn) IsOver() bool { return turnstate.Ended(u.State) }

// updateTurns runs after the other tables of a chat. It computes the turns that are not over and have left the queue of
// their chat, the turn that the event is about, and the current one, whose last step may still change.
func updateTurns(t *tables, e events.Event, body any) error {
	c, found := t.chats.Get(e.Subject.ID)
	if !found || !t.mayChangeTurn(body) {
		return nil
	}
	own, _ := t.sessions.Get(c.Session)
	if own.ID != "" {
		t.putSession(own)
		own, _ = t.sessions.Get(c.Session)
	}
	var open []string
	running, queue := "", strings.Fields(c.Queue)
	for _, id := range t.turnsOf(c, e, body) {
		u, found := t.turns.Get(id)
		if !found || u.Chat != c.ID {
			continue
		}
		u = t.putTurn(t.follow(u, own, e, body))
		if !u.IsOver() && !slices.Contains(queue, id) {
			open = append(open, id)
		}
		switch {
		case u.IsOver() && u.Ended == int64(e.Seq) && (u.Began > 0 || u.State == turnstate.Failed):
			c.LastEnded = id
		case !u.IsOver() && u.State != turnstate.Queued:
			running = id
		}
	}
	if own.Runs && running == "" && !c.Removed {
		running = t.beginTurn(c, own)
		open = append(slices.DeleteFunc(open, func(id string) bool { return id == running }), running)
	}
	c.Open = strings.Join(open, " ")
	t.setCurrent(&c, running, append(open, queue...))
	t.chats.Put(c)
	return nil
}

// turnsOf returns the ids of the turns of a chat that an event may change.
func (t *tables) turnsOf(c Chat, e events.Event, body any) []string {
	ids, message := strings.Fields(c.Open), ""
	switch b := body.(type) {
	case events.MessageSubmitted:
		message = t.addTurn(e, b.Message)
	case events.MessageSending:
		message = b.Message
	case events.MessageWithdrawn:
		message = b.Message
	case events.MessageFailed:
		message = b.Message
	case events.Deleted:
		ids = append(ids, strings.Fields(c.Queue)...)
	}
	for _, id := range []string{message, c.Current} {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// mayChangeTurn reports whether the event with this body may change a turn. Those of a streaming answer do not.
func (t *tables) mayChangeTurn(body any) bool {
	switch b := body.(type) {
	case opencode.PartUpdated:
		m, _ := t.messages.Get(t.messageID(b.Part.MessageID))
		return m.EngineStatus != statusProcessing
	case opencode.SessionUpdated, opencode.OtherPayload, events.ExecStarted, events.ExecChanged:
		return false
	}
	return true
}

// addTurn adds the turn of a submitted message, and returns its id. It returns "" if the message was not added.
func (t *tables) addTurn(e events.Event, message string) string {
	u, found := t.turns.Get(message)
	if m, _ := t.messages.Get(message); found || m.First != int64(e.Seq) {
		return ""
	}
	u.Chat, u.State, u.Position = e.Subject.ID, turnstate.Queued, int64(e.Seq)
	t.turns.Put(u)
	return message
}

// follow returns a turn after an event, as far as OpenCode has ended it.
func (t *tables) follow(u Turn, own Session, e events.Event, body any) Turn {
	m, _ := t.messages.Get(u.ID)
	isDeleted := false
	switch b := body.(type) {
	case events.MessageSending:
		if b.Message == u.ID && u.Began == 0 {
			u.Began, u.Started = int64(e.Seq), t.tx.EventTime()
		}
	case events.AbortRequested:
		u.Stopped = u.Stopped || b.Session == "" && !u.IsOver()
	case events.Deleted:
		isDeleted = true
	}
	if !u.IsOver() {
		last := t.reported(own.Newest)
		if m.EngineMessage != "" && last.Parent >= m.EngineMessage || u.ID == own.ID && last.Position >= u.Began {
			u.Answer = own.Newest
		}
		u.LeftIn = turnstate.Prompt{IsWithdrawn: m.UserStatus == statusWithdrawn, IsWaiting: m.undelivered(),
			HasFailed: m.UserStatus == statusFailed, IsDeleted: isDeleted, Session: own.State(own.Runs)}.State(u.State)
	} else if u.LeftIn == turnstate.Lost && own.Outcome == turnstate.Completed && own.Newest == u.Answer {
		u.LeftIn = turnstate.Completed // OpenCode has ended it after all
	}
	return u
}

// putTurn stores a turn with the state and the ending that follow from its last step.
func (t *tables) putTurn(u Turn) Turn {
	before, _ := t.turns.Get(u.ID)
	step := t.reported(u.Answer).step()
	step.IsStopped = u.Stopped
	u.State, u.Ending = turnstate.End(u.LeftIn, step)
	switch {
	case !u.IsOver():
		u.Ended, u.Finished = 0, ""
	case u.Ended == 0:
		u.Ended, u.Finished = t.tx.Seq(), t.tx.EventTime()
	}
	t.turns.Put(u)
	if u != before {
		t.followRun(before, u)
	}
	return u
}

// beginTurn begins the turn of the message that OpenCode works on, and returns its id. A turn without a message that
// OpenCode named has the id of its session.
func (t *tables) beginTurn(c Chat, own Session) string {
	id, prompt := own.ID, cmp.Or(own.Awaiting, own.Unanswered)
	if prompt == "" && own.Processing != "" {
		prompt = t.reported(own.Newest).Parent
	}
	if prompt != "" {
		id = t.messageID(prompt)
	}
	u, found := t.turns.Get(id)
	if u.Chat = c.ID; !found {
		u.Position = t.tx.Seq()
	}
	if u.Began == 0 {
		u.Began, u.Started = t.tx.Seq(), t.tx.EventTime()
	}
	u.LeftIn, u.Stopped = own.State(own.Runs), false
	t.putTurn(u)
	return id
}

// setCurrent sets whose turn it is in a chat, since when, and its current turn: the one that runs, else the next one
// that is on its way to OpenCode, else the last one that ended.
func (t *tables) setCurrent(c *Chat, running string, waiting []string) {
	if c.Current = cmp.Or(running, c.LastEnded); running == "" && c.Outbox > 0 {
		for _, id := range waiting {
			if m, _ := t.messages.Get(id); m.undelivered() && m.Held == "" {
				c.Current = id
				break
			}
		}
	}
	turn := TurnUser
	if current, _ := t.turns.Get(c.Current); !current.IsOver() {
		turn = TurnAssistant
	}
	if c.Turn != turn {
		c.Turn, c.TurnPosition = turn, t.tx.Seq()
	}
}

// ChatTurn is a turn of a chat and its result.
type ChatTurn struct {
	Title   string     `db:"title"`
	Message string     `db:"message"` // that began it
	State   string     `db:"state"`   // of package turnstate
	Error   store.JSON `db:"error"`   // of the message, or of the newest answer; empty for none
	Answer  string     `db:"answer"`  // the last text of its last step
	// empty while the turn is not over
	Ending turnstate.Ending `db:"ending"`
	// in one line: a request that was denied without a reason, so that the model stopped; empty for none
	DeniedRequest string `db:"denied"`
}

// LastTurn returns the current turn of a chat, which is the last one if none is open, and whether there is one.
func (m *Model) LastTurn(ctx context.Context, chat string) (ChatTurn, bool, error) {
	return store.First[ChatTurn](ctx, m.Model, "turn of chat "+chat, `SELECT c.title, u.id AS message, u.state, u.ending,
			coalesce(nullif(m.error_payload, ''), a.error_payload, '') AS error,
			coalesce((SELECT data->>'$.text' FROM parts WHERE message=a.id AND data->>'$.type'='text' AND NOT removed ORDER BY id DESC LIMIT 1), '') AS answer,
			coalesce((SELECT message FROM permissions WHERE chat=c.id AND message_id=a.ai_engine_message_id AND status='denied' AND reason='' LIMIT 1), '') AS denied
		FROM chats c JOIN turns u ON u.id=c.current LEFT JOIN messages m ON m.id=u.id
		LEFT JOIN messages a ON a.chat=c.id AND a.ai_engine_message_id=u.answer AND u.answer<>''
		WHERE c.id={:chat} AND NOT c.removed`, dbx.Params{"chat": chat})
}

// UnfinishedTurns lists the sessions whose turn is running in OpenCode or waits there for a person. When OpenCode does
// not run one of them, its turn is lost.
func (m *Model) UnfinishedTurns(ctx context.Context) ([]Session, error) {
	return store.List[Session](ctx, m.Model, "unfinished turns", "SELECT * FROM sessions WHERE runs ORDER BY id", nil)
}

// CountRunningTurns counts the running turns of an engine by the account that owns the chat ("" for a chat without an
// owner). It leaves out turns that wait for a person's decision or answer: those may wait for days, and must not hold
// up other chats. It also leaves out turns whose tool call waits for a delegate: the delegate needs a turn to go on.
func (m *Model) CountRunningTurns(ctx context.Context, engine string) (map[string]int, error) {
	rows, err := store.List[struct {
		User string
		N    int
	}](ctx, m.Model, "running turns", `SELECT coalesce(c.user,'') AS user, count(*) AS n FROM sessions s LEFT JOIN chats c ON c.id=s.chat
		WHERE s.runs AND s.waiting='' AND s.parent='' AND s.engine={:engine} AND NOT EXISTS (
			SELECT 1 FROM chats w JOIN delegations d ON d.worker=w.id AND d.result='' WHERE w.parent=s.chat AND w.parent<>'' AND w.awaited)
		GROUP BY 1`, dbx.Params{"engine": engine})
	if err != nil {
		return nil, err
	}
	turns := map[string]int{}
	for _, r := range rows {
		turns[r.User] = r.N
	}
	return turns, nil
}

// UnfinishedStep returns the newest assistant message of a chat's own session, and whether the turn goes on after it,
// or would have gone on if OpenCode had not gone away. A person's denial without a reason ends it.
func (m *Model) UnfinishedStep(ctx context.Context, chat string) (Message, bool, error) {
	return store.First[Message](ctx, m.Model, "unfinished step of "+chat, `SELECT m.* FROM messages m WHERE m.id=(
			SELECT n.id FROM chats c JOIN messages n ON n.chat=c.id AND n.session=c.ai_engine_session_id
			WHERE c.id={:chat} AND n.role='assistant' AND NOT n.removed ORDER BY n.position DESC LIMIT 1)
		AND (m.ending='' OR m.engine_message_status='failed' AND m.ending='lost')`,
		dbx.Params{"chat": chat})
}

// NoFiles says why an undo of a message without FilesSince puts no file back.
const NoFiles = "No file was put back: the turns changed none, or the workspace is not in a Git repository."

// HasMessage reports whether the conversation of a chat has a message, by OpenCode's id.
func (m *Model) HasMessage(ctx context.Context, chat, message string) (bool, error) {
	_, found, err := store.First[struct {
		ID string `db:"id"`
	}](ctx, m.Model, "message "+message, `SELECT m.id FROM chats c JOIN messages m ON m.chat=c.id AND m.session=c.ai_engine_session_id
		WHERE c.id={:chat} AND m.ai_engine_message_id={:message} AND NOT m.removed`,
		dbx.Params{"chat": chat, "message": message})
	return found, err
}

// FilesSince returns the sorted absolute paths of the files that a revert of a message, by OpenCode's id, restores.
// They are the files that changed since the message, by any program.
func (m *Model) FilesSince(ctx context.Context, chat, message string) ([]string, error) {
	rows, err := store.List[struct {
		Path string `db:"path"`
	}](ctx, m.Model, "files of chat "+chat, `SELECT DISTINCT f.value AS path
		FROM messages m JOIN parts p ON p.message=m.id AND p.data->>'$.type'='patch' AND NOT p.removed, json_each(p.data, '$.files') f
		WHERE m.chat={:chat} AND m.ai_engine_message_id>={:message} AND NOT m.removed ORDER BY path`,
		dbx.Params{"chat": chat, "message": message})
	files := make([]string, len(rows))
	for i, row := range rows {
		files[i] = row.Path
	}
	return files, err
}

// ChangedFile is a file that turns of a chat changed.
type ChangedFile struct {
	Path   string // absolute
	Before string // OpenCode's snapshot before the first step that changed it
	After  string // OpenCode's snapshot after the last step that changed it, empty if that step was cut off
}

// ChangesSince returns the files that the own conversation of a chat changed since a message, by OpenCode's id.
func (m *Model) ChangesSince(ctx context.Context, chat, message string) (all []ChangedFile, err error) {
	rows, err := store.List[struct {
		Path   string `db:"path"`
		Before string `db:"before"`
		After  string `db:"after"`
	}](ctx, m.Model, "changes of chat "+chat, `SELECT f.value AS path, coalesce(p.data->>'$.hash', '') AS before,
			coalesce((SELECT e.data->>'$.snapshot' FROM parts e WHERE e.message=m.id AND e.data->>'$.type'='step-finish'
				AND NOT e.removed ORDER BY e.id DESC LIMIT 1), '') AS after
		FROM chats c JOIN messages m ON m.chat=c.id AND m.session=c.ai_engine_session_id
			JOIN parts p ON p.message=m.id AND p.data->>'$.type'='patch' AND NOT p.removed, json_each(p.data, '$.files') f
		WHERE c.id={:chat} AND m.ai_engine_message_id>={:message} AND NOT m.removed ORDER BY m.ai_engine_message_id, p.id`,
		dbx.Params{"chat": chat, "message": message})
	for _, row := range rows {
		i := slices.IndexFunc(all, func(f ChangedFile) bool { return f.Path == row.Path })
		if i < 0 {
			all = append(all, ChangedFile{Path: row.Path, Before: row.Before, After: row.After})
		} else {
			all[i].After = row.After
		}
	}
	return all, err
}
