package cli

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"strings"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
)

const scheduleUsage = `
  pocketcoder schedule add "Nightly tests" --cron "0 3 * * *" --prompt "Run the tests and fix what fails"
  pocketcoder schedule add "Watch" --every 2h --chat h2k0x9c3v7m1q5z --prompt "Look at the new issues"
  pocketcoder schedule add "Reminder" --at "2026-12-24 09:00" --prompt "Write the summary of the year"
  pocketcoder schedule preview --cron "0 3 * * *" --prompt "Run the tests"
  pocketcoder schedule list
  pocketcoder schedule show "Nightly tests"     print its fields, its next runs, and its last runs with result and cost
  pocketcoder schedule run "Nightly tests"      start a run now

Each run submits the prompt to a new chat. With --chat it submits the prompt to that chat, before the messages that
people queued there. A run asks for permissions as every chat does. Before "add" saves, it shows the next five runs, and
the requests of the last 30 days that the rules would now leave to a person. A schedule that is disabled starts nothing.
Without --user it belongs to the operator, whose chats only administrators see. The chats of a deleted schedule stay.
`

// Schedules is the command schedule.
var Schedules = Group{Name: "schedule", Usage: scheduleUsage, Default: "list",
	Former:   map[string]string{"pause": "disable", "resume": "enable", "cancel": "delete"},
	Flags:    map[string]string{"cron_expression": "cron"},
	Complete: completeSchedule,
	Own: func(r *Records, fs *flag.FlagSet) map[string]Verb {
		s := scheduleCommand{Records: r}
		fs.BoolVar(&s.yes, "yes", false, "add: save it without asking")
		return map[string]Verb{"list": Takes(0, 0, s.list), "show": Takes(1, 1, s.show), "run": Takes(1, 1, s.start),
			"preview": Takes(0, 0, s.preview), "add": Takes(1, 1, s.add)}
	}}

type scheduleCommand struct {
	*Records
	yes bool
}

// scheduleRow is a stored schedule as a list shows it.
type scheduleRow struct {
	ID string `json:"id"`
	schedule.Schedule
	Next string                 `json:"next,omitempty"`
	Last *projections.PricedRun `json:"last,omitempty"`
}

func (c *scheduleCommand) list(ctx context.Context, _ []string) error {
	all, err := client.List[scheduleRow](ctx, c.System, schedule.Collection, client.Select{Sort: "created,id"})
	for i := 0; i < len(all) && err == nil; i++ {
		err = all[i].complete(ctx, c.System)
	}
	if err != nil {
		return err
	}
	return PrintList(c.Env, c.AsJSON, all, "there is no schedule; pocketcoder schedule -h shows how to add one",
		"SCHEDULE\tNAME\tDUE\tNEXT\tLAST RUN\tCOST", func(r scheduleRow) []string {
			last, cost := "-", "-"
			if r.Last != nil {
				last, cost = r.Last.State, budget.Dollars(r.Last.Cost)
			}
			return []string{r.ID, display.OneLine(r.Name, 30), display.OneLine(dueText(r.Schedule), 40),
				cmp.Or(display.LocalTime(r.Next), either(r.Enabled, "-", "paused")), last, cost}
		})
}

func either(is bool, a, b string) string {
	if is {
		return a
	}
	return b
}

// dueText returns when a schedule is due, in one line.
func dueText(s schedule.Schedule) string {
	switch {
	case s.Every != "":
		return "every " + s.Every
	case s.At != "":
		return "at " + display.LocalTime(s.At)
	case s.TimeZone != "":
		return s.Cron + " (" + s.TimeZone + ")"
	}
	return s.Cron
}

// complete reads the next due time and the last run of a schedule.
func (r *scheduleRow) complete(ctx context.Context, s *client.System) error {
	next, err := s.NextRuns(ctx, r.ID)
	if err != nil {
		return err
	}
	if len(next) > 0 {
		r.Next = events.FormatTime(next[0])
	}
	last, err := runsOf(ctx, s, r.ID, 1)
	if len(last) > 0 {
		r.Last = &last[0]
	}
	return err
}

// runsOf returns the newest runs of a schedule.
func runsOf(ctx context.Context, s *client.System, schedule string, limit int) ([]projections.PricedRun, error) {
	return client.List[projections.PricedRun](ctx, s, "schedule_runs",
		client.Select{Filter: fmt.Sprintf("schedule = %q", schedule), Sort: "-due,-created,-id", Limit: limit})
}

// shownRuns is the number of runs that show lists.
const shownRuns = 20

func (c *scheduleCommand) show(ctx context.Context, args []string) error {
	r, err := FindAs[scheduleRow](ctx, c.Records, args[0])
	if err != nil {
		return err
	}
	next, err := c.NextRuns(ctx, r.ID)
	if err != nil {
		return err
	}
	history, err := runsOf(ctx, c.System, r.ID, shownRuns)
	if err != nil {
		return err
	}
	if c.AsJSON {
		return PrintJSON(c.Env.Stdout,
			map[string]any{"id": r.ID, "schedule": r.Schedule, "next": next, "runs": history})
	}
	fmt.Fprintf(c.Env.Stdout, "%s  %s  %s\n", r.ID, display.OneLine(r.Name, 80), dueText(r.Schedule))
	fmt.Fprintf(c.Env.Stdout, "prompt: %s\n", display.OneLine(r.Prompt, 200))
	if !r.Enabled {
		fmt.Fprintln(c.Env.Stdout, "It is paused.")
	}
	printNextRuns(c.Env, next)
	return PrintList(c.Env, false, history, "it has not run yet", "DUE\tSTATE\tCOST\tCHAT\tREASON",
		func(p projections.PricedRun) []string {
			return []string{display.LocalTime(p.Due), p.State, budget.Dollars(p.Cost), cmp.Or(p.Chat, "-"),
				display.OneLine(p.Reason, 60)}
		})
}

func printNextRuns(env Environment, next []time.Time) {
	for i, at := range next {
		fmt.Fprintf(env.Stdout, "%s %s\n", either(i == 0, "next: ", "      "), at.Format("Mon 2006-01-02 15:04:05 MST"))
	}
}

func (c *scheduleCommand) start(ctx context.Context, args []string) error {
	r, err := FindAs[scheduleRow](ctx, c.Records, args[0])
	if err != nil {
		return err
	}
	chat, err := c.RunSchedule(ctx, r.ID)
	if err == nil {
		fmt.Fprintf(c.Env.Stdout, "%s\n", chat)
		fmt.Fprintln(c.Env.Stderr, "started; follow it with: pocketcoder chat", chat)
	}
	return err
}

// completeSchedule makes a schedule with a chat run in it.
func completeSchedule(set map[string]any, _ bool) {
	if chat, given := set["chat"]; given && chat != "" && set["session_mode"] == nil {
		set["session_mode"] = schedule.Existing
	}
}

// fields returns the schedule that the flags describe.
func (c *scheduleCommand) fields(ctx context.Context, name string) (map[string]any, error) {
	set, err := c.Fields(ctx)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{"session_mode": schedule.New, "enabled": true}
	maps.Copy(fields, set)
	fields["name"] = name
	return fields, nil
}

// add shows what a schedule would do, asks whether to save it, and saves it.
func (c *scheduleCommand) add(ctx context.Context, args []string) error {
	fields, err := c.fields(ctx, args[0])
	if err != nil {
		return err
	}
	v, err := c.PreviewSchedule(ctx, fields)
	if err != nil {
		return err
	}
	printPreview(c.Env, v)
	if !c.yes {
		if !c.Env.Interactive {
			return handlers.Refuse(handlers.Invalid, "nothing is saved; add --yes to save it without a terminal")
		}
		fmt.Fprintf(c.Env.Stdout, "Save schedule %s? [y/N] ", display.OneLine(args[0], 60))
		answer, _ := bufio.NewReader(c.Env.Stdin).ReadString('\n') // an end of the input is a no
		if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
			return ExitCode(1)
		}
	}
	id, err := c.Create(ctx, schedule.Collection, fields)
	if err == nil {
		_, err = fmt.Fprintln(c.Env.Stdout, id)
	}
	return err
}

func (c *scheduleCommand) preview(ctx context.Context, _ []string) error {
	fields, err := c.fields(ctx, "preview")
	if err != nil {
		return err
	}
	v, err := c.PreviewSchedule(ctx, fields)
	if err != nil {
		return err
	}
	if c.AsJSON {
		return PrintJSON(c.Env.Stdout, v)
	}
	printPreview(c.Env, v)
	return nil
}

func printPreview(env Environment, v schedule.Preview) {
	printNextRuns(env, v.Next)
	h := v.History
	fmt.Fprintf(env.Stdout, "Requests of the last %d days, %s: %d. With the rules as they are now: %d allowed, %d asked, %d denied.\n",
		h.Days, map[string]string{"chat": "in the chat", "agent": "of the agent", "account": "of the account"}[h.Scope],
		h.Requests, h.Allowed, h.Asked, h.Denied)
	for _, g := range h.Groups {
		rule := ""
		if g.Rule != "" {
			rule = "  (" + display.OneLine(g.Rule, 60) + ")"
		}
		fmt.Fprintf(env.Stdout, "  %4d× %-4s %s: %s%s\n", g.Count, g.Action, g.Type, display.OneLine(g.Text, 80), rule)
	}
}
