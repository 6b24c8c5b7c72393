package console

import (
	"context"
	"encoding/json"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
)

// joinDelegates shows which delegates of the chat wait for the person.
func (c *conversation) joinDelegates(ctx context.Context) error {
	if !c.exists {
		return nil
	}
	all, err := c.Delegates(ctx, c.Chat, 1000)
	if err != nil {
		return err
	}
	for _, w := range all {
		if w.IsBelow(c.Chat) && w.Pending > 0 {
			c.noteDelegate(w)
		}
	}
	return nil
}

// followDelegates sends each delegate of the chat that begins to wait for a person.
func (c *conversation) followDelegates(ctx context.Context, chat string) error {
	seen := map[string]bool{} // records of requests and questions
	return c.Watch(ctx, []string{"permissions", "questions"}, func(body json.RawMessage) error {
		var r struct {
			ID, Chat, Status string
			Referred         *bool // of a permission: the policy left it to a person
		}
		if err := json.Unmarshal(body, &r); err != nil {
			return err
		}
		waits := r.Status == projections.QuestionAsked || r.Referred != nil && *r.Referred &&
			r.Status == events.Draft
		if !waits || seen[r.ID] || r.Chat == chat {
			return nil
		}
		seen[r.ID] = true
		w, err := c.Delegate(ctx, r.Chat) // a chat that is not a delegate has no record
		if err != nil || !w.IsBelow(chat) || w.Pending == 0 {
			return nil
		}
		return client.Send(ctx, c.waitingDelegates, w.Delegate)
	})
}

// noteDelegate says that a delegate waits for the person.
func (c *conversation) noteDelegate(w projections.Delegate) {
	if c.terminal != nil {
		c.covered = c.terminal.Release() || c.covered
	}
	c.show.Note("", render.Yellow, "(delegate %q waits for you; decide with: pocketcoder chat %s)",
		display.OneLine(w.Title, 60), w.ID)
}
