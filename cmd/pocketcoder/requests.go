package main

import (
	"context"
)

const requestsUsage = `pocketcoder requests: list the requests and questions that wait for a person, in all chats, the oldest first.

  pocketcoder requests
  pocketcoder requests --json               for scripts
  pocketcoder chat h2k0x9c3v7m1q5z          decide those of a chat
  pocketcoder policy why 8f3kq0z2m4c6x1a    why a request was not decided by a rule

The list has requests for permission and questions of the assistant. A request that a rule decides is not in it.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func runRequests(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "requests", requestsUsage)
	data := dataFlag(fs, env)
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := parse(fs, args, 0); err != nil {
		return err
	}
	s, err := connect(ctx, dataDir(*data))
	if err != nil {
		return err
	}
	defer s.close()
	pending, err := s.requests(ctx)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(env.stdout, pending)
	}
	return printRequests(env.stdout, pending)
}
