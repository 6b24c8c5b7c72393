package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
)

// readSchedule returns the schedule that a call in a chat describes. It belongs to the person of the chat. A run in a
// new chat has the agent of the chat, which is its ceiling.
func (s *Server) readSchedule(ctx context.Context, in schedule.Schedule, id string) (task schedule.Schedule,
	err error) {
	chat, _, err := s.Model.Chat(ctx, id)
	if err != nil {
		return task, err
	}
	at, err := record.ParseTime("at", in.At, in.TimeZone)
	task = schedule.Schedule{Name: in.Name, Prompt: in.Prompt, Cron: in.Cron, Every: in.Every, At: at,
		TimeZone: in.TimeZone, Mode: cmp.Or(in.Mode, schedule.New), MaxCost: in.MaxCost, User: chat.User, Enabled: true}
	if task.Mode == schedule.Existing {
		task.Chat = chat.ID
	} else {
		task.Project = chat.Project
		task.Agent, task.Ceiling = chat.Agent, &events.Ceiling{Chat: chat.ID, Root: chat.Root, Agent: chat.Agent}
	}
	return task, err
}

// scheduleTask stores a schedule for the person of the chat.
func (s *Server) scheduleTask(ctx context.Context, c call, arguments record.Values) (string, error) {
	in, err := record.Read[schedule.Schedule](arguments)
	if err != nil {
		return "", handlers.Refuse(handlers.Invalid, "The arguments cannot be read: %v.", err)
	}
	task, err := s.readSchedule(ctx, in, c.chat)
	if err != nil {
		return "", err
	}
	from, err := s.from(ctx, c)
	if err != nil {
		return "", err
	}
	switch {
	case from.Subagent != "" && task.Mode == schedule.Existing:
		return "", handlers.Refuse(handlers.Invalid, "A subagent can schedule tasks only with session_mode %s.",
			schedule.New)
	case from.Subagent != "":
		task.Ceiling.Subagent = from.Subagent
	}
	set, err := fieldsOf(task)
	if err != nil {
		return "", err
	}
	fixed := record.Values{}
	if ceiling, has := set["ceiling"]; has {
		fixed["ceiling"] = ceiling
		delete(set, "ceiling")
	}
	id, _, err := s.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ChatActor(c.chat)},
		Collection: schedule.Collection, Set: set, Fixed: fixed, New: true, Role: account.Agent})
	if err != nil {
		return "", err
	}
	next, err := s.Schedules.Next(ctx, id, 5)
	if err != nil {
		return "", err
	}
	return encode(map[string]any{"task_id": id, "status": "scheduled", "next": next})
}

// PreviewTask returns a note for the person who decides a request to schedule a task: the next runs of the task, and
// what the rules would do with the past requests of its runs. It returns "" for other requests.
func (s *Server) PreviewTask(ctx context.Context, chat string, a events.PermissionRequest) string {
	if a.Permission != events.OwnTools+"schedule_task" {
		return ""
	}
	text, err := s.previewTask(ctx, chat, a)
	if handlers.CodeOf(err) != "" {
		return fmt.Sprintf("The schedule cannot be saved: %s.", strings.TrimRight(err.Error(), "."))
	}
	if err != nil {
		s.Logger.Error("preview a schedule", "chat", chat, "request", a.ID, "err", err)
		return "PocketCoder could not determine when the task would run."
	}
	return text
}

func (s *Server) previewTask(ctx context.Context, id string, a events.PermissionRequest) (string, error) {
	body, err := s.Model.ToolArguments(ctx, projections.Permission{Permission: a.Permission, Session: a.SessionID,
		EngineMessage: a.Tool.MessageID, Call: a.Tool.CallID})
	if err != nil {
		return "", err
	}
	var in schedule.Schedule
	if err := json.Unmarshal([]byte(body), &in); err != nil {
		return "", fmt.Errorf("read the arguments: %w", err)
	}
	task, err := s.readSchedule(ctx, in, id)
	if err != nil {
		return "", err
	}
	v, err := s.Preview(ctx, task)
	if err != nil {
		return "", err
	}
	var next []string
	for _, at := range v.Next {
		next = append(next, at.Format("Mon 2006-01-02 15:04 MST"))
	}
	h := v.History
	ceiling, err := s.ceilingText(ctx, task)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s Next runs: %s. There were %d requests in the last %d days. The current rules would allow %d, "+
		"ask a person about %d, and deny %d.", ceiling, strings.Join(next, ", "), h.Requests, h.Days, h.Allowed, h.Asked,
		h.Denied), nil
}

// ceilingText names the chat that limits the runs of a task.
func (s *Server) ceilingText(ctx context.Context, task schedule.Schedule) (string, error) {
	if task.Mode == schedule.Existing {
		return "The task runs in this chat, with its agent and its rules.", nil
	}
	names, err := agent.Names(ctx, s.Records)
	if err != nil {
		return "", err
	}
	agent := "OpenCode's own agent"
	if task.Agent != "" {
		agent = fmt.Sprintf("the agent %q", names[task.Agent])
	}
	return fmt.Sprintf("Its runs have %s, and may do no more than this chat may do with its agent and its rules.", agent), nil
}

func fieldsOf(s schedule.Schedule) (set map[string]json.RawMessage, err error) {
	body, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(body, &set)
	}
	return set, err
}

// tasks returns the schedules of the person of a chat.
func (s *Server) tasks(ctx context.Context, c call) (own []record.StoredRecord[schedule.Schedule], err error) {
	chat, _, err := s.Model.Chat(ctx, c.chat)
	if err != nil {
		return nil, err
	}
	all, err := record.All[schedule.Schedule](ctx, s.Records, schedule.Collection)
	for _, r := range all {
		if r.Value.User == chat.User {
			own = append(own, r)
		}
	}
	return own, err
}

// task is a schedule as list_tasks shows it.
type task struct {
	ID       string      `json:"id"`
	Name     string      `json:"name"`
	Cron     string      `json:"cron_expression,omitempty"`
	Every    string      `json:"every,omitempty"`
	At       string      `json:"at,omitempty"`
	Prompt   string      `json:"prompt"`
	Session  string      `json:"session_mode"`
	Enabled  bool        `json:"enabled"`
	Next     []time.Time `json:"next"`
	Executed string      `json:"last_executed,omitempty"`
	Status   string      `json:"last_status,omitempty"`
	Reason   string      `json:"last_error,omitempty"`
}

func (s *Server) listTasks(ctx context.Context, c call, _ noArguments) (string, error) {
	own, err := s.tasks(ctx, c)
	if err != nil {
		return "", err
	}
	list := []task{}
	for _, r := range own {
		v := r.Value
		t := task{ID: r.ID, Name: v.Name, Cron: v.Cron, Every: v.Every, At: v.At, Prompt: v.Prompt, Session: v.Mode,
			Enabled: v.Enabled}
		if t.Next, err = s.Schedules.Next(ctx, r.ID, 1); err != nil {
			return "", err
		}
		last, err := s.Model.ScheduleRuns(ctx, r.ID, 1)
		if err != nil {
			return "", err
		}
		if len(last) > 0 {
			t.Executed, t.Status, t.Reason = last[0].Started, last[0].State, last[0].Reason
		}
		list = append(list, t)
	}
	return encode(map[string]any{"tasks": list})
}

type taskIDArguments struct {
	signed
	Task string `json:"task_id" jsonschema:"id of the task, from list_tasks"`
}

// ownTask refuses a schedule that does not belong to the person of the chat.
func (s *Server) ownTask(ctx context.Context, c call, id string) error {
	own, err := s.tasks(ctx, c)
	if err != nil {
		return err
	}
	for _, r := range own {
		if r.ID == id {
			return nil
		}
	}
	return handlers.Refuse(handlers.NotFound, "There is no scheduled task %.40q. list_tasks lists the tasks.", id)
}

func (s *Server) pauseTask(ctx context.Context, c call, in taskIDArguments) (string, error) {
	return s.enableTask(ctx, c, in.Task, false)
}

func (s *Server) resumeTask(ctx context.Context, c call, in taskIDArguments) (string, error) {
	return s.enableTask(ctx, c, in.Task, true)
}

func (s *Server) enableTask(ctx context.Context, c call, id string, on bool) (string, error) {
	if err := s.ownTask(ctx, c, id); err != nil {
		return "", err
	}
	_, _, err := s.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ChatActor(c.chat)},
		Collection: schedule.Collection, Record: id, Set: record.Fields(map[string]any{"enabled": on}), Role: account.Agent})
	if err != nil {
		return "", err
	}
	if !on {
		return encode(map[string]any{"task_id": id, "status": "paused"})
	}
	next, err := s.Schedules.Next(ctx, id, 5)
	if err != nil {
		return "", err
	}
	return encode(map[string]any{"task_id": id, "status": "resumed", "next": next})
}

func (s *Server) cancelTask(ctx context.Context, c call, in taskIDArguments) (string, error) {
	if err := s.ownTask(ctx, c, in.Task); err != nil {
		return "", err
	}
	_, err := s.Records.Delete(ctx, record.Delete{Command: handlers.Command{Actor: events.ChatActor(c.chat)},
		Collection: schedule.Collection, Record: in.Task, Role: account.Agent})
	if err != nil {
		return "", err
	}
	return encode(map[string]any{"task_id": in.Task, "status": "cancelled"})
}
