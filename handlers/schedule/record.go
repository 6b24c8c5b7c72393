package schedule

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
)

// Collection is the config collection of schedules.
const Collection = "schedules"

// Type is the type of the records of schedules. A new one is enabled.
var Type = record.Type{Name: Collection, Alias: "cron_jobs", Command: "schedule",
	Title: "Schedules", About: "prompts that start at a time: next runs, last runs, run now",
	Access:     record.Rules(record.OwnOrAdmin, record.OwnOrAdmin, record.Own, record.OwnOrAdmin, record.OwnOrAdmin),
	Assistants: record.Verbs{Create: true, Update: true, Delete: true}, Tool: "schedule_task",
	ToolAbout: "Schedule a prompt that is submitted at set times: in this chat, or in a new chat each time.",
	Defaults:  map[string]any{"enabled": true, "session_mode": New}, Complete: complete,
	Fields: []record.Field{
		{Name: "name", Kind: record.Text, Assistant: "short name, such as nightly tests", Label: "Name", Required: true},
		{Name: "description", Kind: record.Text, Label: "Description", Lines: true},
		{Name: "cron_expression", Kind: record.Text, Assistant: "five fields: minute, hour, day of month, month, day of week; or six, with seconds first", Label: "Cron expression", Example: "0 9 * * 1-5 (Mon to Fri at 9:00)"},
		{Name: "every", Kind: record.Text, Assistant: "an interval in place of cron_expression, such as 15m, 24h or 7d; at least 5m", Label: "or interval", Example: "15m, 24h, 7d"},
		{Name: "at", Kind: record.Date, Assistant: "once, in place of cron_expression, such as 2026-12-24 09:00", Label: "or once at", Example: "2026-12-24 09:00"},
		{Name: "time_zone", Kind: record.Text, Assistant: "IANA name, such as Europe/Berlin; that of the server when left out", Label: "Time zone, if not the server's", Example: "Europe/Berlin"},
		{Name: "starts", Kind: record.Date, Label: "Not before", Example: "2026-12-24 09:00"},
		{Name: "missed", Kind: record.Select, Label: "After missed runs", Values: []string{Skip, Once},
			Choices: map[string]string{"": "start none; for a single run, start it late", Skip: "start none",
				Once: "start one run for all of them"}},
		{Name: "overlap", Kind: record.Select, Label: "If the last run is not over", Values: []string{Skip, Queue},
			Choices: map[string]string{"": "skip the next run", Skip: "skip the next run", Queue: "start the next run anyway"}},
		{Name: "prompt", Kind: record.Text, Assistant: "the whole task: in a new chat, the run sees nothing else", Label: "Prompt that each run submits", Required: true, Lines: true},
		{Name: "session_mode", Kind: record.Select, Assistant: "new (a chat for each run, the default) or existing (this chat)", Label: "Chat of the runs", Values: []string{Existing, New}, Required: true,
			Choices: map[string]string{New: "a new chat for each run", Existing: "the same chat for all runs"}},
		{Name: "chat", Kind: record.Relation, Label: "The same chat", Relation: "chats"},
		{Name: "project", Kind: record.Relation, Label: "Project of new chats", Relation: "projects",
			Choices: map[string]string{"": "that of the account's newest chat"}},
		{Name: "agent", Kind: record.Relation, Label: "Agent of new chats", Relation: "ai_agents",
			Choices: map[string]string{"": "OpenCode's own agent"}},
		{Name: "model", Kind: record.Text, Label: "Model of new chats", Example: "the default model"},
		{Name: "max_cost", Kind: record.Number, Assistant: "stop a run that costs this amount in US dollars; 1 when left out", Label: "Stop a run at cost", Unit: record.Dollars, Example: "empty for no limit"},
		{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", Required: true},
		{Name: "enabled", Kind: record.Bool, Label: "Enabled", Switch: true},
		{Name: "last_executed", Kind: record.Date, Label: "Last run at", ReadOnly: true, Derived: true},
		{Name: "last_status", Kind: record.Text, Label: "State of the last run", ReadOnly: true, Derived: true},
		{Name: "last_error", Kind: record.Text, Label: "Reason of the last run", ReadOnly: true, Derived: true},
		{Name: "ceiling", Kind: record.JSON, ReadOnly: true, Hidden: true},
	}}

// complete refuses a schedule that could not run. A record with a mistake, which an earlier version stored, can still
// be disabled.
func complete(c record.Change) error {
	retimed := c.Changes("cron_expression", "every", "at", "starts", "time_zone")
	if c.Role == account.Agent {
		if err := completeAssistants(c, retimed); err != nil {
			return err
		}
	}
	s, err := read(c)
	if err != nil || !c.New && !s.Enabled {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	if d, _ := s.due(); !d.At.IsZero() && retimed && !d.At.After(time.Now()) {
		return record.Invalid("at", "at: %s is over. Choose a time in the future.", d.At.UTC().Format(time.RFC3339))
	}
	return nil
}

// read returns the schedule after a change.
func read(c record.Change) (s Schedule, err error) {
	if s, err = record.Read[Schedule](c.Now()); err != nil {
		err = record.Invalid("name", "The fields of the schedule cannot be read: %v.", err)
	}
	return s, err
}

// Schedule is a record of Collection. Exactly one of Cron, Every and At says when it is due.
type Schedule struct {
	Name        string  `json:"name"`
	Description string  `json:"description,omitempty"`
	Cron        string  `json:"cron_expression,omitempty"` // five fields, or six with seconds first
	Every       string  `json:"every,omitempty"`           // such as 15m, 24h or 7d
	At          string  `json:"at,omitempty"`              // once; a time as records hold it
	TimeZone    string  `json:"time_zone,omitempty"`       // IANA name; empty for that of the server
	Starts      string  `json:"starts,omitempty"`          // not due before; an interval counts from it
	Missed      string  `json:"missed,omitempty"`          // Skip, Once; empty for the default
	Overlap     string  `json:"overlap,omitempty"`         // Skip, Queue; empty for the first
	Prompt      string  `json:"prompt"`
	Mode        string  `json:"session_mode"`      // New, Existing
	Chat        string  `json:"chat,omitempty"`    // of Existing
	Project     string  `json:"project,omitempty"` // of New; of older schedules empty: chosen at each run
	Agent       string  `json:"agent,omitempty"`
	Model       string  `json:"model,omitempty"` // "provider/model"
	MaxCost     float64 `json:"max_cost,omitempty" about:"In US dollars."`
	User        string  `json:"user,omitempty"` // owner; empty for the operator of the system
	Enabled     bool    `json:"enabled"`
	// of a schedule that an assistant made: its runs may do no more than the assistant's chat
	Ceiling *events.Ceiling `json:"ceiling,omitempty"`
}

// Where a schedule submits its message.
const (
	New      = "new"      // each run has a chat of its own
	Existing = "existing" // all runs share a chat, and with it the context
)

// What a schedule does about a run that was missed, or whose predecessor is not over.
const (
	Skip  = "skip"
	Once  = "once"  // run once for all that was missed
	Queue = "queue" // start it anyway: in an existing chat its message waits for the running turn
)

// runsMissed reports whether a schedule runs once for what was missed. A schedule that is due once does by default.
func (s Schedule) runsMissed() bool {
	return s.Missed == Once || s.Missed == "" && s.At != ""
}

// due returns what says when the schedule is due.
func (s Schedule) due() (f timing, err error) {
	f = timing{Cron: s.Cron, Every: s.Every, TimeZone: s.TimeZone}
	for field, value := range map[string]*time.Time{"at": &f.At, "starts": &f.Starts} {
		text := map[string]string{"at": s.At, "starts": s.Starts}[field]
		if *value, err = record.ParseDate(text); err != nil {
			return f, record.Invalid(field, "%s: %.40q is not a time. Write it as 2026-01-02 15:04:05.000Z, in UTC.", field, text)
		}
	}
	return f, nil
}

// maxCost keeps amounts in the range in which a float64 represents every integer.
const maxCost = 1 << 50

// maxPrompt is the longest prompt of a schedule, in bytes.
const maxPrompt = 64 << 10

// check refuses a schedule that could not run.
func (s Schedule) check() error {
	switch {
	case strings.TrimSpace(s.Name) == "":
		return record.Invalid("name", "name: a schedule needs one")
	case strings.TrimSpace(s.Prompt) == "" || len(s.Prompt) > maxPrompt || !utf8.ValidString(s.Prompt):
		return record.Invalid("prompt", "prompt: want 1 to %d bytes of UTF-8", maxPrompt)
	case s.Mode != New && s.Mode != Existing:
		return record.Invalid("session_mode", "session_mode: want %s or %s, got %.40q", New, Existing, s.Mode)
	case s.Mode == Existing && s.Chat == "":
		return record.Invalid("chat", "chat: session_mode %s needs a chat", Existing)
	case s.Mode == Existing && (s.Agent != "" || s.Model != ""):
		return record.Invalid("agent", "An existing chat has its own agent and model. Leave out agent and model, or choose session_mode %s.",
			New)
	case s.Model != "" && strings.Index(s.Model, "/") < 1:
		return record.Invalid("model", "model: want provider/model, got %.60q", s.Model)
	case s.Missed != "" && s.Missed != Skip && s.Missed != Once:
		return record.Invalid("missed", "missed: want %s or %s, got %.40q", Skip, Once, s.Missed)
	case s.Overlap != "" && s.Overlap != Skip && s.Overlap != Queue:
		return record.Invalid("overlap", "overlap: want %s or %s, got %.40q", Skip, Queue, s.Overlap)
	case math.IsNaN(s.MaxCost) || s.MaxCost < 0 || s.MaxCost > maxCost:
		return record.Invalid("max_cost", "max_cost: want 0 (no limit) or a positive number")
	}
	d, err := s.due()
	if err == nil {
		_, err = d.parse(time.Now(), time.Local)
	}
	return err
}

// Limits of the schedules of assistants. A person may change a schedule beyond them.
const (
	maxByAssistants   = 50              // schedules of an account up to which assistants may add more
	minBetween        = 5 * time.Minute // from one run to the next
	assistantsMaxCost = 1.0             // of a run, if the assistant sets no limit
	runsCompared      = 100
)

// completeAssistants limits the schedules of assistants: their number, how often one is due, and what a run costs.
func completeAssistants(c record.Change, retimed bool) error {
	s, err := read(c)
	if err != nil {
		return err
	}
	own := 0
	for _, other := range c.Others() {
		if other.Text("user") == s.User {
			own++
		}
	}
	if c.New && own >= maxByAssistants {
		return handlers.Refuse(handlers.Conflict, "There are %d scheduled tasks, which is the limit. Cancel others first.",
			maxByAssistants)
	}
	if s.MaxCost <= 0 && (c.New || c.Changes("max_cost")) {
		c.Put("max_cost", assistantsMaxCost)
	}
	if !c.New && !retimed {
		return nil
	}
	return s.checkInterval()
}

// checkInterval refuses a schedule of an assistant that is due too often.
func (s Schedule) checkInterval() error {
	d, err := s.due()
	if err != nil {
		return err
	}
	now := time.Now()
	spec, err := d.parse(now, time.Local)
	if err != nil {
		return err
	}
	var last time.Time
	for _, at := range spec.nextRuns(now, runsCompared) {
		if !last.IsZero() && at.Sub(last) < minBetween {
			return record.Invalid("every", "At least %d minutes must pass between two runs of a schedule that an assistant sets.",
				int(minBetween.Minutes()))
		}
		last = at
	}
	return nil
}
