package conversation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

// nextStep says when the assistant reads a message that is sent while it works.
const nextStep = "The assistant reads it after its current step."

// queueEntry is a message that the assistant has not read, and where it can be moved.
type queueEntry struct {
	projections.ShownMessage
	up, down *string // the message that it is put before to move it, "" for the end; nil if it cannot be moved so
}

// canChange reports whether the message can still be sent at once or deleted.
func (q queueEntry) canChange() bool { return q.UserStatus == "pending" }

// canEdit reports whether the message can still be changed. One of PocketCoder has neither a text of a person nor a
// place in the queue.
func (q queueEntry) canEdit() bool { return q.canChange() && q.Role == "user" }

func queueOf(waiting []projections.ShownMessage) []queueEntry {
	all := make([]queueEntry, len(waiting))
	for i, m := range waiting {
		all[i].ShownMessage = m
		if i == 0 || !all[i-1].canEdit() || !all[i].canEdit() {
			continue
		}
		all[i].up, all[i-1].down = &waiting[i-1].ID, new("")
		if i+1 < len(waiting) && waiting[i+1].Role == "user" {
			all[i-1].down = &waiting[i+1].ID
		}
	}
	return all
}

func queuePath(q queueEntry) string { return site.ChatPath(q.Chat) + "/queue/" + q.ID }

// changeQueue edits, moves, deletes or sends a message that waits.
func (c Conversation) changeQueue(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	next, message, fields := site.ChatPath(r.PathValue("id")), r.PathValue("message"), map[string]any{}
	if r.PostForm.Has("delete") {
		return next, c.Records.Delete(r.Context(), caller, "messages", message)
	}
	if r.PostForm.Has("text") {
		parts, err := c.edited(r.Context(), message, site.Field(r, "text"))
		if err != nil {
			return "", err
		}
		fields["parts"] = parts
	}
	for _, name := range []string{"before", "delivery"} {
		if r.PostForm.Has(name) {
			fields[name] = r.PostFormValue(name)
		}
	}
	return next, c.Records.Update(r.Context(), caller, "messages", message, fields)
}

// edited returns the parts of a message with another text. Its files stay.
func (c Conversation) edited(ctx context.Context, message, text string) ([]events.Part, error) {
	m, known, err := c.API.Model.Message(ctx, message)
	if err != nil || !known {
		return nil, err
	}
	var parts, edited []events.Part
	if err := json.Unmarshal([]byte(m.Submitted), &parts); err != nil {
		return nil, fmt.Errorf("read the parts of message %s: %w", message, err)
	}
	if strings.TrimSpace(text) != "" {
		edited = append(edited, events.Part{Type: "text", Text: text})
	}
	for _, p := range parts {
		if p.Type == "file" {
			edited = append(edited, p)
		}
	}
	if len(edited) == 0 {
		return nil, api.BadField("text", "validation_required", nothingToSend)
	}
	return edited, nil
}
