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

// joinWorkers shows which workers of the chat wait for the person.
func (c *conversation) joinWorkers(ctx context.Context) error {
	if !c.exists {
		return nil
	}
	var all []projections.Worker
	if err := c.Query(ctx, "workers", map[string]any{"chat": c.Chat, "after": c.joined}, &all); err != nil {
		return err
	}
	for _, w := range all {
		if w.IsBelow(c.Chat) && w.Pending > 0 {
			c.noteWorker(w)
		}
	}
	return nil
}

// followWorkers sends each worker of the chat that begins to wait for a person.
func (c *conversation) followWorkers(ctx context.Context, chat string) error {
	filters := []string{events.ChatSubject("*", events.PermissionReferred{}.Kind()),
		events.ChatOpenCodeSubject("*", events.QuestionAsked)}
	return c.Log.Read(ctx, c.joined, filters, func(b log.Batch) error {
		for _, e := range b.Events {
			var w projections.Worker
			// a chat that is not a worker has no record
			err := c.Query(ctx, "worker", map[string]any{"chat": e.Subject.ID, "after": e.Seq}, &w)
			if err != nil || !w.IsBelow(chat) || w.Pending == 0 {
				continue
			}
			if err := client.Send(ctx, c.waitingWorkers, w); err != nil {
				return err
			}
		}
		return nil
	})
}

// noteWorker says that a worker waits for the person.
func (c *conversation) noteWorker(w projections.Worker) {
	if c.terminal != nil {
		c.covered = c.terminal.Release() || c.covered
	}
	c.show.Note("", render.Yellow, "(worker %q waits for you; decide with: pocketcoder chat %s)",
		printable.OneLine(w.Title, 60), w.ID)
}
