// Package outbox carries out in OpenCode what was decided here: it sends messages, decisions and answers, it aborts, forks and
// reverts, it keeps chats within their budgets, and it asks OpenCode for diffs, lists and models.
//
// Promises:
//   - An effect is attempted until OpenCode has taken it or has refused it for good. Only a message fails earlier: after
//     RetryAfter. Which effects are open follows from the log and nothing else, also in a log that was restored from a copy. After
//     a crash the one that was under way may be tried again, which changes nothing in OpenCode.
//   - The commands of a chat (abort, revert, fork) are carried out in log order, but an abort waits for none; a message waits for the
//     commands and messages of its chat that are before it. What is done in one chat at a time is one thing, and chats do not wait for
//     each other, except when MaxTurns turns are running.
//   - A message is sent under ids that are in the log before, so OpenCode runs it once, however often it is sent.
//   - OpenCode is never told "always": it asks about each request, and the decision is made here.
//   - Nothing is sent before the log holds what OpenCode holds (ingest.Ingest.WaitConnected).
//
// The package must not know how OpenCode is run or how its events are stored. It decides nothing: decisions are commands of
// handlers. It appends only how an effect went.
package outbox

import (
	"context"
	"sync/atomic"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/events"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
)

// Outbox carries out effects in one OpenCode (CarryOut), and keeps chats within their budgets (Budgets). Run is that of the
// embedded Ingest.
type Outbox struct {
	*ingest.Ingest // the connection to OpenCode, its sessions, the log and the read model
	Chats          *chat.Chats
	Records        *record.Records
	Permissions    *permission.Permissions
	Limits         *budget.Budgets

	Default    string          // "provider/model" of chats without a selection; empty for the model that OpenCode recommends
	MaxTurns   int             // across chats, at once; 0 is no limit
	RetryAfter []time.Duration // pauses between tries to deliver a message, before it fails

	known atomic.Pointer[client.Models]
}

// DefaultRetryAfter are the pauses between the tries to deliver a message: 155 s in all.
var DefaultRetryAfter = []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second}

// record appends an event of ours about a chat and waits until the read model has it. Effects are read from the read model, which would
// otherwise repeat this one.
func (o *Outbox) record(ctx context.Context, chat string, d events.Data) error {
	e, err := events.New(chat, events.EngineActor(o.Engine), d)
	if err != nil {
		return err
	}
	seq, err := o.Log.Append(ctx, e)
	if err != nil {
		return err
	}
	return o.Model.Wait(ctx, seq)
}

// The names under which the log remembers which events budgets were checked for.
const (
	BudgetWorker          = "budget" // steps
	budgetDecisionsWorker = "budget-decisions"
)
