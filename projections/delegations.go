package projections

import (
	"encoding/json"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/events/opencode"
	"pocketcoder/projections/store"
	"pocketcoder/projections/turnstate"
)

// Delegation is a message that a parent delegated to a delegate. It ends with its turn, unless a prompt resumes that
// turn. The rows alone show which work is pending.
type Delegation struct {
	store.Record        // the id is that of the message
	Delegate     string `db:"worker" json:"worker"` // chat
	Parent       string `db:"parent" json:"parent"` // chat
	State        string `db:"state" json:"state"`   // of the result: completed, failed, aborted, lost; empty before
	// message whose turn counts: this one, or the one that resumed its turn
	Prompt    string `db:"prompt" json:"-"`
	PausedBy  string `db:"paused_by" json:"-"`   // request of a used-up budget that stopped the turn
	Result    string `db:"result" json:"result"` // id of the event with the result; empty while there is none
	ResultSeq int64  `db:"result_seq" json:"-"`
	Text      string `db:"text" json:"text"` // of the result
	// the parent has the result as the output of a tool call
	Received       bool   `db:"received" json:"received"`
	Reported       string `db:"reported" json:"reported"` // message that carried the result to the parent
	SilentSince    string `db:"silent_since" json:"silent_since"`
	SilentReported string `db:"silent_reported" json:"-"` // message that reported the silence
	Position       int64  `db:"position" json:"position"`
}

// updateDelegations runs after turns.
func updateDelegations(all *tables, e events.Event, body any) error {
	c, found := all.chats.Get(e.Subject.ID)
	if !found {
		return nil
	}
	t := all.delegations
	open := strings.Fields(c.Delegated)
	change := func(id string, change func(*Delegation)) {
		if d, found := t.Get(id); found {
			change(&d)
			t.Put(d)
		}
	}
	switch b := body.(type) {
	case events.MessageSubmitted:
		if c.Parent != "" && b.Sender == c.Parent && b.Delivery != events.DeliverySteer && addDelegation(t, e, b, c) {
			open = append(open, b.Message)
		}
		recordReports(t, b, c)
		for _, id := range open {
			change(id, func(d *Delegation) {
				turn, _ := all.turns.Get(d.Prompt)
				d.resume(b, turn)
			})
		}
	case events.AbortRequested:
		for _, id := range open {
			change(id, func(d *Delegation) {
				turn, _ := all.turns.Get(d.Prompt)
				if e.Actor == events.ActorPolicy && b.Session == "" && !turn.IsOver() {
					d.PausedBy = e.Cause // a used-up budget stops the turn
				}
			})
		}
	case events.DelegateFinished:
		change(b.Message, func(d *Delegation) { d.finish(e, b) })
		open = slices.DeleteFunc(open, func(id string) bool { return id == b.Message })
	case events.DelegateSilent:
		change(b.Message, func(d *Delegation) { d.SilentSince = b.Since.UTC().Format(events.TimeFormat) })
	case opencode.PartUpdated:
		recordReceipts(t, b, c)
	}
	c.Delegated = strings.Join(open, " ")
	all.chats.Put(c)
	return nil
}

func addDelegation(t *store.Table[Delegation], e events.Event, b events.MessageSubmitted, c Chat) bool {
	d, found := t.Get(b.Message)
	if !found {
		d.Delegate, d.Parent, d.Prompt, d.Position = c.ID, c.Parent, d.ID, int64(e.Seq)
		t.Put(d)
	}
	return !found
}

// recordReports records the reports that a message of the parent carries.
func recordReports(t *store.Table[Delegation], b events.MessageSubmitted, c Chat) {
	for _, id := range append(slices.Clone(b.Results), b.Silent...) {
		d, found := t.Get(id)
		if !found || d.Parent != c.ID {
			continue
		}
		if slices.Contains(b.Results, id) {
			d.Reported = b.Message
		} else {
			d.SilentReported = b.Message
		}
		t.Put(d)
	}
}

// recordReceipts records the results in the output of a tool call of the parent.
func recordReceipts(t *store.Table[Delegation], b opencode.PartUpdated, c Chat) {
	if b.Part.Type != "tool" || !strings.HasPrefix(b.Part.Tool, events.OwnTools) {
		return
	}
	var state struct{ Status, Output string }
	if json.Unmarshal(b.Part.State, &state) != nil || state.Status != "completed" {
		return
	}
	for _, r := range events.ReceiptsIn(state.Output) {
		if d, found := t.Get(r.Message); found && d.Parent == c.ID && d.Result == r.Result && r.Result != "" {
			d.Received = true
			t.Put(d)
		}
	}
}

// resume reopens a delegation whose turn a prompt of PocketCoder resumes. A turn with a complete answer is not resumed.
func (d *Delegation) resume(b events.MessageSubmitted, turn Turn) {
	if b.Resumes != "" && turn.IsOver() && turn.State != turnstate.Completed {
		d.Prompt, d.PausedBy = b.Message, ""
	}
}

func (d *Delegation) finish(e events.Event, b events.DelegateFinished) {
	if d.Delegate == e.Subject.ID && d.Result == "" {
		d.State, d.Text, d.Result, d.ResultSeq = b.Status, b.Result, e.ID, int64(e.Seq)
	}
}
