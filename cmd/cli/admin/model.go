package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
)

const modelUsage = `pocketcoder model: list the models, and select the model that answers.

  pocketcoder model list                            list the models; * marks the one for all chats
  pocketcoder model list --chat ID                  * marks the one of a chat
  pocketcoder model use PROVIDER/NAME               in all chats without a selection
  pocketcoder model use PROVIDER/NAME --user EMAIL  in all chats of an account
  pocketcoder model use PROVIDER/NAME --chat ID     in one chat
  pocketcoder model reset                           undo the selection for all chats; --user or --chat undoes that one

A chat uses its own selection, else the model of its agent, else the selection of its owner, else that for all chats,
else the model of "pocketcoder up --model".

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

type modelCommand struct {
	*client.System
	env        cli.Environment
	chat, user string // user is an email
	asJSON     bool
}

func Model(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "model", modelUsage)
	at := cli.ServerFlags(fs, env)
	m := modelCommand{env: env}
	fs.StringVar(&m.chat, "chat", "", "list, use, reset: only for this `chat`")
	fs.StringVar(&m.user, "user", "", "use, reset: only for the chats of the account with this `email`")
	fs.BoolVar(&m.asJSON, "json", false, "list: print JSON")
	return cli.RunVerb(ctx, env, fs, args, at, map[string]cli.Verb{
		"list": cli.Takes(0, 0, m.list), "use": cli.Takes(1, 1, m.use), "reset": cli.Takes(0, 0, m.reset),
	}, func(s *client.System) { m.System = s })
}

func (m *modelCommand) list(ctx context.Context, _ []string) error {
	all, err := m.Models(ctx, m.chat)
	if err != nil {
		return err
	}
	if m.asJSON {
		return cli.PrintJSON(m.env.Stdout, all)
	}
	if len(all.Models) == 0 {
		return errors.New("OpenCode has not listed its models yet; try again in a few seconds")
	}
	for _, model := range all.Models {
		mark := " "
		if model == cmp.Or(all.Selected, all.Configured) {
			mark = "*"
		}
		fmt.Fprintf(m.env.Stdout, "%s %s\n", mark, model)
	}
	return nil
}

func (m *modelCommand) use(ctx context.Context, args []string) error { return m.choose(ctx, args[0]) }

func (m *modelCommand) reset(ctx context.Context, _ []string) error { return m.choose(ctx, "") }

// choose selects a model, or with an empty name clears the selection.
func (m *modelCommand) choose(ctx context.Context, model string) error {
	user := ""
	if m.user != "" {
		a, err := findAccount(ctx, m.System, m.user)
		if err != nil {
			return err
		}
		user = a.ID
	}
	return m.SelectModel(ctx, m.chat, user, model)
}
