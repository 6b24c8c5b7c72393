// Package recordtype lists the types of configuration records. A new type stands beside the decisions that use it,
// and is added here.
//
// It must not know what a type means.
package recordtype

import (
	"slices"

	"pocketcoder/events/log"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/project"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
	"pocketcoder/handlers/schedule"
	"pocketcoder/handlers/sshkey"
)

// Machine is what the types need to know of the machine. The zero value is a machine without files.
type Machine struct {
	Programs mcpserver.Programs
	Places   project.Places
}

// All returns all types of configuration records.
func All(m Machine) []record.Type {
	return slices.Concat(agent.Types, rule.Types, proposal.Types, channel.DeviceTypes, channel.Types,
		model.Types, []record.Type{m.Places.Type(), project.MemberType, agent.NoteType, budget.Type, sshkey.Type,
			schedule.Type, m.Programs.Type(), healthChecks})
}

// Open returns the configuration records of a log.
func Open(l *log.Log, m Machine) *record.Records {
	return record.Open(l, All(m)...)
}

// healthChecks is the type of the records of the parts of the system, and the state of each.
var healthChecks = record.Type{Name: "healthchecks", Command: "health",
	About:  "parts of the system, and the state of each",
	Access: record.Rules(record.Accounts, record.Accounts, record.Never, record.Never, record.Never),
	Fields: []record.Field{
		{Name: "name", Kind: record.Text, Label: "Name", ReadOnly: true},
		{Name: "status", Kind: record.Select, Label: "Status", Values: []string{"starting", "ready", "degraded", "offline", "error"}, ReadOnly: true},
		{Name: "last_ping", Kind: record.Date, ReadOnly: true},
	}}
