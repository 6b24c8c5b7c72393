// Package projections computes the read models (chats, messages, permission requests, executions, accounts and
// configuration records) from the events in the log, and from nothing else.
//
// Each read model has a .go file with its rows, the function that updates them and its queries, and a .sql file with
// its table. The package store keeps the tables in one SQLite file and follows the log. MomentAt and MomentCache
// compute the read models of one chat as they were after any of its events.
//
// Promises:
//   - An update depends on the event and the tables alone: no clock, no randomness, no I/O. The same log therefore
//     gives the same bytes.
//   - After Wait(seq), queries return the changes of the event at seq.
//   - An event that does not fit the tables is set aside in dead_letters with its error. The others are applied.
//   - A removed row stays in its table, marked as removed.
//
// The package must not know its callers (HTTP, terminal, bridge) or who may see a chat, and it never appends to the
// log. A decision must not depend on a read model, because it can be behind the log. The file decisions.go names the
// exceptions.
package projections

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
)

// version is part of the name of the file of the read models: another version replays the log into a file of its own.
// It is the hash of the tables and rows that a test computes from stored logs, so it changes whenever they do (task
// generate).
var version = fmt.Sprintf("%x", sha256.Sum256(golden))[:12]

//go:embed testdata/readmodel.golden
var golden []byte

// Model holds the read models: the loop that updates them (Run) and their queries. It is safe for concurrent use.
type Model struct{ *store.Model }

// Open opens the file of the read models in dir, or creates an empty one.
func Open(ctx context.Context, dir string, log *log.Log) (*Model, error) {
	m, err := store.Open(ctx, dir, log, definition())
	if err != nil {
		return nil, err
	}
	return &Model{m}, nil
}

// Prepare computes the file of this version in dir, while another version serves its own. It returns the number of
// events, or store.ErrPrepared if the file exists.
func Prepare(ctx context.Context, dir string, log *log.Log, progress func(done, total uint64)) (uint64, error) {
	return store.Prepare(ctx, dir, log, definition(), progress)
}

// Loading is the error until the read models have applied the events that the log held at the start. It names the
// number of events that were applied, and of all.
type Loading struct{ Done, Total uint64 }

func (l Loading) Error() string {
	return fmt.Sprintf("The read models are being computed from the log: %d of %d events. Try again.", l.Done, l.Total)
}

// openMemory opens read models in memory: those that were saved, or empty ones for nil.
func openMemory(ctx context.Context, saved []byte) (*store.Memory, error) {
	return store.OpenMemory(ctx, definition(), saved)
}

func definition() store.Definition {
	d := store.Definition{Version: version, Decode: decode, Open: func(tx *store.Tx) store.Apply {
		return openTables(tx).apply
	}}
	for _, p := range projections {
		text, err := schemas.ReadFile(p.name + ".sql")
		if err != nil {
			panic(err) // the files are compiled in
		}
		d.Schema += string(text)
	}
	return d
}

// decode returns the body of an event. The body of an OpenCode event is its payload.
func decode(e events.Event) (any, error) {
	if e.IsErased() {
		return nil, nil // no table changes, and it is no dead letter
	}
	d, err := events.Decode(e)
	if err != nil {
		return nil, err
	}
	o, ok := d.(events.OpenCode)
	if !ok {
		return d, nil
	}
	body, err := opencode.Decode(o)
	if err != nil {
		return nil, fmt.Errorf("decode #%d %s: %w", e.Seq, e.RawSubject, err)
	}
	return body, nil
}

//go:embed *.sql
var schemas embed.FS

// projection is one read model.
type projection struct {
	name  string       // of its .sql file
	scope events.Scope // of the events that update it, empty for all: a kind can have another meaning in another scope

	// update changes the rows according to an event. body is a type of the catalogue of events, or of the package
	// opencode. An error sets the event aside.
	update func(t *tables, e events.Event, body any) error
}

// updateExecutions also names the message with the call of a command. When the command has ended, it marks that message
// as changed, because clients see the end in it.
func updateExecutions(t *tables, e events.Event, body any) error {
	if err := t.executions.update(e, body); err != nil {
		return err
	}
	switch b := body.(type) {
	case events.ExecRequested:
		p, _ := t.permissions.Get(store.RecordID(b.Permission))
		return t.executions.setMessage(b.Exec, p.EngineMessage)
	case events.ExecFinished:
		x, _ := t.executions.Executions.Get(b.Exec)
		t.messages.Touch(t.messageID(x.Message)) // clients see the ends of commands in it
	case events.ExecRefused: // it has no request, but its call runs
		if s, _ := t.sessions.Get(b.Session); s.Processing != "" {
			m, _ := t.messages.Get(s.Processing.All()[0])
			t.messages.Touch(m.ID)
			return t.executions.setMessage(b.Exec, m.EngineMessage)
		}
	}
	return nil
}

// projections are the read models in the order in which they receive an event. A later one may read what an earlier
// one wrote.
var projections = []projection{
	{"sessions", events.ScopeChat, updateSessions},
	{"messages", events.ScopeChat, updateMessages},
	{"chats", events.ScopeChat, updateChats},
	{"permissions", events.ScopeChat, updatePermissions},
	{"questions", events.ScopeChat, updateQuestions},
	{"executions", events.ScopeChat, updateExecutions},
	{"artifacts", events.ScopeChat, updateArtifacts},
	{"subagents", events.ScopeChat, nil}, // follow their sessions
	{"effects", events.ScopeChat, updateEffects},
	{"turns", events.ScopeChat, updateTurns},
	{"delegations", events.ScopeChat, updateDelegations},
	{"schedule_runs", events.ScopeChat, updateScheduleRuns}, // begin with config and follow their turns
	{"channel_messages", events.ScopeChat, updateChannelMessages},
	{"webhook_failures", events.ScopeConfig, updateWebhookFailures},
	{"notifications", "", updateNotifications},
	{"mcp_calls", events.ScopeChat, updateMCPCalls},
	{"usage", events.ScopeChat, nil}, // changes with messages
	{"config", events.ScopeConfig, updateConfig},
	{"users", events.ScopeUser, updateUsers},
	{"seen_positions", events.ScopeUser, updateSeenPositions},
	{"search", events.ScopeChat, nil}, // its triggers follow other tables
}
