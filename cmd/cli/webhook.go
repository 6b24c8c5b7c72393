package cli

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/printable"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
)

const webhookUsage = `pocketcoder webhook: the URLs that get events. Add them on the page of the settings or over the API.

  pocketcoder webhook list                  list the targets, the URLs that get events
  pocketcoder webhook failed                list the events that a target did not accept, the newest first
  pocketcoder webhook replay builds 1204    send the events from a sequence on again
  pocketcoder webhook token builds          print a new token of a target, or of a webhook by its id; the old one ends

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func Webhook(ctx context.Context, env Environment, args []string) error {
	c := channelCommand{env: env}
	fs := NewFlags(env, "webhook", webhookUsage)
	at := ServerFlags(fs, env)
	fs.IntVar(&c.limit, "limit", 50, "failed: list at most this `number`")
	fs.BoolVar(&c.asJSON, "json", false, "list, failed: print a JSON list")
	rest, err := Parse(fs, args, 3)
	if err != nil {
		return err
	}
	switch {
	case len(rest) == 1 && rest[0] == "list":
		return c.connected(ctx, *at, func() error { return c.targets(ctx) })
	case len(rest) == 1 && rest[0] == "failed":
		return c.connected(ctx, *at, func() error { return c.failed(ctx) })
	case len(rest) == 2 && rest[0] == "token":
		return c.connected(ctx, *at, func() error { return c.renewToken(ctx, rest[1]) })
	case len(rest) == 3 && rest[0] == "replay":
		from, err := strconv.ParseUint(rest[2], 10, 64)
		if err != nil {
			return WrongUsage(env, "webhook replay: want a sequence such as 1204, got %q", rest[2])
		}
		return c.connected(ctx, *at, func() error {
			return c.Send(ctx, http.MethodPost, "/api/pocketcoder/webhook_targets/"+url.PathEscape(rest[1])+"/replay",
				map[string]uint64{"from": from}, nil)
		})
	}
	return WrongUsage(env, "webhook: want list, failed, replay with a target and a sequence, or token with a target or a webhook")
}

// renewToken replaces the token of a target, by its name or its id, or of a webhook by its id.
func (c *channelCommand) renewToken(ctx context.Context, name string) error {
	targets, err := c.storedTargets(ctx)
	if err != nil {
		return err
	}
	path := channel.Webhooks + "/" + url.PathEscape(name)
	for _, t := range targets {
		if t.ID == name || t.Name == name {
			path = channel.Targets + "/" + t.ID
		}
	}
	var made record.NewToken
	err = c.Send(ctx, http.MethodPost, "/api/pocketcoder/"+path+"/token", nil, &made)
	if handlers.CodeOf(err) == handlers.NotFound {
		err = fmt.Errorf("there is no webhook with the id %q, and no target of this name", name)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(c.env.Stdout, made.Token)
	return err
}

func (c *channelCommand) storedTargets(ctx context.Context) ([]channel.Target, error) {
	return client.List[channel.Target](ctx, c.System, channel.Targets, client.Select{Sort: "updated,id"})
}

func (c *channelCommand) targets(ctx context.Context) error {
	all, err := c.storedTargets(ctx)
	if err != nil {
		return err
	}
	return PrintList(c.env, c.asJSON, all, "no targets", "NAME\tSTATE\tTYPES\tURL", func(t channel.Target) []string {
		state := "disabled"
		if t.Enabled {
			state = "enabled"
		}
		return []string{printable.OneLine(t.Name, 40), state, printable.OneLine(t.Types, 60), printable.OneLine(t.URL, 60)}
	})
}

func (c *channelCommand) failed(ctx context.Context) error {
	targets, err := c.storedTargets(ctx)
	if err != nil {
		return err
	}
	all, err := client.List[projections.NamedWebhookFailure](ctx, c.System, "webhook_failures",
		client.Select{Sort: "-position", Limit: c.limit})
	if err != nil {
		return err
	}
	for i, f := range all {
		for _, t := range targets {
			if t.ID == f.Target {
				all[i].Name = t.Name
			}
		}
	}
	const header = "FAILED\tTARGET\tEVENT\tTYPE\tTRIES\tREASON"
	return PrintList(c.env, c.asJSON, all, "no event has failed", header,
		func(f projections.NamedWebhookFailure) []string {
			return []string{f.Created, printable.OneLine(f.Name, 40), fmt.Sprint(f.Event), f.Type,
				fmt.Sprint(f.Attempts), printable.OneLine(f.Reason, 60)}
		})
}
