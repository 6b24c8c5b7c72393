package cli

import (
	"context"
	"fmt"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
)

const decideUsage = `pocketcoder approve ID, pocketcoder deny ID [REASON]: decide a permission request.

  pocketcoder requests                                     lists the requests with their ids
  pocketcoder approve 8f3kq0z2m4c6x1a
  pocketcoder deny 8f3kq0z2m4c6x1a                         deny it, and stop the turn
  pocketcoder deny 8f3kq0z2m4c6x1a "use make instead"      deny it, and tell the model why

approve prints what it approves. The first decision counts. "pocketcoder chat" also edits commands and answers questions.

Exit status: 0; 1 when there is no such request, it is decided already or it failed, 2 for wrong usage.
`

// Approve is the command approve.
func Approve(ctx context.Context, env Environment, args []string) error {
	return decide(ctx, env, "approve", args, 1, client.Decision{Status: events.Authorized})
}

// Deny is the command deny.
func Deny(ctx context.Context, env Environment, args []string) error {
	return decide(ctx, env, "deny", args, 2, client.Decision{Status: events.Denied})
}

// decide decides the request that the first argument names. The second argument is the reason.
func decide(ctx context.Context, env Environment, name string, args []string, most int, d client.Decision) error {
	fs := NewFlags(env, name, decideUsage)
	at := ServerFlags(fs, env)
	rest, err := Parse(fs, args, most)
	if err != nil {
		return err
	}
	if len(rest) == 0 {
		return WrongUsage(env, `%s: which request? "pocketcoder requests" lists them`, name)
	}
	if _, err := events.ParseID(rest[0]); err != nil {
		return WrongUsage(env, "%s: %v", name, err)
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	p, err := s.FindPermission(ctx, rest[0])
	if err != nil {
		return err
	}
	d.Reason, d.Hash, d.Files = strings.Join(rest[1:], ""), p.Request, p.FilesHash
	if err := s.Update(ctx, "permissions", p.ID, d); err != nil {
		return err
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: %s\n", d.Status, display.OneLine(p.Message, 400))
	return err
}
