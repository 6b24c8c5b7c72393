package chat

import (
	"context"
	"math"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// CountTitle stores what a request of OpenCode for the title of a chat's session cost.
type CountTitle struct {
	handlers.Command
	Chat string
	events.TitleGenerated
}

// maxTitleTokens bounds each count of tokens. It is far above the context of any model.
const maxTitleTokens = 1 << 30

func (c CountTitle) check() error {
	if c.Session == "" || c.Provider == "" || c.Model == "" {
		return handlers.Refuse(handlers.Invalid, "want a session, a provider and a model")
	}
	for _, n := range []int64{c.Input, c.Output, c.Reasoning, c.CacheRead, c.CacheWrite} {
		if n < 0 || n > maxTitleTokens {
			return handlers.Refuse(handlers.Invalid, "tokens: want 0 to %d, got %d", maxTitleTokens, n)
		}
	}
	if c.Cost < 0 || math.IsInf(c.Cost, 0) || math.IsNaN(c.Cost) {
		return handlers.Refuse(handlers.Invalid, "cost: want US dollars, got %v", c.Cost)
	}
	return handlers.CheckChat(c.Chat)
}

// CountTitle also counts the title of a chat that was deleted meanwhile, because the money is spent.
func (h *Chats) CountTitle(ctx context.Context, c CountTitle) (uint64, error) {
	if err := c.check(); err != nil {
		return 0, err
	}
	f := h.chat(ctx, c.Chat)
	return f.ExecuteOne(ctx, h.Log, c.Chat, c.Command, func(s *chatState) (events.Data, uint64, error) {
		if s.Created == 0 {
			return nil, 0, s.Missing(c.Chat)
		}
		return c.TitleGenerated, 0, nil
	})
}
