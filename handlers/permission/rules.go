package permission

import (
	"context"
	"errors"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

// waiting is the asks that the policy left to a person, by chat, until something becomes of them.
type waiting map[string]map[string]bool

func (w waiting) Apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.PermissionReferred:
		if w[e.Subject.ID] == nil {
			w[e.Subject.ID] = map[string]bool{}
		}
		w[e.Subject.ID][d.Permission] = true
	case events.PermissionDecided:
		w.remove(e.Subject.ID, d.Permission)
	case events.PermissionExpired:
		w.remove(e.Subject.ID, d.Permission)
	}
}

func (w waiting) remove(chat, permission string) {
	if delete(w[chat], permission); len(w[chat]) == 0 {
		delete(w, chat)
	}
}

// reactToRules gives the reaction to a change of the rules: what waits for a person and is allowed now is decided. That
// a rule is gone changes nothing about what was decided by it.
func (g Gate) reactToRules() func(context.Context, events.Event) error {
	f := handlers.NewFold(waiting{}, events.ChatSubject("*", "permission.*"))
	return func(ctx context.Context, e events.Event) error {
		change, err := g.Records.RuleChange(ctx, e)
		if change.Broken != nil {
			g.Logger.Error("rule cannot be read", "rule", e.Subject.Collection+"/"+e.Subject.ID, "err", change.Broken)
		}
		if err != nil || !change.Newest { // the newest one is looked at for all before it
			return err
		}
		return f.Read(ctx, g.Permissions.Log, func(w waiting) (err error) {
			for chat, all := range w {
				for permission := range all {
					waits, failed := g.again(ctx, chat, permission)
					if !waits {
						w.remove(chat, permission)
					}
					err = errors.Join(err, failed)
				}
			}
			return err
		})
	}
}

// again looks once more at an ask that waits for a person: when the rules allow it now, it is decided. One that OpenCode has
// forgotten stays the person's, because its approval begins a turn.
func (g Gate) again(ctx context.Context, chat, permission string) (waits bool, err error) {
	a, err := g.Permissions.asked(ctx, chat, permission)
	if err != nil || !a.found || a.settled {
		return err != nil, err
	}
	if a.lost {
		return true, nil
	}
	in, agent := g.input(ctx, chat, a.ask, a.intended, 0)
	rules, err := g.InForce(ctx, record.RuleScope{Chat: chat, Agent: agent, At: time.Now()})
	if err != nil {
		return true, err
	}
	v := judge(rules, in)
	if v.Action != policy.Allow {
		return true, ctx.Err()
	}
	return true, g.Permissions.Conclude(ctx, chat, a.cause, NewEvaluation(a.ask, a.intended, in.Cwd, v))
}

// asked is an ask as it stands in the log, and what has become of it.
type asked struct {
	found    bool
	ask      events.PermissionAsk
	intended bool
	cause    string // id of the event that asked
	seq      uint64 // and its place
	at       time.Time
	settled  bool
	lost     bool
	cwd      string // as it was decided or referred
}

// asked finds an ask of a chat.
func (h *Permissions) asked(ctx context.Context, chat, permission string) (a asked, err error) {
	err = h.Chat(ctx, chat).Read(ctx, h.Log, func(s *State) error {
		k, how := s.asks[permission], s.settled[permission]
		a = asked{intended: s.intended(permission), cause: k.event, seq: k.seq, settled: how.how != "", lost: s.lost[permission], cwd: s.referred[permission].cwd}
		if how.Decided != nil {
			a.cwd = how.Decided.Cwd
		}
		return nil
	})
	if err != nil || a.seq == 0 || !handlers.IsStored(a.seq) {
		return a, err
	}
	filter := events.ChatOpenCodeSubject(chat, events.PermissionAsked)
	if a.intended {
		filter = events.ChatSubject(chat, events.PermissionRequested{}.Kind())
	}
	_, err = h.Log.Fold(ctx, filter, a.seq-1, func(e events.Event) error {
		if a.ask, _, err = events.PermissionAskOf(e); err != nil {
			return err
		}
		a.found, a.at = true, e.Time
		return events.ErrStop
	})
	if errors.Is(err, events.ErrStop) {
		err = nil
	}
	return a, err
}

// OpenCodeRequest returns a request that OpenCode made. ok is false if the chat has no such request.
func (h *Permissions) OpenCodeRequest(ctx context.Context, chat, permission string) (a events.PermissionAsk, ok bool, err error) {
	found, err := h.asked(ctx, chat, permission)
	return found.ask, found.found && !found.intended, err
}
