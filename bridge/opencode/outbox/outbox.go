// Package outbox carries out effects in OpenCode: it sends messages, decisions and answers, and it aborts, forks and
// reverts. It also keeps chats within their budgets, and reads diffs, lists and models from OpenCode.
//
// An effect is open from the event that requires it until the event that ends it, such as message.delivered,
// OpenCode's permission.replied or effect.done. Run lists the open effects from the read models
// (projections/pending.go), so they follow from the log alone, also from a log that was restored from a backup.
//
// Promises:
//   - An effect is tried until OpenCode accepts it or rejects it permanently. Only a message fails earlier: after the
//     tries of RetryAfter. After a crash, an effect that was under way may be tried again, which changes nothing in
//     OpenCode.
//   - A chat has one effect under way at a time, and a reply beside a message. Chats do not wait for each other, unless
//     MaxTurns turns are running. Then accounts take turns, and so do the chats of each account.
//   - The ids of a message are in the log before it is sent, so OpenCode runs it once, however often it is sent. They
//     are appended on the condition that the queue is as it was when the message was chosen. After message.sending the
//     message cannot be changed.
//   - No reply to OpenCode is "always", so OpenCode asks about each request, and PocketCoder decides it.
//   - Nothing is sent before the log holds what OpenCode holds (ingest.Ingest.WaitConnected), except a message that
//     OpenCode had accepted and not answered: Resend sends it again while ingest compares both.
//
// An effect waits until these are done in its chat:
//
//	message                 the running turn, earlier messages of the queue, aborts, earlier reverts, forks and omissions
//	steered message         a message that is being sent, aborts, earlier reverts, forks and omissions
//	revert, fork, omission  earlier aborts, reverts, forks and omissions
//	abort                   only the effect of its chat that is being tried
//	reply                   the same, but not for a message
//
// The package must not know how OpenCode is run or how its events are stored. It decides nothing: a budget and the
// prompt that resumes a turn are commands of handlers. It appends the progress of effects (a message is held back, a
// session or a model replaced, a turn lost with events of the log), and the expiry of requests and questions whose
// answer has no effect any more.
package outbox

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/bridge/opencode/snapshots"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
)

// Outbox carries out effects in one OpenCode.
type Outbox struct {
	Ingest      *ingest.Ingest // the connection to OpenCode, and which chats its sessions belong to
	Engine      string
	Directory   string // absolute; of new sessions
	Log         *log.Log
	Model       *projections.Model
	Logger      *slog.Logger
	Pause       time.Duration // between the tries of effects other than messages
	Chats       *chat.Chats
	Records     *record.Records
	Permissions *permission.Permissions
	Limits      *budget.Budgets

	// Rules returns the rules of a chat for an agent, the id of a record
	Rules func(ctx context.Context, chat, agent string) (permission.RuleSets, error)

	// "provider/model" of chats without a selection; empty for the model that OpenCode recommends
	Default    string
	MaxTurns   int             // across chats, at once; 0 is no limit
	RetryAfter []time.Duration // pauses between tries to deliver a message, before it fails

	Snapshots *snapshots.Snapshots // nil for an OpenCode whose files this process cannot read: a revert then keeps none

	// called before OpenCode carries out an allowed edit of a session that works in a directory; nil for nothing
	BeforeEdit func(ctx context.Context, a events.PermissionRequest, directory string)

	known atomic.Pointer[client.Models]
}

// record appends an event about a chat and waits until the read model includes it. Open effects are read from the read
// model, so without the wait this effect would be tried again.
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

// Names of the durable consumers of Spending.
const (
	BudgetConsumer          = "budget" // steps
	BudgetDecisionsConsumer = "budget-decisions"
)
