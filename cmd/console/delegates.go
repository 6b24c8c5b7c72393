package console

import (
	"context"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/cmd/printable"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections"
)

// joinDelegates shows which delegates of the chat wait for the person.
func (c *conversation) joinDelegates(ctx context.Context) error {
	if !c.exists {
		return nil
	}
	var all []projections.Delegate
	if err := c.Query(ctx, "workers", map[string]any{"chat": c.Chat, "after": c.joined}, &all); err != nil {
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
	filters := []string{events.ChatSubject("*", events.PermissionReferred{}.Kind()),
		events.ChatOpenCodeSubject("*", events.QuestionAsked)}
	return c.Log.Read(ctx, c.joined, filters, func(b log.Batch) error {
		for _, e := range b.Events {
			var w projections.Delegate
			// a chat that is not a delegate has no record
			err := c.Query(ctx, "worker", map[string]any{"chat": e.Subject.ID, "after": e.Seq}, &w)
			if err != nil || !w.IsBelow(chat) || w.Pending == 0 {
				continue
			}
			if err := client.Send(ctx, c.waitingDelegates, w); err != nil {
				return err
			}
		}
		return nil
	})
}

// noteDelegate says that a delegate waits for the person.
func (c *conversation) noteDelegate(w projections.Delegate) {
	if c.terminal != nil {
		c.covered = c.terminal.Release() || c.covered
	}
	c.show.Note("", render.Yellow, "(delegate %q waits for you; decide with: pocketcoder chat %s)",
		printable.OneLine(w.Title, 60), w.ID)
}
