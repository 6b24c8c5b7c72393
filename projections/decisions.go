package projections

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/projections/store"
)

// Decisions are made on the log. Those that are made on a read model use one of these queries, for this reason:
//
//	PastRequests, LastOfExecution,     the query waits until the read model holds what is in the log
//	ActiveDelegates
//	EvaluatedThrough, DecisionsDone    a model that is behind returns an earlier sequence, and the events after it are
//	                                   evaluated once more
//	CountWaiting, IsSubmitted          each sender waits for the model after its own message; several at the same time may
//	                                   exceed the limit by one message each. A message that is submitted again is stored
//	                                   once, because it has the same id
//	ToolCall, AwaitToolCall            the gate waits for the call of a request, and asks a person if it stays unknown
//	Session                            ingest knows the sessions of this process; older ones are in the model
//	Chat, for the state of its turn    background commands end only after a time without events that is longer than a
//	                                   model is behind
//	OpenScheduleRuns                   each start waits for the model. A run that has just ended may still count as open:
//	                                   then the next one may be skipped
//	Spending                           OpenCode reports a cost at the end of a step, so a step exceeds a limit anyway
//	ChatsOf                            a preview decides nothing
//	ArchivedSince                      contents that were moved can be read as before

// historyColumns are the columns of a past request. A page of all columns takes longer to read.
const historyColumns = "id, ai_engine_permission_id, session_id, chat, permission, patterns, metadata, status, cwd, decided_by, approved_by, first_seq, asked_seq, created"

// historyPage is the number of requests that are read at once. The metadata of one can hold a whole file.
const historyPage = 200

// PastRequests calls each with the permission requests of a chat, or of all chats if chat is empty, the last one first,
// until each returns false. It first waits until the read model holds what is in the log now.
func (m *Model) PastRequests(ctx context.Context, chat string, each func(events.PastRequest) bool) error {
	if err := m.CatchUp(ctx); err != nil {
		return err
	}
	where, order := "", "first_seq"
	if chat != "" {
		where, order = "chat={:chat} AND ", "asked_seq"
	}
	for before := int64(math.MaxInt64); ; {
		page, err := store.List[Permission](ctx, m.Model, "permissions",
			"SELECT "+historyColumns+" FROM permissions WHERE "+where+order+"<{:before} ORDER BY "+order+" DESC LIMIT {:most}",
			dbx.Params{"chat": chat, "before": before, "most": historyPage})
		if err != nil {
			return err
		}
		for _, p := range page {
			at, _ := time.Parse(events.TimeFormat, p.Created)
			if !each(events.PastRequest{Chat: p.Chat, Request: p.Content(), At: at, Cwd: p.Cwd, Outcome: p.outcome()}) {
				return nil
			}
		}
		if len(page) < historyPage {
			return nil
		}
		if before = page[len(page)-1].First; chat != "" {
			before = page[len(page)-1].AskedSeq
		}
	}
}

// outcome returns what has become of a request. An approval that expired later counts as an approval.
func (p Permission) outcome() events.RequestOutcome {
	byRule, authorized := p.DecidedBy == events.ActorPolicy, p.Status == events.Authorized || p.ApprovedBy != ""
	switch {
	case p.Status == events.Draft:
		return events.RequestWaiting
	case p.DecidedBy == "" || byRule && p.Status == events.Expired:
		return events.RequestExpired
	case strings.HasPrefix(p.DecidedBy, events.EngineActor("")):
		return events.RequestElsewhere
	case byRule && authorized:
		return events.RequestAllowed
	case byRule:
		return events.RequestRefused
	case authorized:
		return events.RequestAuthorized
	}
	return events.RequestDenied
}

// LastOfExecution returns the sequence of the last event about an execution, 0 while the execution runs. It first waits
// until the read model holds what is in the log now.
func (m *Model) LastOfExecution(ctx context.Context, exec string) (uint64, error) {
	if err := m.CatchUp(ctx); err != nil {
		return 0, err
	}
	x, ok, err := m.Execution(ctx, exec)
	if err != nil || !ok || x.Status == events.ExecutionRunning {
		return 0, err
	}
	return uint64(x.Last), nil
}

// ActiveDelegates lists the delegates that have a message that waits or a turn that runs, at the end of the log.
func (m *Model) ActiveDelegates(ctx context.Context) (ids []string, err error) {
	if err := m.CatchUp(ctx); err != nil {
		return nil, err
	}
	rows, err := store.List[struct{ ID string }](ctx, m.Model, "active delegates", `SELECT c.id FROM chats c
		WHERE c.parent<>'' AND NOT c.removed AND c.id IN (SELECT chat FROM turns WHERE state IN ('queued', 'running', 'waiting'))
		ORDER BY c.first_seq`, nil)
	for _, r := range rows {
		ids = append(ids, r.ID)
	}
	return ids, err
}

// EvaluatedThrough returns a sequence up to which the policy has decided each permission request, or has left it to a
// person.
func (m *Model) EvaluatedThrough(ctx context.Context) (uint64, error) {
	through := m.Seq() // first: the list includes each request up to here
	waiting, err := m.Permissions(ctx, "", events.Draft)
	for _, p := range waiting {
		if !p.Referred {
			through = min(through, uint64(p.AskedSeq)-1)
		}
	}
	return through, err
}

// ChatsOf returns the ids of the chats of an account, or of all accounts if user is empty. If agent is not empty, it
// returns those of the agent alone.
func (m *Model) ChatsOf(ctx context.Context, user, agent string) (map[string]bool, error) {
	rows, err := store.List[struct{ ID string }](ctx, m.Model, "chats of "+user,
		"SELECT id FROM chats"+store.Narrowed(dbx.Params{"user": user, "agent": agent}),
		dbx.Params{"user": user, "agent": agent})
	ids := map[string]bool{}
	for _, row := range rows {
		ids[row.ID] = true
	}
	return ids, err
}

// ArchivedSince returns the archived chats that are not deleted and have not changed since a time. It returns when each
// of them has changed, by id.
func (m *Model) ArchivedSince(ctx context.Context, since time.Time) (map[string]string, error) {
	chats, err := store.List[Chat](ctx, m.Model, "chats",
		"SELECT * FROM chats WHERE archived AND NOT removed AND max(updated, last_active) < {:since}",
		dbx.Params{"since": events.FormatTime(since)})
	changed := map[string]string{}
	for _, c := range chats {
		changed[c.ID] = max(c.Updated, c.LastActive)
	}
	return changed, err
}
