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

// waiting holds the requests that the policy left to a person, by chat and id, until something becomes of them.
type waiting map[[2]string]bool

func (w waiting) Apply(e events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.PermissionReferred:
		w[[2]string{e.Subject.ID, d.Permission}] = true
	case events.PermissionDecided:
		delete(w, [2]string{e.Subject.ID, d.Permission})
	case events.PermissionExpired:
		delete(w, [2]string{e.Subject.ID, d.Permission})
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
			for key := range w {
				waits, failed := g.again(ctx, key[0], key[1])
				if !waits {
					delete(w, key)
				}
				err = errors.Join(err, failed)
			}
			return err
		})
	}
}

// again evaluates a request that waits for a person once more, and decides it if the rules allow it now. A request that OpenCode has
// forgotten stays the person's, because its approval begins a turn.
func (g Gate) again(ctx context.Context, chat, permission string) (waits bool, err error) {
	r, err := g.Permissions.request(ctx, chat, permission)
	if err != nil || r.Ask == nil || !r.Pending() {
		return err != nil, err
	}
	if r.Interrupted {
		return true, nil
	}
	in, agent := g.input(ctx, chat, *r.Ask, r.Direct, 0)
	rules, err := g.InForce(ctx, record.RuleScope{Chat: chat, Agent: agent, At: time.Now()})
	if err != nil {
		return true, err
	}
	v := judge(rules, in)
	if v.Action != policy.Allow {
		return true, ctx.Err()
	}
	return true, g.Permissions.Conclude(ctx, chat, r.Event, NewEvaluation(*r.Ask, r.Direct, in.Cwd, v))
}
