package events

import "time"

// ScheduleFired means that a schedule has submitted its message. It is appended in one batch with the message, and with
// the chat if the schedule creates one. It is an event about the record of the schedule.
type ScheduleFired struct {
	Due     time.Time `json:"due"`
	First   time.Time `json:"first,omitzero"` // the first due time that this run covers, if it is earlier
	Chat    string    `json:"chat"`
	Message string    `json:"message"`
	New     bool      `json:"new,omitempty"`      // the chat was created for it
	Manual  bool      `json:"manual,omitempty"`   // a person or an agent started it
	MaxCost float64   `json:"max_cost,omitempty"` // in US dollars, 0 is no limit
	// of a manual run: the last due time that was decided before it; zero in events of earlier versions
	Decided time.Time `json:"decided,omitzero"`
}

// ScheduleSkipped means that a schedule was due and started nothing.
type ScheduleSkipped struct {
	Due    time.Time `json:"due"`
	First  time.Time `json:"first,omitzero"` // the first due time that was skipped, if it is earlier
	Reason string    `json:"reason"`         // a sentence for the person
}

func (ScheduleFired) Kind() string   { return "fired" }
func (ScheduleSkipped) Kind() string { return "skipped" }

// Ceiling is the chat that limits what another chat may do, as it was when it called.
type Ceiling struct {
	Chat     string `json:"chat"`
	Root     string `json:"root"`               // chat at the root of its tree: its own id if it is no delegate
	Agent    string `json:"agent,omitempty"`    // record of its agent, as it was chosen then
	Subagent string `json:"subagent,omitempty"` // name of OpenCode's agent, if a subagent of the chat called
}

// ScheduleActor is schedule:<id>, the actor of what a schedule starts.
func ScheduleActor(id string) string { return "schedule:" + id }

// ScheduledMessage returns the id of the message that a schedule submits for a due time. run is empty, or tells runs
// that a person starts from each other.
func ScheduledMessage(schedule string, due time.Time, run string) string {
	return idOf("scheduled message", schedule, due.UTC().Format(time.RFC3339Nano), run)
}

// ScheduledChat returns the id of the chat that a schedule creates for a message.
func ScheduledChat(message string) string { return idOf("scheduled chat", message) }
