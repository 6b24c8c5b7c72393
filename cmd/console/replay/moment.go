package replay

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/cmd/console/turn"
	"pocketcoder/events"
)

// moment is a chat as it stood after an event.
type moment struct {
	Chat        string                 `json:"chat"`
	Sequence    uint64                 `json:"sequence"`
	Turn        string                 `json:"turn"`        // user, assistant
	Permissions []events.PermissionAsk `json:"permissions"` // that wait for a decision
	Questions   []string               `json:"questions"`   // that wait for an answer: OpenCode's id, /, which of them
	// of each message and part the last; nothing of what was removed
	Events []events.Event `json:"events"`
}

func replayAt(ctx context.Context, s *client.System, o Options, show *render.Renderer, out io.Writer) error {
	f, t := newFold(), turn.New("")
	o.To = o.At
	err := eachEvent(ctx, s, o, func(e events.Event, _ []byte) error { f.apply(e); t.Apply(e); return nil })
	if err != nil {
		return err
	}
	standing := f.events()
	if len(standing) == 0 {
		return fmt.Errorf("chat %s begins after event #%d", o.Chat, o.At)
	}
	if o.JSON {
		show.Out = io.Discard
	}
	for _, e := range standing {
		show.Event(e)
	}
	m := moment{Chat: o.Chat, Sequence: o.At, Turn: t.Whose(), Permissions: []events.PermissionAsk{},
		Questions: pendingQuestions(standing), Events: standing}
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

// fold holds the events of a chat that are still valid. A part has the position of its last change, so that a call
// follows its request and its command. Everything else has the position of its first event.
type fold struct {
	entries []entry
	indexes map[string]int  // key -> index
	removed map[string]bool // OpenCode's ids of removed messages and parts
}

// entry is the last event about a thing.
type entry struct {
	key     string // OpenCode's id of what it is about, or the event's own
	message string // of a part
	isEnded bool   // of a part: a tool call that has ended
	isMoved bool   // its position has moved
	event   events.Event
}

func newFold() *fold { return &fold{indexes: map[string]int{}, removed: map[string]bool{}} }

func (f *fold) apply(e events.Event) {
	s := entry{key: e.ID, event: e}
	if typ, ok := e.Subject.OpenCodeType(); ok && e.Malformed == nil {
		p := turn.ReadPayload(events.OpenCode{Type: typ, Properties: e.Data})
		switch typ {
		case "session.created", "session.updated":
			s.key = p.SessionID
		case "message.updated":
			s.key = p.Info.ID
		case "message.part.updated":
			s.key, s.message = p.Part.ID, p.Part.MessageID
			s.isEnded = p.Part.State.Status == "completed" || p.Part.State.Status == "error"
		case "message.removed":
			f.removed[p.MessageID] = true
			return
		case "message.part.removed":
			f.removed[p.PartID] = true
			return
		case "session.status", "session.idle", "session.diff": // deltas are not part of the state
			return
		}
	}
	switch i, known := f.indexes[s.key]; {
	case known && (s.message == "" || f.entries[i].isEnded):
		f.entries[i] = s
		return
	case known:
		f.entries[i].isMoved = true
	}
	f.indexes[s.key] = len(f.entries)
	f.entries = append(f.entries, s)
}

func (f *fold) events() []events.Event {
	var all []events.Event
	for _, s := range f.entries {
		if !s.isMoved && !f.removed[s.key] && !f.removed[s.message] {
			all = append(all, s.event)
		}
	}
	return all
}

// pendingQuestions returns the questions that wait for an answer, sorted.
func pendingQuestions(all []events.Event) []string {
	open := map[string]bool{}
	for _, e := range all {
		ask, _ := events.QuestionAskOf(e) // one that cannot be read asks nothing
		for i := range ask.Questions {
			open[questionKey(ask.ID, i)] = true
		}
		switch d, _ := events.Decode(e); d := d.(type) {
		case events.QuestionAnswered:
			delete(open, questionKey(d.Question, d.Index))
			if d.Rejected {
				closeQuestion(open, d.Question)
			}
		case events.QuestionExpired:
			closeQuestion(open, d.Question)
		case events.OpenCode:
			switch d.Type {
			case events.QuestionReplied, events.QuestionRejected:
				closeQuestion(open, turn.ReadPayload(d).RequestID)
			}
		}
	}
	return slices.AppendSeq([]string{}, slices.Values(slices.Sorted(maps.Keys(open))))
}

func questionKey(id string, index int) string { return id + "/" + strconv.Itoa(index) }

func closeQuestion(open map[string]bool, id string) {
	maps.DeleteFunc(open, func(key string, _ bool) bool { return strings.HasPrefix(key, id+"/") })
}
