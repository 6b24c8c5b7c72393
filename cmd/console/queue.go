package console

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
)

// queuedMessage is a message that waits to be sent.
type queuedMessage struct {
	projections.Message
	Parts []events.Part `json:"parts"`
}

// slashQueue lists the messages that wait, or changes one of them. Numbers are those of the list that was shown last,
// so that a message that was sent meanwhile does not make them mean other messages.
func (c *conversation) slashQueue(ctx context.Context, words string) error {
	name, rest, _ := strings.Cut(words, " ")
	if name == "" {
		return c.showQueue(ctx)
	}
	number, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.Atoi(number)
	switch {
	case err != nil || text != "" && name != "edit":
		return errors.New("write /queue, or /queue with edit N TEXT, delete N, up N or now N")
	case len(c.listedQueue) == 0:
		return errors.New("list the queue first: /queue shows the numbers of the messages")
	case n < 1 || n > len(c.listedQueue):
		return fmt.Errorf("choose a number from 1 to %d", len(c.listedQueue))
	}
	if err := c.changeQueue(ctx, name, n-1, strings.TrimSpace(text)); err != nil {
		return err
	}
	return c.showQueue(ctx)
}

// queue returns the messages of the chat that wait to be sent.
func (c *conversation) queue(ctx context.Context) ([]queuedMessage, error) {
	return client.List[queuedMessage](ctx, c.System, "messages", client.Select{Sort: "position",
		Filter: fmt.Sprintf(`chat = %q && user_message_status = "pending" && (role = "user" || (held != "" && held_by = ""))`, c.Chat)})
}

// changeQueue changes the message at an index of the list that was shown last.
func (c *conversation) changeQueue(ctx context.Context, name string, i int, text string) error {
	m, change := c.listedQueue[i], map[string]any{}
	switch {
	case name == "delete":
		return c.Delete(ctx, "messages", m.ID)
	case name == "edit" && text == "":
		return errors.New("write the new text of the message after its number")
	case name == "edit":
		change["parts"] = m.edited(text)
	case name == "up" && i == 0:
		return errors.New("this message is the first already")
	case name == "up":
		change["before"] = c.listedQueue[i-1].ID
	case name == "now":
		change["delivery"] = events.DeliverySteer
	default:
		return fmt.Errorf("%q is not known; a message can be changed with edit, delete, up and now", name)
	}
	return c.Update(ctx, "messages", m.ID, change)
}

// showQueue lists the messages that wait.
func (c *conversation) showQueue(ctx context.Context) (err error) {
	c.listedQueue = nil
	if c.exists {
		if c.listedQueue, err = c.queue(ctx); err != nil {
			return err
		}
	}
	if len(c.listedQueue) == 0 {
		c.show.Note("", render.Dim, "(no message waits)")
	}
	for i, m := range c.listedQueue {
		c.show.Note("", render.Plain, "%3d  %s", i+1, display.OneLine(m.text(), 200))
		if m.Delivery == events.DeliverySteer {
			c.show.Note("", render.Dim, "     (the assistant reads it after its current step)")
		}
		if m.Held != "" {
			c.show.Note("", render.Dim, "     (%s)", display.OneLine(m.Held, 200))
		}
	}
	return nil
}

const whatReleases = "send the next one, or use /queue now N, to go on."

// noteHeld tells how many messages wait because the turn was stopped.
func (c *conversation) noteHeld(ctx context.Context) error {
	all, err := c.queue(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m queuedMessage) bool { return m.Held == "" || m.HeldBy != "" })
	switch n := len(all); n {
	case 0:
	case 1:
		c.show.Note("", render.Yellow, "Stopped. 1 queued message waits: %s", whatReleases)
	default:
		c.show.Note("", render.Yellow, "Stopped. %d queued messages wait: %s", n, whatReleases)
	}
	return nil
}

func (m queuedMessage) text() string {
	return render.MessageText(events.MessageSubmitted{Parts: m.Parts})
}

// edited returns the parts of the message with another text. Its files stay.
func (m queuedMessage) edited(text string) []events.Part {
	parts := []events.Part{{Type: "text", Text: text}}
	for _, p := range m.Parts {
		if p.Type == "file" {
			parts = append(parts, p)
		}
	}
	return parts
}
