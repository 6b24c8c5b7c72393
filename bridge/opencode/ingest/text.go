package ingest

import (
	"context"
	"encoding/json"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/projections"
)

// keepText writes the streamed text of an interrupted answer to OpenCode, whose event adds it to the log. OpenCode
// itself stores a text only when it is complete (behaviour text-when-complete). The text is in DELTAS.
func (c *comparison) keepText(ctx context.Context, s projections.Session) error {
	step, goesOn, err := c.Model.UnfinishedStep(ctx, s.Chat)
	if err != nil || !goesOn || step.Session != s.ID {
		return err
	}
	m, err := c.Current().Message(ctx, s.ID, step.EngineMessage)
	if err != nil {
		return err
	}
	for _, raw := range m.Parts {
		var part map[string]any
		if err := json.Unmarshal(raw, &part); err != nil {
			return err
		}
		if part["type"] != "text" || part["text"] != "" {
			continue
		}
		id, _ := part["id"].(string)
		text, err := c.streamedText(ctx, s.Chat, id)
		if err != nil || text == "" {
			return err
		}
		part["text"] = text
		if err := c.Current().ReplacePart(ctx, s.ID, step.EngineMessage, id, part); err != nil {
			return err
		}
		if err := c.fetchHistory(ctx); err != nil { // so that the log has the text before it has the loss
			return err
		}
	}
	return nil
}

// streamedText returns what OpenCode has streamed of a text.
func (c *comparison) streamedText(ctx context.Context, chat, part string) (string, error) {
	var text strings.Builder
	_, err := c.Log.FoldDeltas(ctx, events.PartDeltaSubject(chat), 0, func(d log.Delta) error {
		var fragment struct{ PartID, Delta string }
		if json.Unmarshal(d.Data, &fragment) == nil && fragment.PartID == part {
			text.WriteString(fragment.Delta)
		}
		return nil
	})
	return text.String(), err
}
