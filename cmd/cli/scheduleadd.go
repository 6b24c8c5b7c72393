package cli

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/schedule"
)

type scheduleFlags struct {
	schedule.Schedule
	at, starts  string
	agent, user string // name, email
}

func (f *scheduleFlags) add(fs *flag.FlagSet) {
	fs.StringVar(&f.Cron, "cron", "", "due at this cron `expression`: minute, hour, day of month, month, day of week; or six fields, with seconds first")
	fs.StringVar(&f.Every, "every", "", "due at this `interval`, such as 15m, 24h or 7d; it counts from the start, not from the last run")
	fs.StringVar(&f.at, "at", "", "due once at this `time`, such as \"2026-12-24 09:00\"")
	fs.StringVar(&f.TimeZone, "time-zone", "", "`zone` of --cron, --at and --starts, such as Europe/Berlin; default that of the server")
	fs.StringVar(&f.starts, "starts", "", "not due before this `time`")
	fs.StringVar(&f.Prompt, "prompt", "", "`text` that each run submits")
	fs.StringVar(&f.Chat, "chat", "", "submit it in this `chat`; default a new chat for each run")
	fs.StringVar(&f.agent, "agent", "", "`name` of the agent of new chats; default OpenCode's own")
	fs.StringVar(&f.Model, "model", "", "`provider/model` of new chats; default the selected one")
	fs.Float64Var(&f.MaxCost, "max-cost", 0, "stop a run that costs this `amount`, in US dollars; 0 is no limit")
	fs.StringVar(&f.Missed, "missed", "", "`action` after a downtime: skip what was missed, or once, one run for all that was missed; default skip, with --at once")
	fs.StringVar(&f.Overlap, "overlap", "", "`action` while the last run is not over: skip the next run, or queue it; default skip")
	fs.StringVar(&f.user, "user", "", "`email` of the account that it belongs to; default the operator, whose chats only administrators see")
}

func (f scheduleFlags) schedule(ctx context.Context, s *client.System, name string) (schedule.Schedule, error) {
	f.Name, f.Enabled, f.Mode = name, true, schedule.New
	if f.Chat != "" {
		f.Mode = schedule.Existing
	}
	var err error
	if f.At, err = schedule.ParseTime("at", f.at, f.TimeZone); err != nil {
		return f.Schedule, err
	}
	if f.Starts, err = schedule.ParseTime("starts", f.starts, f.TimeZone); err != nil {
		return f.Schedule, err
	}
	if f.user != "" {
		emails, err := s.Emails(ctx)
		if err != nil {
			return f.Schedule, err
		}
		if f.User, err = accountID(emails, f.user); err != nil {
			return f.Schedule, err
		}
	}
	if f.agent != "" {
		f.Agent, err = agentNamed(ctx, s, f.agent)
	}
	return f.Schedule, err
}

func agentNamed(ctx context.Context, s *client.System, name string) (string, error) {
	agents, err := client.Read[[]agent.Listed](ctx, s, "/api/agents")
	if err != nil {
		return "", err
	}
	for _, a := range agents {
		if a.Name == name || a.ID == name {
			return a.ID, nil
		}
	}
	return "", fmt.Errorf("there is no agent %.60q; \"pocketcoder agent list\" lists the agents", name)
}

func addSchedule(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "schedule add", scheduleUsage)
	at := ServerFlags(fs, env)
	var f scheduleFlags
	f.add(fs)
	yes := fs.Bool("yes", false, "save it without asking")
	name, err := ParseOne(fs, args, "the name is missing; for example: pocketcoder schedule add Report --cron \"0 9 * * 1-5\" --prompt \"Write the report\"")
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	one, err := f.schedule(ctx, s, name)
	if err != nil {
		return WrongUsage(env, "schedule add: %v", err)
	}
	v, err := s.PreviewSchedule(ctx, one)
	if err != nil {
		return invalidUsage(env, "schedule add", err)
	}
	printPreview(env, v)
	if !*yes {
		if !env.Interactive {
			return WrongUsage(env, "schedule add: nothing is saved; add --yes to save it without a terminal")
		}
		fmt.Fprintf(env.Stdout, "Save schedule %s? [y/N] ", printable.OneLine(name, 60))
		answer, _ := bufio.NewReader(env.Stdin).ReadString('\n') // an end of the input is a no
		if !strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y") {
			return ExitCode(1)
		}
	}
	id, err := s.Create(ctx, schedule.Collection, one)
	if err != nil {
		return invalidUsage(env, "schedule add", err)
	}
	_, err = fmt.Fprintln(env.Stdout, id)
	return err
}

func previewSchedule(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "schedule preview", scheduleUsage)
	at := ServerFlags(fs, env)
	asJSON := fs.Bool("json", false, "print JSON")
	var f scheduleFlags
	f.add(fs)
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	one, err := f.schedule(ctx, s, "preview")
	if err != nil {
		return WrongUsage(env, "schedule preview: %v", err)
	}
	v, err := s.PreviewSchedule(ctx, one)
	if err != nil {
		return invalidUsage(env, "schedule preview", err)
	}
	if *asJSON {
		return PrintJSON(env.Stdout, v)
	}
	printPreview(env, v)
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
			rule = "  (" + printable.OneLine(g.Rule, 60) + ")"
		}
		fmt.Fprintf(env.Stdout, "  %4d× %-4s %s: %s%s\n", g.Count, g.Action, g.Type, printable.OneLine(g.Text, 80), rule)
	}
}
