package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/policy/display"
)

const policyAddUsage = `pocketcoder policy allow|ask|deny RULE: create a rule. It applies to new requests, also in running chats.

  pocketcoder policy allow 'bash: npm run build*'           run it without asking, with any further words
  pocketcoder policy allow 'edit: docs/**' --for 1h         for an hour
  pocketcoder policy allow 'network: *.example.org'         commands may connect to these hosts
  pocketcoder policy allow 'webfetch: https://docs.example.org/*'
  pocketcoder policy allow 'mcp: github_list'               one tool of an MCP server
  pocketcoder policy deny 'bash: git push*'                 refuse it without asking
  pocketcoder policy deny 'read: customers/**'              refuse to read these files; commands that would read them ask
  pocketcoder policy ask 'bash: git commit*' --chat ID      ask in one chat, even if a rule allows it

A rule is "PERMISSION: PATTERN"; "pocketcoder policy test -h" explains both. Deny beats ask, and ask beats allow. A
request that no rule allows asks a person. A new allow rule also allows pending requests, unless OpenCode restarted
after it asked. Creating a rule a second time changes the action and the end of the first.

Try a rule before you create it: pocketcoder policy replay RULE shows what it would have allowed.
Undo it: pocketcoder policy delete ID.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

// ruleAdder returns the subcommand that creates rules with an action.
func ruleAdder(action policy.Action) func(context.Context, Environment, []string) error {
	return func(ctx context.Context, env Environment, args []string) error {
		name := "policy " + string(action)
		fs := NewFlags(env, name, policyAddUsage)
		at := ServerFlags(fs, env)
		chat := fs.String("chat", "", "only for this `chat`; default every chat")
		project := fs.String("project", "", "only for the chats of this project: its `name` or id")
		duration := fs.Duration("for", 0, "`duration` after which the rule ends, such as 1h; 0 means never")
		text, err := ParseOne(fs, args, "the rule is missing; for example: pocketcoder "+name+" 'bash: git push*'")
		if err != nil {
			return err
		}
		rule, err := parseAction(action, text)
		if err == nil && *duration < 0 {
			err = fmt.Errorf("--for %v: want a duration above 0, such as 1h", *duration)
		}
		if err != nil {
			return WrongUsage(env, "%s: %v", name, err)
		}
		s, err := client.Connect(ctx, *at)
		if err != nil {
			return err
		}
		defer s.Close()
		of := ""
		if *project != "" {
			if of, err = projectOf(ctx, s, *at, *project); err != nil {
				return err
			}
		}
		return addRule(ctx, s, env, rule, *chat, of, *duration)
	}
}

// parseAction parses a rule whose action is that of the subcommand. The text may repeat the action.
func parseAction(action policy.Action, text string) (policy.Rule, error) {
	if head, _, _ := strings.Cut(text, ":"); !strings.Contains(strings.TrimSpace(head), " ") {
		text = string(action) + " " + strings.TrimSpace(text)
	}
	rule, err := policy.ParseRule(text)
	if err == nil && rule.Action != action {
		err = fmt.Errorf("the rule %q says %s; use pocketcoder policy %s", text, rule.Action, rule.Action)
	}
	return rule.OfTool(), err
}

func addRule(ctx context.Context, s *client.System, env Environment, rule policy.Rule, chat, project string,
	duration time.Duration) error {
	fields := map[string]any{
		"tool": rule.Permission, "pattern": rule.Pattern, "action": string(rule.Action), "chat": chat, "agent": "",
		"project": project, "expires_at": "", "note": "pocketcoder policy " + string(rule.Action), "active": true,
	}
	whom, until := "every chat", ""
	if chat != "" {
		if _, err := s.FindChat(ctx, chat); err != nil {
			return err
		}
		whom = "chat " + chat
	} else if project != "" {
		whom = "every chat of the project"
	}
	if duration > 0 {
		end := events.FormatTime(time.Now().Add(duration))
		fields["expires_at"], until = end, " until "+display.LocalTime(end)
	}
	id, err := s.Replace(ctx, ruleCollections[0], []string{"tool", "pattern", "chat", "agent", "project"}, fields)
	if err != nil {
		return err
	}
	if rule.Action == policy.Allow && rule.Pattern == "*" {
		fmt.Fprintf(env.Stderr, "warning: every %s request is allowed from now on without asking\n", rule.Permission)
	}
	for _, limit := range rule.Limits() {
		fmt.Fprintf(env.Stderr, "note: %s\n", limit)
	}
	_, err = fmt.Fprintf(env.Stdout, "%s, for %s%s\nundo it with: pocketcoder policy delete %s/%s\n", rule, whom, until,
		ruleCollections[0], id)
	return err
}
