package permission

import (
	"context"
	"errors"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/rule"
)

// pendingRequests holds the requests that the policy left to a person, by chat and id, until they are decided or
// expire.
type pendingRequests map[[2]string]bool

func (w pendingRequests) Apply(e events.Event) {
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

// reactToRules returns the reaction to a change of the rules. It decides pending requests that the rules allow now.
// Removing a rule does not change earlier decisions.
func (g Gate) reactToRules() func(context.Context, events.Event) error {
	f := handlers.NewFold(pendingRequests{}, events.ChatSubject("*", "permission.*"))
	return func(ctx context.Context, e events.Event) error {
		change, err := rule.ChangeOf(ctx, g.Records, e)
		if change.Broken != nil {
			g.Logger.Error("rule cannot be read", "rule", e.Subject.Collection+"/"+e.Subject.ID, "err", change.Broken)
		}
		if err != nil || !change.Newest { // the reaction to the newest change covers all earlier ones
			return err
		}
		return f.Read(ctx, g.Permissions.Log, func(w pendingRequests) (err error) {
			for key := range w {
				waits, failed := g.reevaluate(ctx, key[0], key[1])
				if !waits {
					delete(w, key)
				}
				err = errors.Join(err, failed)
			}
			return err
		})
	}
}

// reevaluate evaluates a pending request again, and decides it if the rules allow it now. It skips a request that
// OpenCode has forgotten, because approving that request begins a turn.
func (g Gate) reevaluate(ctx context.Context, chat, permission string) (waits bool, err error) {
	r, err := g.Permissions.request(ctx, chat, permission)
	if err != nil || r.Content == nil || !r.Pending() {
		return err != nil, err
	}
	if r.Interrupted {
		return true, nil
	}
	in, by := g.input(ctx, chat, *r.Content, r.ViaAPI, 0)
	rules, err := g.RuleSets(ctx, by.scope(chat))
	if err != nil {
		return true, err
	}
	v, _ := rules.judge(in)
	if v.Action != policy.Allow {
		return true, ctx.Err()
	}
	return true, g.Permissions.RecordEvaluation(ctx, chat, r.Event, NewEvaluation(*r.Content, r.ViaAPI, in.Cwd, v))
}
