package opencode

import (
	"context"
	"errors"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

// Continue is the prompt that resumes a turn which was lost with an ask pending, once a person has approved the ask.
const Continue = "Your last tool call was interrupted before it could run. It has been approved now: make the same call again, exactly as it was, and go on."

// Reply tells OpenCode what was decided and answered, until ctx ends: each until OpenCode has taken it or does not know
// the request any more. OpenCode is never told "always": what it asks next is asked of us again.
func (b *Bridge) Reply(ctx context.Context) error {
	r := &replies{Bridge: b, done: make(chan string), busy: map[string]bool{}, sent: map[string]bool{}}
	return b.watch(ctx, r.done, func(id string) { delete(r.busy, id) }, r.start)
}

type replies struct {
	*Bridge
	done chan string
	busy map[string]bool // requests with a reply under way
	sent map[string]bool // requests OpenCode has taken a reply to, and not yet said so in the stream
}

// replyPause is the pause before a reply that OpenCode did not take is tried again.
const replyPause = time.Second

func (r *replies) start(ctx context.Context) error {
	decided, err := r.Model.DecidedUnreplied(ctx)
	if err != nil {
		return err
	}
	open := map[string]bool{}
	for _, p := range decided {
		request := p.EnginePermission
		if p.Interrupted { // OpenCode may have taken a reply before it forgot the ask
			request = "resume/" + request
		}
		open[request] = true
		if p.Engine == r.Engine {
			r.once(ctx, request, func() error { return r.decision(ctx, p) })
		}
	}
	answered, err := r.Model.AnsweredUnreplied(ctx)
	if err != nil {
		return err
	}
	for _, group := range together(answered) {
		open[group[0].EngineQuestion] = true
		if group[0].Engine == r.Engine {
			r.once(ctx, group[0].EngineQuestion, func() error { return r.answers(ctx, group) })
		}
	}
	for id := range r.sent {
		if !open[id] {
			delete(r.sent, id)
		}
	}
	return nil
}

// once runs reply for a request unless one is under way or OpenCode has taken one.
func (r *replies) once(ctx context.Context, id string, reply func() error) {
	if r.busy[id] || r.sent[id] {
		return
	}
	r.busy[id] = true
	r.sent[id] = true
	go func() {
		for err := reply(); err != nil && ctx.Err() == nil; err = reply() {
			r.Logger.Warn("reply to opencode", "request", id, "err", err)
			if pause(ctx, replyPause) != nil || r.live.wait(ctx) != nil {
				return
			}
		}
		select {
		case r.done <- id:
		case <-ctx.Done():
		}
	}()
}

// decision tells OpenCode what was decided about an ask. An ask it forgot is carried out by a continue prompt.
func (r *replies) decision(ctx context.Context, p projections.Ask) error {
	// What is known now counts, not what was when the reply was first tried.
	now, known, err := r.Model.Permission(ctx, p.EnginePermission)
	if err != nil || !known {
		return err
	}
	switch {
	case now.Replied || now.Status == projections.PermissionExpired:
		return nil
	case now.Interrupted && now.Status == projections.PermissionAuthorized:
		return r.resume(ctx, now)
	case now.Interrupted:
		return nil
	case now.Status == projections.PermissionAuthorized:
		err = r.client().Allow(ctx, p.Directory, p.EnginePermission)
	default:
		err = r.client().Reject(ctx, p.Directory, p.EnginePermission, p.Reason)
	}
	if errors.Is(err, ErrGone) {
		return r.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: "OpenCode does not wait for it any more"})
	}
	return err
}

// resume submits the continue prompt, once: its id follows from the ask's.
func (r *replies) resume(ctx context.Context, p projections.Permission) error {
	_, seq, err := r.Handlers.SubmitMessage(ctx, handlers.SubmitMessage{
		Command: handlers.Command{ID: p.EnginePermission, Actor: p.DecidedBy}, Chat: p.Chat,
		Message: projections.RecordID("resume/" + p.EnginePermission), Resumes: p.EnginePermission,
		Parts: []events.Part{{Type: "text", Text: Continue}},
	})
	if err != nil {
		return err
	}
	return r.Model.Wait(ctx, seq)
}

// together groups the questions that were asked together, in order.
func together(all []projections.OpenQuestion) (groups [][]projections.OpenQuestion) {
	for _, q := range all {
		if n := len(groups); n > 0 && groups[n-1][0].EngineQuestion == q.EngineQuestion {
			groups[n-1] = append(groups[n-1], q)
		} else {
			groups = append(groups, []projections.OpenQuestion{q})
		}
	}
	return groups
}

// answers gives OpenCode the answers to questions asked together, or their rejection.
func (r *replies) answers(ctx context.Context, group []projections.OpenQuestion) error {
	q, err := group[0], error(nil)
	var all [][]string
	rejected := false
	for _, one := range group {
		answer, err := one.Answers()
		if err != nil {
			return err
		}
		all, rejected = append(all, answer), rejected || one.Status == projections.QuestionRejected
	}
	if rejected {
		err = r.client().Dismiss(ctx, q.Directory, q.EngineQuestion)
	} else {
		err = r.client().Answer(ctx, q.Directory, q.EngineQuestion, all)
	}
	if errors.Is(err, ErrGone) {
		return r.record(ctx, q.Chat, events.QuestionExpired{Question: q.EngineQuestion, Reason: "OpenCode does not wait for it any more"})
	}
	return err
}
