package replay

import (
	"context"
	"fmt"
	"io"
	"slices"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/projections"
)

// moment is a chat as it stood after an event.
type moment struct {
	Chat        string                     `json:"chat"`
	Sequence    uint64                     `json:"sequence"`
	Turn        string                     `json:"turn"`        // user, assistant
	Permissions []events.PermissionRequest `json:"permissions"` // that wait for a decision
	Questions   []string                   `json:"questions"`   // that wait for an answer: OpenCode's id, /, which of them
	// those of what was not removed; of a part the last, and the updates of a tool call that has ended
	Events []events.Event `json:"events"`
}

// records are what the server has computed from the log about a moment.
type records struct {
	Chat     struct{ Turn string }
	Messages []struct {
		ID    string                `json:"ai_engine_message_id"`
		Parts []struct{ ID string } // OpenCode's
	}
	Questions []struct {
		render.Question
		Status string
	}
}

func replayAt(ctx context.Context, s *client.System, o Options, show *render.Renderer, out io.Writer) error {
	var all []events.Event
	at, isDeleted := uint64(0), false // a deleted chat has no records, so at is before its deletion
	o.To = o.At
	err := eachEvent(ctx, s, o, func(e events.Event, _ []byte) error {
		all, isDeleted = append(all, e), isDeleted || e.Subject.Kind == (events.Deleted{}).Kind()
		if !isDeleted {
			at = e.Seq
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(all) == 0 {
		return fmt.Errorf("chat %s begins after event #%d", o.Chat, o.At)
	}
	was, err := client.Read[records](ctx, s, fmt.Sprintf("/api/chats/%s/replay?at=%d", o.Chat, at))
	if err != nil {
		return fmt.Errorf("compute the chat as of #%d: %w", at, err)
	}
	m := moment{Chat: o.Chat, Sequence: o.At, Turn: was.Chat.Turn, Permissions: []events.PermissionRequest{},
		Questions: was.pendingQuestions(), Events: was.standing(all)}
	if o.JSON {
		show.Out = io.Discard
	}
	for _, e := range m.Events {
		show.Event(e)
	}
	show.Finish()
	for _, a := range show.Pending() {
		show.ShowRequest(a)
		m.Permissions = append(m.Permissions, a.Content)
	}
	if o.JSON {
		return printLine(out, m)
	}
	show.Note("", render.Dim, "— at #%d: the turn is the %s's; pending: permissions %d, questions %d", o.At, m.Turn,
		len(m.Permissions), len(m.Questions))
	return show.Err
}

// standing returns the events that are still valid. A part has the position of its last change, so that a call follows
// its request and its command. OpenCode changes calls again that have ended long ago.
func (r records) standing(all []events.Event) []events.Event {
	exists, last := map[string]bool{"": true}, map[string]uint64{}
	for _, m := range r.Messages {
		exists[m.ID] = true
		for _, p := range m.Parts {
			exists[p.ID] = true
		}
	}
	payloadOf := func(e events.Event) (string, render.Payload) {
		typ, _ := e.Subject.OpenCodeType()
		if typ == "" || e.Malformed != nil {
			return "", render.Payload{}
		}
		return typ, render.ReadPayload(events.OpenCode{Type: typ, Properties: e.Data})
	}
	for _, e := range all {
		_, p := payloadOf(e)
		last[p.Part.ID] = e.Seq
	}
	return slices.DeleteFunc(all, func(e events.Event) bool {
		switch typ, p := payloadOf(e); typ {
		case "session.status", "session.idle", "session.diff", "message.removed", "message.part.removed":
			return true // of no use after it
		case "message.updated":
			return !exists[p.Info.ID]
		case "message.part.updated":
			isEnded := p.Part.State.Status == "completed" || p.Part.State.Status == "error"
			return !exists[p.Part.MessageID] || !exists[p.Part.ID] || last[p.Part.ID] > e.Seq && !isEnded
		}
		return false
	})
}

// pendingQuestions returns the questions that wait for an answer, sorted.
func (r records) pendingQuestions() []string {
	open := []string{}
	for _, q := range r.Questions {
		if q.Status == projections.QuestionAsked {
			open = append(open, fmt.Sprintf("%s/%d", q.ID, q.Index))
		}
	}
	slices.Sort(open)
	return open
}
