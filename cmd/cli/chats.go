package cli

import (
	"context"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
)

const chatsUsage = `pocketcoder chats: list chats, the most recently active first.

  pocketcoder chats                 list 20 chats
  pocketcoder chats --limit 3
  pocketcoder chats --json          for scripts, with the number of requests that wait for a person
  pocketcoder chat h2k0x9c3v7m1q5z  open one of them

TURN says who must act: "you: 1 request" if a decision or an answer is needed, "you" if the assistant waits for a message, and
"assistant" while it works. "pocketcoder requests" lists the requests.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func Chats(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "chats", chatsUsage)
	at := ServerFlags(fs, env)
	limit := fs.Int("limit", 20, "list at most this `number` of chats")
	asJSON := fs.Bool("json", false, "print a JSON list")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	if *limit < 1 {
		return WrongUsage(env, "chats: --limit must be at least 1, got %d", *limit)
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	chats, err := s.Chats(ctx, *limit)
	if err != nil {
		return err
	}
	if *asJSON {
		return PrintJSON(env.Stdout, chats)
	}
	return render.Chats(env.Stdout, chats)
}
