package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/channel"
	"pocketcoder/projections"
)

const channelUsage = `pocketcoder channel: talk to the assistant in a messenger, and approve there what it may do.

  pocketcoder channel add phone < token.txt     add a bot of Telegram; the token is the first line of stdin
  pocketcoder channel add mail --address assistant@example.org --imap imaps://imap.example.org \
      --smtp smtps://smtp.example.org --authserv-id mx.example.org < password.txt
                                                add a mailbox; the password is the first line of stdin
  pocketcoder channel list                      list the channels
  pocketcoder channel disable phone             stop a channel; enable starts it again
  pocketcoder channel token phone < token.txt   replace the token or password
  pocketcoder channel messages                  list what has left, waits or failed, the newest first
  pocketcoder channel remove phone              delete a channel, its token and its pairings

Then pair yourself: pocketcoder pair phone. See docs/channels.md. The flag --server is that of the Bot API here: for a
system elsewhere, set POCKETCODER_SERVER.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

const pairUsage = `pocketcoder pair: let a person act for an account in a messenger.

  pocketcoder pair phone                             print a code; send it to the bot or mailbox within ten minutes
  pocketcoder pair phone --user ann@example.org      the same for one of several accounts
  pocketcoder pair list                              list the pairings
  pocketcoder pair revoke h2k0x9c3v7m1q5z            end a pairing

A code works once. It pairs the person who sends it, in the conversation from which it is sent. To use a group, each
member sends a code of an account to the group: /pair@BOT CODE.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

// channelCommand is one call of a command with its flags.
type channelCommand struct {
	*client.System
	env                   Environment
	server, trigger, user string
	mailbox               channel.Channel // address, servers
	limit                 int
	asJSON                bool
}

func Channel(ctx context.Context, env Environment, args []string) error {
	c := channelCommand{env: env}
	fs := NewFlags(env, "channel", channelUsage)
	fs.StringVar(&c.server, "server", "", "add: `URL` of a Bot API server of your own")
	fs.StringVar(&c.trigger, "trigger", "", "add: `word` that begins a message to the assistant in a group; a mention of the bot always does")
	fs.StringVar(&c.mailbox.Address, "address", "", "add: `address` of a mailbox, in place of a bot of Telegram")
	fs.StringVar(&c.mailbox.Server, "imap", "", "add: `URL` of the IMAP server of the mailbox: imaps://HOST, or imap://HOST for STARTTLS")
	fs.StringVar(&c.mailbox.SMTP, "smtp", "", "add: `URL` of the SMTP server of the mailbox: smtps://HOST, or smtp://HOST for STARTTLS")
	fs.StringVar(&c.mailbox.Authserv, "authserv-id", "", "add: `name` of the receiving server, the first word of its Authentication-Results headers; separate several names with spaces")
	fs.IntVar(&c.limit, "limit", 50, "messages: list at most this `number`")
	fs.BoolVar(&c.asJSON, "json", false, "list, messages: print a JSON list")
	at := ServerFlags(fs, env) // its flag is that of the Bot API server
	rest, err := Parse(fs, args, 2)
	if err != nil {
		return err
	}
	verbs := map[string]func(context.Context, string) error{"add": c.add, "token": c.token, "remove": c.remove,
		"enable": c.enable(true), "disable": c.enable(false)}
	switch name := strings.Join(rest, " "); {
	case len(rest) == 2 && verbs[rest[0]] != nil:
		return c.connected(ctx, *at, func() error { return verbs[rest[0]](ctx, rest[1]) })
	case name == "list":
		return c.connected(ctx, *at, func() error { return c.list(ctx) })
	case name == "messages":
		return c.connected(ctx, *at, func() error { return c.messages(ctx) })
	}
	return WrongUsage(env, "channel: want add, token, enable, disable or remove with a name, list, or messages")
}

func Pair(ctx context.Context, env Environment, args []string) error {
	c := channelCommand{env: env}
	fs := NewFlags(env, "pair", pairUsage)
	at := ServerFlags(fs, env)
	fs.StringVar(&c.user, "user", "", "`email` of the account")
	fs.BoolVar(&c.asJSON, "json", false, "print JSON")
	rest, err := Parse(fs, args, 2)
	if err != nil {
		return err
	}
	switch {
	case len(rest) == 1 && rest[0] == "list":
		return c.connected(ctx, *at, func() error { return c.pairings(ctx) })
	case len(rest) == 2 && rest[0] == "revoke":
		return c.connected(ctx, *at, func() error {
			return c.Delete(ctx, channel.Pairings, rest[1])
		})
	case len(rest) == 1:
		return c.connected(ctx, *at, func() error { return c.code(ctx, rest[0]) })
	}
	return WrongUsage(env, "pair: want the name of a channel, list, or revoke and a pairing")
}

// connected runs fn with a connection to the running system. c must be the receiver of fn's methods.
func (c *channelCommand) connected(ctx context.Context, at client.Address, fn func() error) error {
	s, err := client.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer s.Close()
	c.System = s
	return fn()
}

func (c *channelCommand) all(ctx context.Context) ([]channel.Channel, error) {
	return client.List[channel.Channel](ctx, c.System, channel.Collection, client.Select{Sort: "updated,id"})
}

func (c *channelCommand) named(ctx context.Context, name string) (channel.Channel, error) {
	all, err := c.all(ctx)
	if err != nil {
		return channel.Channel{}, err
	}
	i := slices.IndexFunc(all, func(one channel.Channel) bool { return one.Name == name || one.ID == name })
	if i < 0 {
		return channel.Channel{}, fmt.Errorf("no channel has the name %q; list them with: pocketcoder channel list", name)
	}
	return all[i], nil
}

func (c *channelCommand) readToken() (string, error) {
	line, err := bufio.NewReader(c.env.Stdin).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", fmt.Errorf("read the token: %w", err)
	}
	if line = strings.TrimSpace(line); line == "" {
		return "", errors.New("the token or password is missing: it is the first line of stdin")
	}
	return line, nil
}

func (c *channelCommand) add(ctx context.Context, name string) error {
	token, err := c.readToken()
	if err != nil {
		return err
	}
	values := map[string]any{"name": name, "kind": channel.Telegram, "token": token, "server": c.server,
		"trigger": c.trigger}
	if m := c.mailbox; m != (channel.Channel{}) {
		values = map[string]any{"name": name, "kind": channel.Email, "token": token, "server": m.Server, "smtp": m.SMTP,
			"address": m.Address, "authserv_id": m.Authserv}
	}
	if _, err := c.Create(ctx, channel.Collection, values); err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.env.Stdout, "Channel %s is added. Pair yourself: pocketcoder pair %[1]s\n", name)
	return err
}

func (c *channelCommand) token(ctx context.Context, name string) error {
	one, err := c.named(ctx, name)
	if err != nil {
		return err
	}
	token, err := c.readToken()
	if err != nil {
		return err
	}
	return c.Update(ctx, channel.Collection, one.ID, map[string]any{"token": token})
}

func (c *channelCommand) enable(enabled bool) func(context.Context, string) error {
	return func(ctx context.Context, name string) error {
		one, err := c.named(ctx, name)
		if err != nil {
			return err
		}
		return c.Update(ctx, channel.Collection, one.ID, map[string]any{"enabled": enabled})
	}
}

func (c *channelCommand) remove(ctx context.Context, name string) error {
	one, err := c.named(ctx, name)
	if err != nil {
		return err
	}
	return c.System.Delete(ctx, channel.Collection, one.ID)
}

func (c *channelCommand) list(ctx context.Context) error {
	all, err := c.all(ctx)
	if err != nil {
		return err
	}
	const empty = "no channels; add one with: pocketcoder channel add NAME < token.txt"
	const header = "NAME\tKIND\tSTATE\tTRIGGER\tADDRESS\tSERVER"
	return PrintList(c.env, c.asJSON, all, empty, header, func(one channel.Channel) []string {
		state := "disabled"
		if one.Enabled {
			state = "enabled"
		}
		return []string{printable.OneLine(one.Name, 40), one.Kind, state, printable.OneLine(one.Trigger, 20),
			printable.OneLine(one.Address, 60), printable.OneLine(one.Server, 60)}
	})
}

func (c *channelCommand) messages(ctx context.Context) error {
	all, err := client.List[projections.ChannelMessage](ctx, c.System, "channel_messages",
		client.Select{Sort: "-position,id", Limit: c.limit})
	if err != nil {
		return err
	}
	const header = "QUEUED\tCHAT\tTYPE\tSTATE\tTRIES\tTEXT"
	return PrintList(c.env, c.asJSON, all, "nothing has left through a channel", header,
		func(m projections.ChannelMessage) []string {
			state := m.State
			if m.Reason != "" {
				state += " (" + printable.OneLine(m.Reason, 60) + ")"
			}
			return []string{m.Created, m.Chat, m.Type, state, fmt.Sprint(m.Attempts), printable.OneLine(m.Text, 60)}
		})
}

func (c *channelCommand) code(ctx context.Context, name string) error {
	user, err := c.owner(ctx)
	if err != nil {
		return err
	}
	var code channel.Code
	err = c.Send(ctx, http.MethodPost, "/api/pocketcoder/pair", map[string]string{"channel": name, "user": user}, &code)
	if err != nil {
		return err
	}
	if c.asJSON {
		return PrintJSON(c.env.Stdout, code)
	}
	one, err := c.named(ctx, name)
	if err != nil {
		return err
	}
	to, text := "the bot", "/start "+code.Code
	if one.Kind == channel.Email {
		to, text = one.Address+", as the subject or the first line", code.Code
	}
	_, err = fmt.Fprintf(c.env.Stdout, "Send this to %s, until %s. It works once:\n\n  %s\n",
		printable.OneLine(to, 300), code.Expires.Local().Format(time.TimeOnly), text)
	return err
}

// owner returns the account with the email of the flag, or the only account of a person.
func (c *channelCommand) owner(ctx context.Context) (string, error) {
	all, err := c.Accounts(ctx)
	if err != nil {
		return "", err
	}
	people := slices.DeleteFunc(all, func(a account.Account) bool {
		return a.Disabled || a.Role == account.Agent || c.user != "" && !strings.EqualFold(a.Email, strings.TrimSpace(c.user))
	})
	if len(people) != 1 {
		return "", fmt.Errorf("%d accounts can be meant; name one with --user EMAIL", len(people))
	}
	return people[0].ID, nil
}

func (c *channelCommand) pairings(ctx context.Context) error {
	all, err := client.List[channel.Pairing](ctx, c.System, channel.Pairings, client.Select{Sort: "updated,id"})
	if err != nil {
		return err
	}
	channels, err := c.all(ctx)
	if err != nil {
		return err
	}
	emails, err := c.Emails(ctx)
	if err != nil {
		return err
	}
	const header = "ID\tCHANNEL\tPERSON\tADDRESS\tWHERE\tACCOUNT\tSTATE"
	return PrintList(c.env, c.asJSON, all, "no pairings; make one with: pocketcoder pair CHANNEL", header,
		func(p channel.Pairing) []string {
			name, where := p.Channel, "private"
			for _, one := range channels {
				if one.ID == p.Channel {
					name = one.Name
				}
			}
			if p.Group {
				where = "group " + p.Place
			}
			return []string{p.ID, printable.OneLine(name, 40), printable.OneLine(p.Name, 40), p.Address, where,
				printable.OneLine(emails[p.User], 60), pairingState(p)}
		})
}

func pairingState(p channel.Pairing) string {
	expires, err := time.Parse(events.TimeFormat, p.Expires)
	if err != nil || time.Now().After(expires) {
		return "expired"
	}
	return "until " + expires.Local().Format(time.DateOnly)
}
