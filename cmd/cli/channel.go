package cli

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
)

const channelUsage = `
  pocketcoder channel set phone < token.txt     add a bot of Telegram; the token is the first line of stdin
  pocketcoder channel set mail --address assistant@example.org --imap imaps://imap.example.org \
      --smtp smtps://smtp.example.org --authserv-id mx.example.org < password.txt
                                                add a mailbox; the password is the first line of stdin
  pocketcoder channel set phone --token < token.txt   replace the token or password
  pocketcoder channel messages                  list what has left, waits or failed, the newest first

Then pair yourself: pocketcoder pair phone. See docs/channels.md. The flag --server is that of the Bot API here: for a
system elsewhere, set POCKETCODER_SERVER. delete also deletes the token and the pairings of a channel.
`

// Channels is the command channel.
var Channels = Group{Name: "channel", Usage: channelUsage, Former: map[string]string{"add": "set", "remove": "delete"},
	Created: "Channel %s is added. Pair yourself: pocketcoder pair %[1]s\n",
	Stored:  func() any { return &[]channel.Channel{} },
	Complete: func(set map[string]any, isNew bool) {
		if isNew && set["kind"] == nil && set["address"] != nil {
			set["kind"] = channel.Email
		}
	},
	Own: func(r *Records, fs *flag.FlagSet) map[string]Verb {
		limit := fs.Int("limit", 50, "messages: list at most this `number`")
		fs.Func("imap", internalFlag+"server of a mailbox", func(text string) error {
			r.Given["server"] = text
			return nil
		})
		return map[string]Verb{
			"messages": Takes(0, 0, func(ctx context.Context, _ []string) error { return listMessages(ctx, r, *limit) }),
			"token": Former(Takes(1, 1, func(ctx context.Context, args []string) error {
				r.Given["token"] = ""
				return r.set(ctx, args)
			})),
		}
	}}

const pairUsage = `
  pocketcoder pair phone                             print a code; send it to the bot or mailbox within ten minutes
  pocketcoder pair phone --user ann@example.org      the same for one of several accounts

A code works once. It pairs the person who sends it, in the conversation from which it is sent. To use a group, each
member sends a code of an account to the group: /pair@BOT CODE.
`

// Pairings is the command pair.
var Pairings = Group{Name: "pair", Usage: pairUsage, Former: map[string]string{"revoke": "delete"}, Default: "code",
	Stored: func() any { return &[]channel.Pairing{} },
	Own: func(r *Records, fs *flag.FlagSet) map[string]Verb {
		user := fs.String("user", "", "`email` of the account")
		return map[string]Verb{"code": Former(Takes(1, 1, func(ctx context.Context, args []string) error {
			return printCode(ctx, r, args[0], *user)
		}))}
	}}

func listMessages(ctx context.Context, r *Records, limit int) error {
	all, err := client.List[projections.ChannelMessage](ctx, r.System, "channel_messages",
		client.Select{Sort: "-position,id", Limit: limit})
	if err != nil {
		return err
	}
	const header = "QUEUED\tCHAT\tTYPE\tSTATE\tTRIES\tTEXT"
	return PrintList(r.Env, r.AsJSON, all, "nothing has left through a channel", header,
		func(m projections.ChannelMessage) []string {
			state := m.State
			if m.Reason != "" {
				state += " (" + display.OneLine(m.Reason, 60) + ")"
			}
			return []string{m.Created, m.Chat, m.Type, state, fmt.Sprint(m.Attempts), display.OneLine(m.Text, 60)}
		})
}

// printCode prints a code that pairs the person who sends it through a channel.
func printCode(ctx context.Context, r *Records, name, user string) error {
	owner, err := Owner(ctx, r.System, user)
	if err != nil {
		return err
	}
	var code channel.Code
	err = r.Send(ctx, http.MethodPost, "/api/pocketcoder/pair",
		map[string]string{"channel": name, "user": owner.ID}, &code)
	if err != nil {
		return err
	}
	if r.AsJSON {
		return PrintJSON(r.Env.Stdout, code)
	}
	all, err := client.List[channel.Channel](ctx, r.System, channel.Collection, client.Select{})
	if err != nil {
		return err
	}
	to, text := "the bot", "/start "+code.Code
	if i := slices.IndexFunc(all, func(c channel.Channel) bool { return c.Name == name || c.ID == name }); i >= 0 &&
		all[i].Kind == channel.Email {
		to, text = all[i].Address+", as the subject or the first line", code.Code
	}
	_, err = fmt.Fprintf(r.Env.Stdout, "Send this to %s, until %s. It works once:\n\n  %s\n",
		display.OneLine(to, 300), code.Expires.Local().Format(time.TimeOnly), text)
	return err
}
