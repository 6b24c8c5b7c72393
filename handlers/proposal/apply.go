package proposal

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/rule"
)

// Apply makes the changes of the approved proposals whose effect is pending, in the order of their approvals. It makes
// each change completely or not at all, as the account that approved it. It stores the effect together with the change,
// so an approval takes effect once. If the change is refused, or if something other than an approval has changed the
// target since, the proposal becomes a draft again and its problem is the reason.
//
// e is an event about a proposal. Older versions stored no effect. Apply makes the change of such an approval if e is
// that approval and the target has not changed since.
func (h Proposals) Apply(ctx context.Context, e events.Event) error {
	all, err := record.All[Stored](ctx, h.Records, Collection)
	if err != nil {
		return err
	}
	for _, r := range all {
		older := r.Value.Status == Approved && r.Value.Effect == "" && r.Seq == e.Seq
		if !older && !r.Value.IsPending() {
			continue
		}
		if err := h.apply(ctx, r); err != nil {
			return err // a later approval of the same name must not take effect first
		}
	}
	return nil
}

// apply makes the change of an approval. If the change is refused, the proposal is a draft again.
func (h Proposals) apply(ctx context.Context, approved record.StoredRecord[Stored]) error {
	approval, found, err := h.Records.Log.Get(ctx, approved.Seq)
	if err != nil {
		return err
	}
	var failed error // not that the transaction met too many other writers, which is tried again later
	err = h.ifStillApproved(ctx, approved, func(ctx context.Context) error {
		if found {
			failed = h.takeEffect(ctx, approved, approval)
		} else {
			failed = handlers.Refuse(handlers.Conflict, "The log has lost this approval. Approve the proposal again.")
		}
		return failed
	})
	refused := handlers.Refused{}
	if !errors.As(failed, &refused) {
		return err
	}
	return h.ifStillApproved(ctx, approved, func(ctx context.Context) error {
		return h.saveProposal(ctx, approved, approval, map[string]any{"status": Draft, "approved_at": "",
			"problem": refused.Text})
	})
}

// takeEffect makes the change of an approval, and stores its effect.
func (h Proposals) takeEffect(ctx context.Context, approved record.StoredRecord[Stored], approval events.Event) error {
	failed := h.makeChange(ctx, approved, approval)
	// The check comes after the decisions: the log refuses them if something changes later.
	changed, err := h.changed(ctx, approved.Value, approved.Seq)
	switch {
	case err != nil:
		return err
	case changed && approved.Value.Effect == "":
		return errNoEffect
	case changed:
		return handlers.Refuse(handlers.Conflict, "%q was changed before this approval took effect. "+
			"Read the new difference, and approve the proposal again.", approved.Value.Name)
	case failed != nil:
		return failed
	}
	return h.saveProposal(ctx, approved, approval, map[string]any{"effect": effectDone})
}

// errNoEffect ends a transaction that must change nothing: the approval was withdrawn, or an older version stored it
// and its target has changed since.
var errNoEffect = errors.New("this approval has no effect")

// ifStillApproved calls fn in a transaction. It does nothing if the proposal has changed since it was approved.
func (h Proposals) ifStillApproved(ctx context.Context, approved record.StoredRecord[Stored],
	fn func(context.Context) error) error {
	_, err := handlers.Transaction(ctx, h.Records.Log, func(ctx context.Context) error {
		if err := fn(ctx); err != nil {
			return err
		}
		// The check comes after the decisions, as that of the target.
		newest, err := h.Records.Log.Newest(ctx, events.ConfigSubject(Collection, approved.ID, "*"))
		if err == nil && newest != approved.Seq {
			err = errNoEffect
		}
		return err
	})
	if errors.Is(err, errNoEffect) {
		return nil
	}
	return err
}

// saveProposal changes fields of an approved proposal.
func (h Proposals) saveProposal(ctx context.Context, approved record.StoredRecord[Stored], approval events.Event,
	values map[string]any) error {
	by := handlers.Command{Actor: events.ActorSystem, Cause: approval.ID}
	_, _, err := h.Records.Save(ctx, record.Save{Command: by, Collection: Collection, Record: approved.ID,
		Set: record.Fields(values)})
	return err
}

// makeChange makes the change of an approved proposal.
func (h Proposals) makeChange(ctx context.Context, approved record.StoredRecord[Stored], approval events.Event) error {
	p, by := approved.Value, handlers.Command{Actor: approval.Actor, Cause: approval.ID}
	switch p.Kind {
	case Agent:
		err := CheckAgent(p.Name, p.Content)
		if err == nil {
			_, err = agent.Agents{Records: h.Records}.Import(ctx,
				agent.Import{Command: by, Text: p.Content, Name: p.Name})
		}
		return err
	case Prompt:
		id, _, err := h.prompt(ctx, p.Name)
		if err == nil {
			_, _, err = h.Records.Save(ctx, record.Save{Command: by, Collection: agent.Prompts, Record: id, New: id == "",
				Set: record.Fields(map[string]any{"name": p.Name, "body": p.Content})})
		}
		return err
	}
	by.Actor = events.ActorSystem
	set := record.Fields(map[string]any{
		"name": p.Name, "description": Description(p), "content": p.Content, "proposal": approved.ID,
		"approved_at": p.Approved, "sealed_at": events.FormatTime(approval.Time),
		"version":   strconv.FormatUint(approval.Seq, 10),
		"sealed_by": strings.TrimPrefix(approval.Actor, events.UserActor("")),
	})
	_, _, err := h.Records.Save(ctx, record.Save{Command: by, Collection: Procedures, Set: set, New: true,
		Upsert: true})
	return err
}

// maxDescription bounds a description that is made from the text, in runes.
const maxDescription = 200

// Description returns the description of a proposal, or else the first line of its text.
func Description(p Stored) string {
	first, _, _ := strings.Cut(strings.TrimLeft(strings.TrimSpace(Body(p.Content)), "# "), "\n")
	if text := []rune(first); len(text) > maxDescription {
		first = string(text[:maxDescription])
	}
	return cmp.Or(strings.TrimSpace(p.Description), first, p.Name)
}

// Body returns a text without its front matter, which a proposal of a whole SKILL.md has.
func Body(content string) string {
	if rest, found := strings.CutPrefix(content, "---\n"); found {
		if _, after, closed := strings.Cut(rest, "\n---\n"); closed {
			return after
		}
	}
	return content
}

// fields are the fields that link agents, prompts and rules.
type fields struct{ Name, Agent, Prompt string }

// changed reports whether something else than an approval has changed the target of a proposal after seq: the procedure
// or the prompt, or the agent with its prompt and its rules.
func (h Proposals) changed(ctx context.Context, p Stored, seq uint64) (bool, error) {
	earlier, err := h.eventsBefore(ctx, seq)
	if err != nil {
		return false, err
	}
	named := func(_ string, f fields) bool { return f.Name == p.Name }
	switch p.Kind {
	case Agent:
	case Prompt:
		return h.changedIn(ctx, agent.Prompts, seq, earlier, named)
	default:
		return h.changedIn(ctx, Procedures, seq, earlier, named)
	}
	parts := map[string]bool{} // records of agents and prompts
	changed, err := h.changedIn(ctx, agent.Collection, seq, earlier, func(id string, f fields) bool {
		if f.Name == p.Name {
			parts[id], parts[f.Prompt] = true, f.Prompt != ""
		}
		return f.Name == p.Name
	})
	if changed || err != nil {
		return changed, err
	}
	changed, err = h.changedIn(ctx, agent.Prompts, seq, earlier, func(id string, _ fields) bool { return parts[id] })
	if changed || err != nil {
		return changed, err
	}
	return h.changedIn(ctx, rule.ToolPermissions, seq, earlier,
		func(_ string, f fields) bool { return parts[f.Agent] })
}

// eventsBefore returns the ids of the events of proposals that were stored before seq.
func (h Proposals) eventsBefore(ctx context.Context, seq uint64) (map[string]bool, error) {
	earlier := map[string]bool{}
	_, err := h.Records.Log.Fold(ctx, events.ConfigSubject(Collection, "*", "*"), 0, func(e events.Event) error {
		if e.Seq < seq {
			earlier[e.ID] = true
		}
		return nil
	})
	return earlier, err
}

// changedIn reports whether a matching record changed after seq. It ignores changes that an earlier approval caused. A
// record matches if it did so before or after the change.
func (h Proposals) changedIn(ctx context.Context, collection string, seq uint64, earlier map[string]bool,
	match func(id string, f fields) bool) (changed bool, err error) {
	matched := map[string]bool{} // by record, before the event
	_, err = h.Records.Log.Fold(ctx, events.ConfigSubject(collection, "*", "*"), 0, func(e events.Event) error {
		now := fields{}
		if d, err := events.Decode(e); err == nil {
			if saved, ok := d.(events.Saved); ok {
				_ = json.Unmarshal(saved.Fields, &now) // a record that cannot be read matches nothing
			}
		}
		matches := match(e.Subject.ID, now)
		changed = changed || e.Seq > seq && !earlier[e.Cause] && (matches || matched[e.Subject.ID])
		matched[e.Subject.ID] = matches
		return nil
	})
	return changed, err
}
