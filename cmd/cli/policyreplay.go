package cli

import (
	"cmp"
	"context"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

const policyReplayUsage = `pocketcoder policy replay RULE: which past requests a rule would have allowed. Nothing is stored.

  pocketcoder policy replay 'bash: git status*'
  pocketcoder policy replay 'bash: npm run build*' --chat h2k0x9c3v7m1q5z
  pocketcoder policy replay 'deny bash: rm*' --json      the requests that it would have denied

The rule is tried together with the active rules of each chat, on the last 10,000 requests and the current files.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func runPolicyReplay(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "policy replay", policyReplayUsage)
	at := ServerFlags(fs, env)
	chat := fs.String("chat", "", "of this `chat` alone")
	asJSON := fs.Bool("json", false, "print JSON")
	text, err := ParseOne(fs, args, "which rule? for example 'bash: git status*'")
	if err != nil {
		return err
	}
	rule, err := policy.ParseRule(text)
	if err == nil {
		err = rule.Check()
	}
	if err == nil && *chat != "" {
		_, err = events.ParseID(*chat)
	}
	if err != nil {
		return WrongUsage(env, "policy replay: %v", err)
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	run, err := s.ReplayRule(ctx, rule, *chat)
	if err != nil {
		return err
	}
	if *asJSON {
		return PrintJSON(env.Stdout, run)
	}
	show := newRenderer(env)
	does := map[policy.Action]string{policy.Deny: "denied", policy.AskPerson: "asked a person about"}
	show.Note("", render.Bold, "%s would have %s %d of the last %d requests", rule, cmp.Or(does[rule.Action], "allowed"),
		run.Allowed, run.Requests)
	show.Commands(run, len(run.Commands))
	return show.Err
}
