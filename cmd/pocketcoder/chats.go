package main

import (
	"context"
)

const chatsUsage = `pocketcoder chats: list chats, the most recently active first.

  pocketcoder chats                 list 20 chats
  pocketcoder chats --limit 3
  pocketcoder chats --json          for scripts, with the number of requests that wait for a person
  pocketcoder chat h2k0x9c3v7m1q5z  open one of them

TURN names the side that must act: "you: 1 request" when a decision or an answer is needed, "you" when the assistant waits for a
message, "assistant" while it works. "pocketcoder requests" shows what is requested.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func runChats(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "chats", chatsUsage)
	data := dataFlag(fs, env)
	limit := fs.Int("limit", 20, "list at most this `number` of chats")
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := parse(fs, args, 0); err != nil {
		return err
	}
	if *limit < 1 {
		return wrongUsage(env, "chats: --limit must be at least 1, got %d", *limit)
	}
	s, err := connect(ctx, dataDir(*data))
	if err != nil {
		return err
	}
	defer s.close()
	chats, err := s.chats(ctx, *limit)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(env.stdout, chats)
	}
	return printChats(env.stdout, chats)
}
