package main

import (
	"context"
	"errors"

	"pocketcoder/events"
	"pocketcoder/projections"
)

const whyUsage = `pocketcoder policy why [REQUEST|CHAT]: explain why a request was allowed, denied or asked, and what then ran.

  pocketcoder policy why                    the last request of the most recently active chat
  pocketcoder policy why h2k0x9c3v7m1q5z    the last request of this chat
  pocketcoder policy why 8f3kq0z2m4c6x1a    this request: chat, replay and requests show the id
  pocketcoder policy why per_f1c2…          the same by OpenCode's id, as "pocketcoder replay CHAT --json" shows it
  pocketcoder policy why --json             for scripts

It shows the request, every rule that was examined, who decided when and from which device, which command ran and how it
ended, and the events with their sequences: "pocketcoder replay CHAT --at SEQUENCE" shows the chat as it stood then.

Exit status: 0; 1 when there is no such request or it failed, 2 for wrong usage.
`

func runWhy(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "policy why", whyUsage)
	data := dataFlag(fs, env)
	asJSON := fs.Bool("json", false, "print JSON")
	rest, err := parse(fs, args, 1)
	if err != nil {
		return err
	}
	id := ""
	if len(rest) == 1 {
		if id, err = events.ParseID(rest[0]); err != nil {
			return wrongUsage(env, "why: %v", err)
		}
	}
	s, err := connect(ctx, dataDir(*data))
	if err != nil {
		return err
	}
	defer s.close()
	if id, err = requestToExplain(ctx, s, id); err != nil {
		return err
	}
	why, err := s.why(ctx, id)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(env.stdout, why)
	}
	show := rendererOf(env)
	show.email = s.emailOf(ctx)
	show.why(why)
	return show.err
}

// requestToExplain is the request that an id names: its own, or its chat's. Without an id it is the last one of the most
// recently active chat.
func requestToExplain(ctx context.Context, s *system, id string) (string, error) {
	if id == "" {
		var chats []projections.Chat
		if err := s.query(ctx, "chats", map[string]any{"limit": 1, "offset": 0}, &chats); err != nil {
			return "", err
		}
		if len(chats) == 0 {
			return "", errors.New("there is no chat yet, so there is no request to explain")
		}
		return s.lastRequest(ctx, chats[0].ID)
	}
	last, err := s.log.Last(ctx)
	if err != nil {
		return "", err
	}
	if s.query(ctx, "chat", map[string]any{"chat": id, "after": last}, &projections.Chat{}) == nil {
		return s.lastRequest(ctx, id)
	}
	return id, nil
}
