package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// memory is the state that OpenCode holds only in memory, by id.
type memory struct {
	busy      map[string]client.Status // status of the sessions that are not idle
	requests  map[string]json.RawMessage
	questions map[string]json.RawMessage

	// unknown are directories whose requests OpenCode cannot list. It answers 400 while a request for glob, grep or
	// webfetch without optional arguments is pending there (behaviour list-400). So it has not forgotten the requests.
	unknown map[string]bool
}

func (in *Ingest) readMemory(ctx context.Context) (memory, error) {
	held := memory{map[string]client.Status{}, map[string]json.RawMessage{}, map[string]json.RawMessage{},
		map[string]bool{}}
	directories := in.tracker.directories()
	directories[in.Directory] = true
	for dir := range directories {
		if err := in.readStatuses(ctx, dir, held.busy); err != nil {
			return held, err
		}
		requests, err := in.Current().PermissionRequests(ctx, dir)
		if refusal := (*client.Error)(nil); errors.As(err, &refusal) && refusal.Status == http.StatusBadRequest {
			held.unknown[dir] = true
		} else if err != nil {
			return held, err
		}
		questions, err := in.Current().QuestionRequests(ctx, dir)
		if err != nil {
			return held, err
		}
		for _, request := range requests {
			held.requests[request.ID] = request.Raw
		}
		for _, question := range questions {
			held.questions[question.ID] = question.Raw
		}
	}
	return held, nil
}

// readStatuses adds the sessions of a directory that are not idle to busy.
func (in *Ingest) readStatuses(ctx context.Context, directory string, busy map[string]client.Status) error {
	found, err := in.Current().Statuses(ctx, directory)
	maps.Copy(busy, found)
	return err
}

// comparison compares the read model with what OpenCode holds in memory, and collects the missing events.
type comparison struct {
	*Ingest
	memory
	missing []events.Event
}

// reconciled adds an OpenCode event that was missed. It has a new id, because OpenCode's id is not known.
func (c *comparison) reconciled(session, typ string, properties any) error {
	s, ok := c.tracker.get(session)
	if !ok {
		return nil // the stream will bring session.created, and then the events of the session
	}
	// An approval covers the exact bytes of a request, and the stream does not escape <, > and &.
	body, err := events.Encode(properties)
	if err != nil {
		return err
	}
	e, err := events.NewOpenCode(s.chat, c.Engine, events.NewID(), -1, events.OpenCode{Type: typ, Properties: body})
	if err != nil {
		return err
	}
	c.missing = append(c.missing, e.Reconciled())
	return nil
}

func (c *comparison) record(chat string, d events.Data) error {
	e, err := events.New(chat, events.EngineActor(c.Engine), d)
	if err != nil {
		return err
	}
	c.missing = append(c.missing, e.Reconciled())
	return nil
}

// statuses corrects the status of each session: busy, idle, or waiting to retry. A turn that stopped between two steps
// is lost before its session becomes idle: readers treat the turn of an idle session as completed.
func (c *comparison) statuses(ctx context.Context) error {
	known, err := c.Model.Sessions(ctx, c.Engine)
	if err != nil {
		return err
	}
	unanswered, err := c.Model.UnansweredMessages(ctx)
	if err != nil {
		return err
	}
	isAnswered := func(s projections.Session) bool { // else the turn goes on with the message, which is sent again
		return !slices.ContainsFunc(unanswered, func(m projections.PendingMessage) bool { return m.Session == s.ID })
	}
	for _, s := range known {
		status, busy := c.busy[s.ID]
		if !busy {
			status = client.Status{Type: "idle", Raw: json.RawMessage(`{"type":"idle"}`)}
		}
		if status.Type == s.Status {
			continue
		}
		if !busy && isAnswered(s) {
			if err := c.loseBetweenSteps(ctx, s); err != nil {
				return err
			}
		}
		if err := c.reconciled(s.ID, "session.status", map[string]any{"sessionID": s.ID, "status": status.Raw}); err != nil {
			return err
		}
	}
	return nil
}

// turns loses the turns that OpenCode no longer runs. First it resends messages whose turns have not begun.
func (c *comparison) turns(ctx context.Context) error {
	begun, err := c.resend(ctx)
	if err != nil {
		return err
	}
	return c.loseTurns(ctx, func(s projections.Session) bool { return !begun[s.ID] })
}

// loseTurns records turn.lost for unfinished turns, of those that match, that OpenCode does not run. First it keeps the
// text of their answers.
func (c *comparison) loseTurns(ctx context.Context, matches func(projections.Session) bool) error {
	unfinished, err := c.Model.UnfinishedTurns(ctx)
	if err != nil {
		return err
	}
	for _, s := range unfinished {
		if _, busy := c.busy[s.ID]; busy || s.Engine != c.Engine || !matches(s) {
			continue
		}
		if err := c.keepText(ctx, s); err != nil {
			c.Logger.Warn("keep the text of a lost turn", "chat", s.Chat, "err", err)
		}
		if err := c.record(s.Chat, events.TurnLost{Session: s.ID}); err != nil {
			return err
		}
	}
	return nil
}

// loseBetweenSteps records turn.lost for a session that stopped after the results of all tool calls of an answer and
// before the next step. Everything that OpenCode began is finished there. Only the finish reason of the answer shows
// that the turn is not over.
func (c *comparison) loseBetweenSteps(ctx context.Context, s projections.Session) error {
	step, goesOn, err := c.Model.UnfinishedStep(ctx, s.Chat)
	if err != nil || !goesOn || step.Session != s.ID || step.EngineStatus != turnstate.Completed ||
		step.Finish != "tool-calls" {
		return err
	}
	return c.record(s.Chat, events.TurnLost{Session: s.ID})
}

// resend sends messages again that OpenCode accepted and has not answered, each once. OpenCode accepts a message before
// it stores it (behaviour accepts-before-storing), so it may have lost the message. The ids are the same, so OpenCode
// runs the message once (behaviour message-ids).
// resend skips the messages of before a loss. It returns the sessions whose turns have begun.
func (c *comparison) resend(ctx context.Context) (map[string]bool, error) {
	unanswered, err := c.Model.UnansweredMessages(ctx)
	if err != nil {
		return nil, err
	}
	loss := uint64(0)
	if c.Uncertain != nil {
		loss = c.Uncertain()
	}
	begun := map[string]bool{}
	for _, m := range unanswered {
		_, busy := c.busy[m.Session]
		if busy || m.Engine != c.Engine || c.resent[m.ID] || uint64(m.First) < loss {
			continue
		}
		accepted, err := c.Resend(ctx, m)
		if err != nil {
			return nil, err
		}
		c.resent[m.ID], begun[m.Session] = true, accepted
	}
	return begun, nil
}

// permissions adds requests that were missed, and resolves those that OpenCode no longer has.
func (c *comparison) permissions(ctx context.Context) error {
	waiting, err := c.Model.PendingRequests(ctx)
	if err != nil {
		return err
	}
	decided, err := c.Model.DecidedRequests(ctx)
	if err != nil {
		return err
	}
	for _, p := range append(waiting, decided...) {
		if _, held := c.memory.requests[p.EnginePermission]; held || p.Interrupted || p.Engine != c.Engine ||
			c.unknown[p.Directory] {
			continue
		}
		if err := c.resolveMissing(ctx, p); err != nil {
			return err
		}
	}
	for id, raw := range c.memory.requests {
		if _, known, err := c.Model.Permission(ctx, id); err != nil {
			return err
		} else if known {
			c.keepOriginal(raw) // the gate of an earlier process had it
			continue
		}
		var request events.PermissionRequest
		if err := json.Unmarshal(raw, &request); err != nil {
			return err
		}
		if err := c.reconciled(request.SessionID, events.PermissionAsked, raw); err != nil {
			return err
		}
	}
	return nil
}

// resolveMissing ends or interrupts a request that OpenCode no longer has. If its session is busy, the request was
// answered, by PocketCoder or in OpenCode. If not, OpenCode has forgotten the request, and a person can still decide
// it. The exception is a tool call that shows that OpenCode got the reply: it must not run again.
func (c *comparison) resolveMissing(ctx context.Context, p projections.PendingRequest) error {
	_, answered := c.busy[p.Session]
	if p.Status == events.Draft && !answered { // its decision may be lost
		status, _, err := c.endOf(ctx, p.EngineMessage, p.Call)
		if err != nil {
			return err
		}
		answered = status == "completed"
	}
	if p.Status == events.Draft && answered {
		return c.record(p.Chat, events.PermissionExpired{Permission: p.EnginePermission,
			Reason: "it was answered elsewhere, or its tool call is over"})
	}
	if p.Status != events.Draft && !answered {
		var err error
		if answered, err = c.hasRun(ctx, p); err != nil {
			return err
		}
	}
	if !answered {
		return c.record(p.Chat, events.PermissionInterrupted{Permission: p.EnginePermission})
	}
	reply := map[string]string{"sessionID": p.Session, "requestID": p.EnginePermission, "reply": "reject"}
	if p.Status == events.Authorized {
		reply["reply"] = "once"
	}
	return c.reconciled(p.Session, events.PermissionReplied, reply)
}

// rejection is the error of a tool call whose request was rejected without a text (behaviour rejection).
const rejection = "The user rejected permission to use this specific tool call."

// hasRun reports whether the tool call of the request has ended by itself, or what it does has begun: its command, its
// question to a person, its delegate or its message. An approved call that failed as rejected has not run.
func (c *comparison) hasRun(ctx context.Context, p projections.PendingRequest) (bool, error) {
	status, failure, err := c.endOf(ctx, p.EngineMessage, p.Call)
	if err != nil {
		return false, err
	}
	// an OpenCode that is asked to stop rejects the requests that wait, also one whose approval it did not get
	missed := p.Status == events.Authorized && failure == rejection
	if status != "" && !missed {
		return true, nil
	}
	asked, err := c.Model.QuestionsOf(ctx, projections.OwnQuestionID(p.Session, p.EngineMessage, p.Call))
	if err != nil || len(asked) > 0 {
		return len(asked) > 0, err
	}
	_, delegated, err := c.Model.Chat(ctx, events.DelegateOf(p.Chat, p.Session, p.EngineMessage, p.Call))
	if err != nil || delegated {
		return delegated, err
	}
	_, sent, err := c.Model.Message(ctx, events.MessageOf(p.Chat, p.Session, p.EngineMessage, p.Call))
	if err != nil || sent {
		return sent, err
	}
	started, err := c.Model.Executions(ctx, p.Chat)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(started, func(r projections.ShownExecution) bool {
		return r.Session == p.Session && r.Call == p.Call && r.Status != events.ExecutionRefused
	}), nil
}

// endOf returns the status (completed or error) and the error text of a tool call that has ended by itself. Both are
// empty if it has not.
func (c *comparison) endOf(ctx context.Context, engineMessage, call string) (status, failure string, err error) {
	m, _, err := c.Model.Message(ctx, store.RecordID(engineMessage))
	if err != nil {
		return "", "", err
	}
	var parts []struct {
		CallID string
		State  struct {
			Status   string
			Error    string
			Metadata struct{ Interrupted bool } // by an abort or a stop of OpenCode, which also end a waiting call
		}
	}
	_ = json.Unmarshal([]byte(m.Parts), &parts) // there are none without a message
	for _, part := range parts {
		s := part.State
		if part.CallID == call && (s.Status == "completed" || s.Status == "error" && !s.Metadata.Interrupted) {
			return s.Status, s.Error, nil
		}
	}
	return "", "", nil
}
