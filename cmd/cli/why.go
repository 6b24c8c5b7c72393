package cli

import (
	"context"
	"errors"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
)

const whyUsage = `pocketcoder policy why [REQUEST|CHAT]: explain how a request was decided and why, and what ran then.

  pocketcoder policy why                    the last request of the most recently active chat
  pocketcoder policy why h2k0x9c3v7m1q5z    the last request of this chat
  pocketcoder policy why 8f3kq0z2m4c6x1a    this request: chat, replay and requests show the id
  pocketcoder policy why per_f1c2…          the same by OpenCode's id, as "pocketcoder replay CHAT --json" shows it
  pocketcoder policy why --json             for scripts

It shows the request, every rule that was checked, the author, time and device of the decision, the command and its result,
and the events with their sequences. "pocketcoder replay CHAT --at SEQUENCE" shows the chat after an event.

Exit status: 0; 1 when there is no such request or it failed, 2 for wrong usage.
`

func runWhy(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "policy why", whyUsage)
	at := ServerFlags(fs, env)
	asJSON := fs.Bool("json", false, "print JSON")
	rest, err := Parse(fs, args, 1)
	if err != nil {
		return err
	}
	id := ""
	if len(rest) == 1 {
		if id, err = events.ParseID(rest[0]); err != nil {
			return WrongUsage(env, "why: %v", err)
		}
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	if id, err = requestToExplain(ctx, s, id); err != nil {
		return err
	}
	why, err := s.Why(ctx, id)
	if err != nil {
		return err
	}
	if *asJSON {
		return PrintJSON(env.Stdout, why)
	}
	show := newRenderer(env)
	show.Email = s.EmailOf(ctx)
	show.Why(why)
	return show.Err
}

// requestToExplain returns the request with an id, or the last request of the chat with that id. Without an id it
// returns the last request of the most recently active chat.
func requestToExplain(ctx context.Context, s *client.System, id string) (string, error) {
	if id == "" {
		chats, err := client.List[client.Created](ctx, s, "chats", client.Select{Filter: `parent = ""`,
			Sort: "-last_active,id", Limit: 1})
		if err != nil {
			return "", err
		}
		if len(chats) == 0 {
			return "", errors.New("there is no chat yet, so there is no request to explain")
		}
		return s.LastRequest(ctx, chats[0].ID)
	}
	if _, err := s.FindChat(ctx, id); err == nil {
		return s.LastRequest(ctx, id)
	}
	return id, nil
}
