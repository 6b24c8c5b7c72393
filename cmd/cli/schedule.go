package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	"pocketcoder/events"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/schedule"
	"pocketcoder/projections"
)

const scheduleUsage = `pocketcoder schedule: submit prompts at the times that you set.

  pocketcoder schedule add "Nightly tests" --cron "0 3 * * *" --prompt "Run the tests and fix what fails"
  pocketcoder schedule add "Watch" --every 2h --chat h2k0x9c3v7m1q5z --prompt "Look at the new issues"
  pocketcoder schedule add "Reminder" --at "2026-12-24 09:00" --prompt "Write the summary of the year"
  pocketcoder schedule preview --cron "0 3 * * *" --prompt "Run the tests"
  pocketcoder schedule list
  pocketcoder schedule show "Nightly tests"     print its fields, its next runs, and its last runs with result and cost
  pocketcoder schedule pause "Nightly tests"    start nothing until it is resumed
  pocketcoder schedule resume "Nightly tests"
  pocketcoder schedule run "Nightly tests"      start a run now
  pocketcoder schedule cancel "Nightly tests"   delete it; its chats stay

Each run submits the prompt to a new chat. With --chat it submits the prompt to that chat, before the messages that
people queued there. A run asks for permissions as every chat does. Before "add" saves, it shows the next five runs, and
the requests of the last 30 days that the rules would now leave to a person. A schedule is named by its name or its id.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func Schedule(ctx context.Context, env Environment, args []string) error {
	if len(args) == 0 {
		return listSchedules(ctx, env, args)
	}
	verbs := map[string]func(context.Context, Environment, []string) error{
		"add": addSchedule, "list": listSchedules, "show": showSchedule, "preview": previewSchedule,
		"run": runSchedule, "cancel": cancelSchedule,
		"pause": func(ctx context.Context, env Environment, args []string) error {
			return enableSchedule(ctx, env, args, false)
		},
		"resume": func(ctx context.Context, env Environment, args []string) error {
			return enableSchedule(ctx, env, args, true)
		},
	}
	command, ok := verbs[args[0]]
	switch {
	case !ok && strings.HasPrefix(args[0], "-"):
		return listSchedules(ctx, env, args)
	case !ok:
		return NoVerb(env, "schedule", args[0], verbs)
	}
	return command(ctx, env, args[1:])
}

// scheduleRow is a stored schedule as a list shows it.
type scheduleRow struct {
	ID string `json:"id"`
	schedule.Schedule
	Next string                 `json:"next,omitempty"`
	Last *projections.PricedRun `json:"last,omitempty"`
}

func listSchedules(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "schedule list", scheduleUsage)
	at := ServerFlags(fs, env)
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	all, err := storedSchedules(ctx, s)
	for i := 0; i < len(all) && err == nil; i++ {
		err = all[i].complete(ctx, s)
	}
	if err != nil {
		return err
	}
	return PrintList(env, *asJSON, all, "there is no schedule; pocketcoder schedule -h shows how to add one",
		"SCHEDULE\tNAME\tDUE\tNEXT\tLAST RUN\tCOST", func(r scheduleRow) []string {
			last, cost := "-", "-"
			if r.Last != nil {
				last, cost = r.Last.State, budget.Dollars(r.Last.Cost)
			}
			return []string{r.ID, printable.OneLine(r.Name, 30), printable.OneLine(dueText(r.Schedule), 40),
				cmp.Or(printable.LocalTime(r.Next), either(r.Enabled, "-", "paused")), last, cost}
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
		return "at " + printable.LocalTime(s.At)
	case s.TimeZone != "":
		return s.Cron + " (" + s.TimeZone + ")"
	}
	return s.Cron
}

// storedSchedules returns the schedules, the oldest first.
func storedSchedules(ctx context.Context, s *client.System) ([]scheduleRow, error) {
	return client.List[scheduleRow](ctx, s, schedule.Collection, client.Select{Sort: "created,id"})
}

// complete reads the next due time and the last run of a schedule.
func (r *scheduleRow) complete(ctx context.Context, s *client.System) error {
	next, err := s.NextRuns(ctx, r.ID)
	if err != nil {
		return err
	}
	if len(next) > 0 {
		r.Next = next[0].UTC().Format(events.TimeFormat)
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

// withSchedule parses the arguments of a command on one schedule, and calls do with it.
func withSchedule(ctx context.Context, env Environment, command string, args []string,
	do func(s *client.System, r scheduleRow, asJSON bool) error) error {
	fs := NewFlags(env, "schedule "+command, scheduleUsage)
	at := ServerFlags(fs, env)
	asJSON := fs.Bool("json", false, "print JSON")
	id, err := ParseOne(fs, args, "the id of the schedule is missing; \"pocketcoder schedule list\" lists the schedules")
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	all, err := storedSchedules(ctx, s)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.ID == id || r.Name == id {
			return do(s, r, *asJSON)
		}
	}
	return fmt.Errorf("there is no schedule %.60q; \"pocketcoder schedule list\" lists the schedules", id)
}

// shownRuns is the number of runs that show lists.
const shownRuns = 20

func showSchedule(ctx context.Context, env Environment, args []string) error {
	return withSchedule(ctx, env, "show", args, func(s *client.System, r scheduleRow, asJSON bool) error {
		next, err := s.NextRuns(ctx, r.ID)
		if err != nil {
			return err
		}
		history, err := runsOf(ctx, s, r.ID, shownRuns)
		if err != nil {
			return err
		}
		if asJSON {
			return PrintJSON(env.Stdout,
				map[string]any{"id": r.ID, "schedule": r.Schedule, "next": next, "runs": history})
		}
		fmt.Fprintf(env.Stdout, "%s  %s  %s\n", r.ID, printable.OneLine(r.Name, 80), dueText(r.Schedule))
		fmt.Fprintf(env.Stdout, "prompt: %s\n", printable.OneLine(r.Prompt, 200))
		if !r.Enabled {
			fmt.Fprintln(env.Stdout, "It is paused.")
		}
		printNextRuns(env, next)
		return PrintList(env, false, history, "it has not run yet", "DUE\tSTATE\tCOST\tCHAT\tREASON",
			func(p projections.PricedRun) []string {
				return []string{printable.LocalTime(p.Due), p.State, budget.Dollars(p.Cost), cmp.Or(p.Chat, "-"),
					printable.OneLine(p.Reason, 60)}
			})
	})
}

func printNextRuns(env Environment, next []time.Time) {
	for i, at := range next {
		fmt.Fprintf(env.Stdout, "%s %s\n", either(i == 0, "next: ", "      "), at.Format("Mon 2006-01-02 15:04:05 MST"))
	}
}

func runSchedule(ctx context.Context, env Environment, args []string) error {
	return withSchedule(ctx, env, "run", args, func(s *client.System, r scheduleRow, _ bool) error {
		chat, err := s.RunSchedule(ctx, r.ID)
		if err == nil {
			fmt.Fprintf(env.Stdout, "%s\n", chat)
			fmt.Fprintln(env.Stderr, "started; follow it with: pocketcoder chat", chat)
		}
		return err
	})
}

func enableSchedule(ctx context.Context, env Environment, args []string, on bool) error {
	verb := either(on, "resume", "pause")
	return withSchedule(ctx, env, verb, args, func(s *client.System, r scheduleRow, _ bool) error {
		err := s.Update(ctx, schedule.Collection, r.ID, map[string]bool{"enabled": on})
		if err == nil {
			fmt.Fprintln(env.Stderr, either(on, "resumed:", "paused:"), r.ID)
		}
		return err
	})
}

func cancelSchedule(ctx context.Context, env Environment, args []string) error {
	return withSchedule(ctx, env, "cancel", args, func(s *client.System, r scheduleRow, _ bool) error {
		err := s.Delete(ctx, schedule.Collection, r.ID)
		if err == nil {
			fmt.Fprintln(env.Stderr, "cancelled:", r.ID)
		}
		return err
	})
}

func accountID(emails map[string]string, email string) (string, error) {
	for id, known := range emails {
		if strings.EqualFold(known, email) {
			return id, nil
		}
	}
	return "", fmt.Errorf("there is no account %.60q; \"pocketcoder user list\" lists the accounts", email)
}
