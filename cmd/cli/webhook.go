package cli

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"pocketcoder/cmd/client"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/record"
	"pocketcoder/projections"
)

const webhookUsage = `
  pocketcoder webhook set builds --url https://example.org/hook --types turn.lost   add a target; prints its token
  pocketcoder webhook failed                list the events that a target did not accept, the newest first
  pocketcoder webhook replay builds 1204    send the events from a sequence on again
  pocketcoder webhook token builds          replace the token of a target, or of a webhook by its id, and print it
`

// Targets is the command webhook.
var Targets = Group{Name: "webhook", Usage: webhookUsage, Stored: func() any { return &[]channel.Target{} },
	Own: func(r *Records, fs *flag.FlagSet) map[string]Verb {
		limit := fs.Int("limit", 50, "failed: list at most this `number`")
		return map[string]Verb{
			"failed": Takes(0, 0, func(ctx context.Context, _ []string) error { return listFailures(ctx, r, *limit) }),
			"token":  Takes(1, 1, func(ctx context.Context, args []string) error { return renewToken(ctx, r, args[0]) }),
			"replay": Takes(2, 2, func(ctx context.Context, args []string) error {
				from, err := strconv.ParseUint(args[1], 10, 64)
				if err != nil {
					return handlers.Refuse(handlers.Invalid, "want a sequence such as 1204, got %.40q", args[1])
				}
				return r.Send(ctx, http.MethodPost, "/api/pocketcoder/webhook_targets/"+url.PathEscape(args[0])+"/replay",
					map[string]uint64{"from": from}, nil)
			}),
		}
	}}

// renewToken replaces the token of a target, by its name or its id, or of a webhook by its id.
func renewToken(ctx context.Context, r *Records, name string) error {
	path := channel.Webhooks + "/" + url.PathEscape(name)
	_, target, err := r.find(ctx, name)
	switch {
	case err == nil:
		path = channel.Targets + "/" + target.Text("id")
	case handlers.CodeOf(err) != handlers.NotFound:
		return err
	}
	var made record.NewToken
	err = r.Send(ctx, http.MethodPost, "/api/pocketcoder/"+path+"/token", nil, &made)
	if handlers.CodeOf(err) == handlers.NotFound {
		err = fmt.Errorf("there is no webhook with the id %q, and no target of this name", name)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(r.Env.Stdout, made.Token)
	return err
}

func listFailures(ctx context.Context, r *Records, limit int) error {
	all, err := client.List[projections.NamedWebhookFailure](ctx, r.System, "webhook_failures",
		client.Select{Sort: "-position", Limit: limit})
	if err != nil {
		return err
	}
	for i, f := range all {
		all[i].Name = r.namesOf(ctx, channel.Targets)[f.Target]
	}
	const header = "FAILED\tTARGET\tEVENT\tTYPE\tTRIES\tREASON"
	return PrintList(r.Env, r.AsJSON, all, "no event has failed", header,
		func(f projections.NamedWebhookFailure) []string {
			return []string{f.Created, display.OneLine(f.Name, 40), fmt.Sprint(f.Event), f.Type,
				fmt.Sprint(f.Attempts), display.OneLine(f.Reason, 60)}
		})
}
