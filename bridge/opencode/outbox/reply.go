package outbox

import (
	"context"
	"errors"
	"strings"
	"sync"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
	"pocketcoder/projections/pending"
)

// Continue is the prompt that resumes a turn which was lost with requests pending, once one of them was approved.
const Continue = "The tool calls of your last answer were interrupted before they could run. They have been approved now: make the same calls again, exactly as they were, and go on."

// Stale begins the prompt that resumes such a turn when a file of the request has changed since. A sentence about the file follows.
const Stale = "Your last tool call was interrupted before it could run, and it will not run as it was: "

// Reply tells OpenCode what was decided and answered, until ctx ends: each until OpenCode has taken it or does not know
// the request any more. OpenCode is never told "always": what it asks next is asked of us again.
func (o *Outbox) Reply(ctx context.Context) error {
	r := &replies{Outbox: o, done: make(chan string), busy: map[string]bool{}, sent: map[string]bool{}}
	return o.watch(ctx, r.done, func(id string) { delete(r.busy, id) }, r.start)
}

type replies struct {
	*Outbox
	done chan string
	busy map[string]bool // requests with a reply under way
	sent map[string]bool // requests OpenCode has taken a reply to, and not yet said so in the stream

	resuming sync.Mutex
}

func (r *replies) start(ctx context.Context) error {
	decided, err := pending.DecidedRequests(ctx, r.Model)
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
	if err := r.startQuestions(ctx, open); err != nil {
		return err
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
			if ingest.Sleep(ctx, r.Pause) != nil || r.WaitConnected(ctx) != nil {
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
func (r *replies) decision(ctx context.Context, p pending.Request) error {
	// What is known now counts, not what was when the reply was first tried.
	now, known, err := r.Model.Permission(ctx, p.EnginePermission)
	if err != nil || !known {
		return err
	}
	if now.Replied || now.GrantUsed || now.Status == projections.PermissionExpired {
		return nil
	}
	stale := ""
	if now.Status == projections.PermissionAuthorized {
		if why, err := r.Permissions.Honoured(ctx, now.Chat, p.EnginePermission); err != nil {
			return err
		} else if why != "" {
			return r.void(ctx, p, now.Interrupted, why)
		}
		if stale, err = r.Permissions.ChangedFiles(ctx, now.Chat, p.EnginePermission, p.Directory); err != nil {
			return err
		}
	}
	switch {
	case now.Interrupted && now.Status == projections.PermissionAuthorized:
		r.resuming.Lock() // so that the requests of one answer find the prompt of the first
		defer r.resuming.Unlock()
		prompt := Continue
		if stale != "" {
			prompt = Stale + stale
		}
		if done, err := r.resumed(ctx, now, prompt); err != nil || done {
			return err
		}
		err = r.resume(ctx, now.Chat, now.EnginePermission, now.DecidedBy, prompt)
		if refused := (handlers.Refused{}); errors.As(err, &refused) {
			return r.record(ctx, now.Chat, events.PermissionExpired{Permission: now.EnginePermission, Reason: refused.Text})
		}
		return err
	case now.Interrupted:
		return nil
	case stale != "": // if OpenCode does not wait any more, its own writing may be what changed the file
		if err = r.Current().Reject(ctx, p.Directory, p.EnginePermission, stale); err == nil {
			return r.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: stale})
		}
	case now.Status == projections.PermissionAuthorized:
		err = r.Current().Allow(ctx, p.Directory, p.EnginePermission)
	default:
		err = r.Current().Reject(ctx, p.Directory, p.EnginePermission, p.Reason)
	}
	if errors.Is(err, client.ErrGone) {
		return r.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: "OpenCode does not wait for it any more"})
	}
	return err
}

// void expires a request whose approval is no longer valid. It rejects the request in OpenCode first, which still waits.
func (r *replies) void(ctx context.Context, p pending.Request, interrupted bool, why string) error {
	if !interrupted {
		if err := r.Current().Reject(ctx, p.Directory, p.EnginePermission, why); err != nil && !errors.Is(err, client.ErrGone) {
			return err
		}
	}
	return r.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: why})
}

// resumed reports whether a prompt has resumed the turn of a request since it was decided. It may be the prompt of another
// request of the same answer: one prompt resumes all calls of an answer, because there may be hundreds. A request never gets a
// second prompt of its own, even if the resumed turn has changed the file since.
func (r *replies) resumed(ctx context.Context, p projections.Permission, prompt string) (bool, error) {
	together, err := pending.InterruptedTogether(ctx, r.Model, p)
	if err != nil {
		return false, err
	}
	for _, id := range together {
		m, found, err := r.Model.Message(ctx, resumption(id))
		if err != nil {
			return false, err
		}
		if found && (id == p.EnginePermission || m.Position > p.DecidedSeq && prompt == Continue && strings.Contains(string(m.Parts), Continue)) {
			return true, nil
		}
	}
	return false, nil
}

func resumption(ask string) string { return projections.RecordID("resume/" + ask) }

// resume submits the prompt that resumes a turn, once: its id follows from that of the ask or the questions.
func (r *replies) resume(ctx context.Context, chatID, ask, actor, prompt string) error {
	_, seq, err := r.Chats.SubmitMessage(ctx, chat.SubmitMessage{
		Command: handlers.Command{ID: ask, Actor: actor}, Chat: chatID,
		Message: resumption(ask), Resumes: ask,
		Parts: []events.Part{{Type: "text", Text: prompt}},
	})
	if err != nil {
		return err
	}
	return r.Model.Wait(ctx, seq)
}
