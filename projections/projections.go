// Package projections computes the read models: the chats, messages, approvals, results, accounts and records that clients
// are shown, from the events in the log and from nothing else.
//
// One SQLite file holds them all. It is disposable: never migrated, always replayed. One worker (Run) applies every
// event in log order; rows and the checkpoint (the last sequence applied) commit together. Each read model has a file
// here with its rows, its Apply and its queries, and a .sql file with its table; the order in which they see an event is
// the list below.
//
// Promises: the same log gives the same bytes, in whatever batches, with whatever redelivery and restarts; Digest says
// so. After Wait(seq) queries show what the event at seq did. An event that cannot be applied is set aside in
// dead_letters with its error and stops nothing. Apply has no clock, no randomness and no I/O besides its transaction.
// `updated` of a row moves forward with every change of the row, by at least a millisecond. View shows one moment, a Feed
// tells what changed since the last time, and a row that is removed stays as one that says so.
//
// It must not know who asks (HTTP, terminal, bridge), it never appends to the log, and no decision is made on what it
// says: decisions are made on the log.
package projections

import (
	"embed"

	"pocketcoder/events"
)

// Version is the version of the read models. Raise it when any table or Apply changes: the next start replays the log.
const Version = 9

// Projection is one read model.
type Projection interface {
	Name() string   // of its .sql file
	Schema() string // SQL that makes its tables in an empty file
	// Scope is that of the events it sees: the same kind means another thing in another scope.
	Scope() events.Scope
	// Apply changes the rows as the event says. body is the event's: a type of the events catalogue, or one of the
	// OpenCode payloads in opencode.go. An error sets the event aside.
	Apply(tx *Tx, e events.Event, body any) error
}

// projections in the order in which they see an event: a later one may read what an earlier one wrote for it.
var projections = []Projection{
	sessions{},
	messages{},
	chats{},
	permissions{},
	questions{},
	executions{},
	artifacts{},
	subagents{},
	usage{},
	config{},
	users{},
}

//go:embed *.sql
var schemas embed.FS

// schema gives the text of a .sql file of this package.
func schema(name string) string {
	text, err := schemas.ReadFile(name + ".sql")
	if err != nil {
		panic(err) // the files are compiled in
	}
	return string(text)
}
