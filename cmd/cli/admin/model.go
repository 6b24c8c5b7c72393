package admin

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"

	"pocketcoder/cmd/cli"
)

const modelUsage = `
  pocketcoder model list                            list the models; * marks the one for all chats
  pocketcoder model list --chat ID                  * marks the one of a chat
  pocketcoder model set PROVIDER/NAME               in all chats without a selection
  pocketcoder model set PROVIDER/NAME --user EMAIL  in all chats of an account
  pocketcoder model set PROVIDER/NAME --chat ID     in one chat
  pocketcoder model delete                          undo the selection for all chats; --user or --chat undoes that one

A chat uses its own selection, else the model of its agent, else the selection of its owner, else that for all chats,
else the model of "pocketcoder up --model".
`

// Model is the command model.
var Model = cli.Group{Name: "model", Usage: modelUsage, Former: map[string]string{"use": "set", "reset": "delete"},
	Own: func(r *cli.Records, fs *flag.FlagSet) map[string]cli.Verb {
		m := modelCommand{Records: r}
		fs.StringVar(&m.chat, "chat", "", "list, set, delete: only for this `chat`")
		fs.StringVar(&m.user, "user", "", "set, delete: only for the chats of the account with this `email`")
		return map[string]cli.Verb{"list": cli.Takes(0, 0, m.list), "set": cli.Takes(1, 1, m.set),
			"delete": cli.Takes(0, 0, m.reset)}
	}}

type modelCommand struct {
	*cli.Records
	chat, user string // user is an email
}

func (m *modelCommand) list(ctx context.Context, _ []string) error {
	all, err := m.Models(ctx, m.chat)
	if err != nil {
		return err
	}
	if m.AsJSON {
		return cli.PrintJSON(m.Env.Stdout, all)
	}
	if len(all.Models) == 0 {
		return errors.New("OpenCode has not listed its models yet; try again in a few seconds")
	}
	for _, model := range all.Models {
		mark := " "
		if model == cmp.Or(all.Selected, all.Configured) {
			mark = "*"
		}
		fmt.Fprintf(m.Env.Stdout, "%s %s\n", mark, model)
	}
	return nil
}

func (m *modelCommand) set(ctx context.Context, args []string) error { return m.choose(ctx, args[0]) }

func (m *modelCommand) reset(ctx context.Context, _ []string) error { return m.choose(ctx, "") }

// choose selects a model, or with an empty name clears the selection.
func (m *modelCommand) choose(ctx context.Context, model string) error {
	user := ""
	if m.user != "" {
		a, err := cli.FindAccount(ctx, m.System, m.user)
		if err != nil {
			return err
		}
		user = a.ID
	}
	return m.SelectModel(ctx, m.chat, user, model)
}
