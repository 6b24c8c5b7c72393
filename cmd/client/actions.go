package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
	"pocketcoder/web/routes"
)

// Decision is a person's decision about a permission request, bound to what was shown.
type Decision struct {
	Status events.Decision `json:"status"`
	Reason string          `json:"reason,omitempty"`
	Edited string          `json:"edited,omitempty"`        // the command that runs instead
	Hash   string          `json:"shown_request,omitempty"` // of the request that was shown
	Files  string          `json:"shown_files,omitempty"`   // hash of the files that were shown
}

// Decide decides a permission request, by the id of its record or by OpenCode's.
func (s *System) Decide(ctx context.Context, id string, d Decision) error {
	p, err := s.FindPermission(ctx, id)
	if err != nil {
		return err
	}
	return s.Update(ctx, "permissions", p.ID, d)
}

// ProposeAlways returns the rules that would allow what a permission request asks for.
func (s *System) ProposeAlways(ctx context.Context, id string, a permission.AllowAlways) (p permission.Proposal,
	err error) {
	found, err := s.FindPermission(ctx, id)
	if err != nil {
		return p, err
	}
	query := url.Values{"pattern": {a.Pattern}, "scope": {a.Scope}, "for": {a.For}}
	return p, s.Get(ctx, always(found.ID)+"?"+query.Encode(), &p)
}

// AllowAlways stores the rules of a proposal, and allows the request.
func (s *System) AllowAlways(ctx context.Context, id string, a permission.AllowAlways) error {
	found, err := s.FindPermission(ctx, id)
	if err != nil {
		return err
	}
	return s.sendOnce(ctx, http.MethodPost, always(found.ID), routes.AlwaysRequest{Pattern: a.Pattern, Scope: a.Scope,
		For: a.For, ShownRequest: a.ShownRequest, ShownRules: a.ShownRules}, nil)
}

func always(id string) string {
	return "/api/pocketcoder/permissions/" + url.PathEscape(id) + "/always"
}

// AnswerQuestion answers one of the questions that OpenCode asked together, or rejects all of them if answers is nil.
func (s *System) AnswerQuestion(ctx context.Context, question string, index int, answers []string) error {
	found, err := List[Created](ctx, s, "questions", Select{Fields: "id", Limit: 1,
		Filter: fmt.Sprintf("ai_engine_question_id = %q && index = %d", question, index)})
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return handlers.Refuse(handlers.NotFound, "there is no question %s", question)
	}
	fields := map[string]string{"status": projections.QuestionRejected}
	if answers != nil {
		reply, err := json.Marshal(answers)
		if err != nil {
			return err
		}
		fields = map[string]string{"status": projections.QuestionReplied, "reply": string(reply)}
	}
	return s.Update(ctx, "questions", found[0].ID, fields)
}

func actionOf(chat, action string) string {
	return "/api/pocketcoder/chats/" + url.PathEscape(chat) + "/" + action
}

// Abort stops the turn of a chat.
func (s *System) Abort(ctx context.Context, chat string) error {
	return s.sendOnce(ctx, http.MethodPost, actionOf(chat, "abort"), nil, nil)
}

// Omit leaves out the files of a chat that the provider refused.
func (s *System) Omit(ctx context.Context, chat string) error {
	return s.sendOnce(ctx, http.MethodPost, actionOf(chat, "omit"), nil, nil)
}

// Revert takes back a message of a chat, by OpenCode's id, and all that followed it. Without a message it undoes the
// last revert. It returns the files that it puts back. changed is keep or overwrite; if it is empty and files were
// changed later, nothing happens, and Revert returns these.
func (s *System) Revert(ctx context.Context, chat, message, changed string) (files, later []string, err error) {
	var answer struct{ Files []string }
	err = s.sendOnce(ctx, http.MethodPost, actionOf(chat, "revert"), map[string]string{"message": message,
		"changed": changed}, &answer)
	if r := (refusal{}); errors.As(err, &r) && r.Code == handlers.Conflict {
		var problem struct {
			Data struct{ Changed struct{ Files []string } }
		}
		if json.Unmarshal(r.body, &problem) == nil && len(problem.Data.Changed.Files) > 0 {
			return nil, problem.Data.Changed.Files, nil
		}
	}
	return answer.Files, nil, err
}

// SelectModel selects the model of a chat, of the chats of an account, or of all chats if both are empty. An empty
// model ends the selection.
func (s *System) SelectModel(ctx context.Context, chat, user, model string) error {
	return s.sendOnce(ctx, http.MethodPut, "/api/pocketcoder/models/selected",
		map[string]string{"chat": chat, "user": user, "model": model}, nil)
}

// Signal sends a signal to the processes of a command. An empty signal ends the command.
func (s *System) Signal(ctx context.Context, exec, signal string) error {
	return s.sendOnce(ctx, http.MethodPost, "/api/executions/"+url.PathEscape(exec)+"/signal",
		map[string]string{"signal": signal}, nil)
}

// Rules returns the rules in force in every chat.
func (s *System) Rules(ctx context.Context) ([]policy.Rule, error) {
	return Read[[]policy.Rule](ctx, s, "/api/pocketcoder/policy/rules")
}

// ReplayRule tries a rule on the requests of a chat, or of all chats.
func (s *System) ReplayRule(ctx context.Context, rule policy.Rule, chat string) (run permission.DryRunResult,
	err error) {
	return run, s.Send(ctx, http.MethodPost, "/api/pocketcoder/policy/replay", map[string]any{
		"permission": rule.Permission, "pattern": rule.Pattern, "action": rule.Action, "chat": chat}, &run)
}

// Replace creates a record, or changes the one that has the same values in the fields by, which are texts. It returns
// the id of the record.
func (s *System) Replace(ctx context.Context, collection string, by []string, fields map[string]any) (string, error) {
	filter := make([]string, len(by))
	for i, name := range by {
		filter[i] = fmt.Sprintf("%s = %q", name, fields[name])
	}
	found, err := List[Created](ctx, s, collection, Select{Filter: strings.Join(filter, " && "), Fields: "id", Limit: 1})
	if err != nil {
		return "", err
	}
	if len(found) == 0 {
		return s.Create(ctx, collection, fields)
	}
	return found[0].ID, s.Update(ctx, collection, found[0].ID, fields)
}

func scheduleAt(id, action string) string {
	return "/api/schedules/" + url.PathEscape(id) + "/" + action
}

// NextRuns returns the next five times at which a schedule is due, none while it is disabled.
func (s *System) NextRuns(ctx context.Context, schedule string) ([]time.Time, error) {
	runs, err := Read[struct{ Next []time.Time }](ctx, s, scheduleAt(schedule, "next"))
	return runs.Next, err
}

// RunSchedule starts a run of a schedule and returns its chat.
func (s *System) RunSchedule(ctx context.Context, schedule string) (chat string, err error) {
	var started struct{ Chat string }
	err = s.sendOnce(ctx, http.MethodPost, scheduleAt(schedule, "run"), nil, &started)
	return started.Chat, err
}

// PreviewSchedule returns what a schedule would do if it were saved.
func (s *System) PreviewSchedule(ctx context.Context, of any) (v schedule.Preview, err error) {
	return v, s.Send(ctx, http.MethodPost, "/api/schedules/preview", of, &v)
}

// OpenPort returns an address, good for one browser, of what the commands of a chat serve at a port.
func (s *System) OpenPort(ctx context.Context, chat string, port int) (string, error) {
	var opened struct{ URL, Path string }
	err := s.Send(ctx, http.MethodPost, fmt.Sprintf("/api/chats/%s/ports/%d", url.PathEscape(chat), port), nil, &opened)
	if handlers.CodeOf(err) == handlers.NotFound {
		err = fmt.Errorf("there is no chat %s", chat)
	}
	return cmp.Or(opened.URL, s.url+opened.Path), err
}

// UseKey records that an SSH key has logged in.
func (s *System) UseKey(ctx context.Context, key string) error {
	return s.Send(ctx, http.MethodPost, "/api/pocketcoder/ssh_keys/"+url.PathEscape(key)+"/used", nil, nil)
}
