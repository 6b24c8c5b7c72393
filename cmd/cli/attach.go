package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/program"
	"pocketcoder/cmd/viewer"
	"pocketcoder/events"
)

const attachUsage = `pocketcoder attach [CHAT]: watch the commands of a chat in tmux.

  pocketcoder attach                        the newest chat that is not archived
  pocketcoder attach h2k0x9c3v7m1q5z
  pocketcoder attach --shell                also open a shell of your own in the sandbox

The first window shows the chat's commands as they run, like "pocketcoder replay --follow". Each running subagent has a window.

  C-b n, C-b p    next, previous window        C-b c    open a shell in the sandbox
  C-b 0 to 9      window with this number      C-b x    close the window
  C-b [           scroll; q ends that          C-b d    leave

Inside another tmux, press C-b twice. To select text, hold shift. No command gets what you type outside a shell.

A shell is recorded as the operator's, or over SSH as that of the key's account. "pocketcoder sandbox shell --private CHAT"
opens a shell whose output is not recorded.
`

type attachOptions struct {
	at    *client.Address
	chat  string // empty for the newest chat
	shell bool
	all   bool   // the account sees all chats
	key   string // id of the SSH key that logged in; empty without one
}

func attachFlags(env Environment, args []string) (attachOptions, error) {
	fs := NewFlags(env, "attach", attachUsage)
	o := attachOptions{at: ServerFlags(fs, env)}
	fs.BoolVar(&o.shell, "shell", false, "also open a shell in the sandbox")
	// The lines of authorized_keys have the internal flags.
	fs.StringVar(&o.at.Account, "user", "", internalFlag+"`id` of the account that attaches: it sees its own chats, and owns the shell")
	fs.BoolVar(&o.all, "all", false, internalFlag+"show the chats of all accounts; --user must be an administrator")
	ssh := fs.Bool("ssh", false, internalFlag+"take the chat from SSH_ORIGINAL_COMMAND")
	fs.StringVar(&o.key, "key", "", internalFlag+"`id` of the SSH key that logged in: its last_used is set")
	rest, err := Parse(fs, args, 1)
	if err != nil {
		return o, err
	}
	if _, err := events.ParseID(o.at.Account); o.at.Account != "" && err != nil {
		return o, WrongUsage(env, "attach: --user: %v", err)
	}
	if *ssh {
		rest = strings.Fields(env.Getenv("SSH_ORIGINAL_COMMAND"))
	}
	if len(rest) > 1 {
		return o, WrongUsage(env, "attach: over SSH the only command is the id of a chat, as in: ssh -t HOST h2k0x9c3v7m1q5z")
	}
	if len(rest) == 1 {
		if o.chat, err = events.ParseID(rest[0]); err != nil {
			return o, WrongUsage(env, "attach: %v", err)
		}
	}
	return o, nil
}

func Attach(ctx context.Context, env Environment, args []string) error {
	o, err := attachFlags(env, args)
	if err != nil {
		return err
	}
	if !env.Interactive {
		return errors.New("attach: it needs a terminal; over SSH ask for one with: ssh -t")
	}
	v, err := viewer.Open(ctx, *o.at)
	if err != nil {
		return fmt.Errorf("attach: %w", err)
	}
	session, err := o.open(ctx, v)
	if err != nil {
		return err
	}
	return v.Attach(ctx, session, env.Getenv)
}

func (o attachOptions) open(ctx context.Context, v viewer.Viewer) (session string, err error) {
	if o.key != "" {
		if err := o.recordLogin(ctx); err != nil {
			return "", fmt.Errorf("attach: record the login: %w", err)
		}
	}
	s, err := client.Connect(ctx, *o.at)
	if err != nil {
		return "", err
	}
	defer s.Close()
	if o.chat, err = o.find(ctx, s); err != nil {
		return "", err
	}
	if session, err = v.Show(ctx, o.chat); err == nil {
		err = v.Enter(ctx, os.Getpid(), o.at.Account)
	}
	if err == nil && o.shell {
		err = v.OpenShell(ctx, o.chat, o.at.Account)
	}
	if err != nil {
		return "", fmt.Errorf("attach: %w", err)
	}
	// The chat may have a new owner since. A later change of the owner closes the session.
	_, err = o.find(ctx, s)
	return session, err
}

// recordLogin records that the SSH key has logged in, as the operator: an account may not change when its key was used.
func (o attachOptions) recordLogin(ctx context.Context) error {
	operator := *o.at
	operator.Account = ""
	s, err := client.Connect(ctx, operator)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.UseKey(ctx, o.key)
}

// find returns the chat to attach to. It returns an error if the account may not see the chat.
func (o attachOptions) find(ctx context.Context, s *client.System) (chat string, err error) {
	owner := o.at.Account
	if o.all {
		owner = ""
	}
	if o.chat == "" {
		chat, err := s.NewestChat(ctx, owner)
		if err == nil && chat.ID == "" {
			err = errors.New("attach: there is no chat to show; start one with: " + program.Name() + " chat")
		}
		return chat.ID, err
	}
	row, err := s.FindChat(ctx, o.chat)
	if err == nil && owner != "" && row.User != owner {
		err = fmt.Errorf("there is no chat %s", o.chat) // does not reveal that the chat exists
	}
	return row.ID, err
}
