package queries

import (
	"context"
	"math"
	"strings"
	"time"

	"github.com/pocketbase/dbx"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// historyColumns are the columns of a past request. A page of all columns takes longer to read.
const historyColumns = "id, ai_engine_permission_id, session_id, chat, permission, patterns, metadata, status, cwd, decided_by, approved_by, first_seq, asked_seq, created"

// historyPage is the number of requests that are read at once. The metadata of one can hold a whole file.
const historyPage = 200

// History returns a function that calls each with the permission requests of a chat, or of all chats if chat is empty,
// the last one first, until each returns false. The function first waits until the read model holds what is in the log
// now.
func History(m *projections.Model, l *log.Log) func(ctx context.Context, chat string,
	each func(events.PastRequest) bool) error {
	return func(ctx context.Context, chat string, each func(events.PastRequest) bool) error {
		if err := m.CatchUp(ctx); err != nil {
			return err
		}
		where, order := "", "first_seq"
		if chat != "" {
			where, order = "chat={:chat} AND ", "asked_seq"
		}
		for before := int64(math.MaxInt64); ; {
			page, err := store.List[projections.Permission](ctx, m.Model, "permissions",
				"SELECT "+historyColumns+" FROM permissions WHERE "+where+order+"<{:before} ORDER BY "+order+" DESC LIMIT {:most}",
				dbx.Params{"chat": chat, "before": before, "most": historyPage})
			if err != nil {
				return err
			}
			for _, p := range page {
				at, _ := time.Parse(events.TimeFormat, p.Created)
				if !each(events.PastRequest{Chat: p.Chat, Ask: p.Ask(), At: at, Cwd: p.Cwd, Outcome: outcome(p)}) {
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
}

// LastOfExecution returns a function that returns the sequence of the last event about an execution, 0 while the
// execution runs. The function first waits until the read model holds what is in the log now.
func LastOfExecution(m *projections.Model) func(ctx context.Context, exec string) (uint64, error) {
	return func(ctx context.Context, exec string) (uint64, error) {
		if err := m.CatchUp(ctx); err != nil {
			return 0, err
		}
		x, ok, err := m.Execution(ctx, exec)
		if err != nil || !ok || x.Status == events.ExecutionRunning {
			return 0, err
		}
		return uint64(x.Last), nil
	}
}

// Evaluated returns a function that returns a sequence up to which the policy has decided each permission request, or
// has left it to a person.
func Evaluated(m *projections.Model) func(context.Context) (uint64, error) {
	return func(ctx context.Context) (uint64, error) {
		through := m.Seq() // first: the list includes each request up to here
		waiting, err := m.Permissions(ctx, "", events.Draft)
		for _, p := range waiting {
			if !p.Referred {
				through = min(through, uint64(p.AskedSeq)-1)
			}
		}
		return through, err
	}
}

// outcome returns what has become of a request. An approval that expired later counts as an approval.
func outcome(p projections.Permission) events.RequestOutcome {
	byRule, authorized := p.DecidedBy == events.ActorPolicy, p.Status == events.Authorized ||
		p.ApprovedBy != ""
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

// ChatsOf returns a function that returns the ids of the chats of an account, or of all accounts if user is empty. If
// agent is not empty, it returns those of the agent alone.
func ChatsOf(m *projections.Model) func(ctx context.Context, user, agent string) (map[string]bool, error) {
	return func(ctx context.Context, user, agent string) (map[string]bool, error) {
		rows, err := store.List[struct{ ID string }](ctx, m.Model, "chats of "+user,
			"SELECT id FROM chats"+store.Narrowed(dbx.Params{"user": user, "agent": agent}),
			dbx.Params{"user": user, "agent": agent})
		ids := map[string]bool{}
		for _, row := range rows {
			ids[row.ID] = true
		}
		return ids, err
	}
}
