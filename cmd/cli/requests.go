package cli

import (
	"context"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
)

const requestsUsage = `pocketcoder requests: list the requests and questions that wait for a person, in all chats, the oldest first.

  pocketcoder requests
  pocketcoder requests --json               for scripts
  pocketcoder chat h2k0x9c3v7m1q5z          decide the requests of a chat
  pocketcoder policy why 8f3kq0z2m4c6x1a    why a request was not decided by a rule
  pocketcoder mcp show lab                  what a pending MCP server (mcp_server) runs

The list has permission requests, questions of the assistant and pending MCP servers. Requests that a rule decides are not in it.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func Requests(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "requests", requestsUsage)
	at := ServerFlags(fs, env)
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	pending, err := s.Requests(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return PrintJSON(env.Stdout, pending)
	}
	return render.Requests(env.Stdout, pending)
}
