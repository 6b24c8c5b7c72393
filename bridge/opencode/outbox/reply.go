package outbox

import (
	"context"
	"errors"
	"strings"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
	"pocketcoder/projections/pending"
	"pocketcoder/projections/store"
)

// ContinuePrompt is the prompt that resumes a turn which was lost with requests pending, once one of them was approved.
const ContinuePrompt = "The tool calls of your last answer were interrupted before they could run. They have been approved now: make the same calls again, exactly as they were, and go on."

// StalePrompt begins the prompt that resumes such a turn when a file of the request has changed since. A sentence about
// the file follows.
const StalePrompt = "Your last tool call was interrupted before it could run, and it will not run as it was: "

// decisions lists what was decided about requests and OpenCode has not confirmed. OpenCode is never told "always":
// what it asks next is asked of us again.
func (s *schedule) decisions(ctx context.Context) (open []effect, err error) {
	decided, err := pending.DecidedRequests(ctx, s.Model)
	for _, p := range decided {
		if p.Engine != s.Engine {
			continue
		}
		key := "reply/" + p.EnginePermission
		if p.Interrupted { // OpenCode may have taken a reply before it forgot the ask
			key = "resume/" + p.EnginePermission
		}
		open = append(open, effect{
			key: key, kind: replyKind, chat: p.Chat, seq: p.DecidedSeq, pause: s.Pause, try: func(ctx context.Context) error { return s.sendDecision(ctx, p) },
		})
	}
	return open, err
}

// sendDecision tells OpenCode what was decided about an ask. An ask it forgot is carried out by a continue prompt.
func (o *Outbox) sendDecision(ctx context.Context, p pending.Request) error {
	// What is known now counts, not what was when the reply was first tried.
	now, known, err := o.Model.Permission(ctx, p.EnginePermission)
	if err != nil || !known {
		return err
	}
	if now.Replied || now.GrantUsed || now.Status == projections.PermissionExpired {
		return nil
	}
	stale := ""
	if now.Status == projections.PermissionAuthorized {
		if why, err := o.Permissions.CheckApproval(ctx, now.Chat, p.EnginePermission); err != nil {
			return err
		} else if why != "" {
			return o.expireInvalid(ctx, p, now.Interrupted, why)
		}
		if stale, err = o.Permissions.ChangedFiles(ctx, now.Chat, p.EnginePermission, p.Directory); err != nil {
			return err
		}
	}
	switch {
	case now.Interrupted && now.Status == projections.PermissionAuthorized:
		prompt := ContinuePrompt
		if stale != "" {
			prompt = StalePrompt + stale
		}
		if done, err := o.resumed(ctx, now, prompt); err != nil || done {
			return err
		}
		err = o.resume(ctx, now.Chat, now.EnginePermission, now.DecidedBy, prompt)
		if refused := (handlers.Refused{}); errors.As(err, &refused) {
			return o.record(ctx, now.Chat, events.PermissionExpired{Permission: now.EnginePermission, Reason: refused.Text})
		}
		return err
	case now.Interrupted:
		return nil
	case stale != "": // if OpenCode does not wait any more, its own writing may be what changed the file
		if err = o.Current().Reject(ctx, p.Directory, p.EnginePermission, stale); err == nil {
			return o.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: stale})
		}
	case now.Status == projections.PermissionAuthorized:
		err = o.Current().Allow(ctx, p.Directory, p.EnginePermission)
	default:
		err = o.Current().Reject(ctx, p.Directory, p.EnginePermission, p.Reason)
	}
	if errors.Is(err, client.ErrGone) {
		return o.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission,
			Reason: "OpenCode does not wait for it any more"})
	}
	return err
}

// expireInvalid expires a request whose approval is no longer valid. It rejects the request in OpenCode first, which
// still waits.
func (o *Outbox) expireInvalid(ctx context.Context, p pending.Request, interrupted bool, why string) error {
	if !interrupted {
		if err := o.Current().Reject(ctx, p.Directory, p.EnginePermission, why); err != nil &&
			!errors.Is(err, client.ErrGone) {
			return err
		}
	}
	return o.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: why})
}

// resumed reports whether a prompt has resumed the turn of a request since it was decided. It may be the prompt of
// another request of the same answer: one prompt resumes all calls of an answer, because there may be hundreds. A
// request never gets a second prompt of its own, even if the resumed turn has changed the file since.
func (o *Outbox) resumed(ctx context.Context, p projections.Permission, prompt string) (bool, error) {
	together, err := pending.InterruptedTogether(ctx, o.Model, p)
	if err != nil {
		return false, err
	}
	for _, id := range together {
		m, found, err := o.Model.Message(ctx, resumptionID(id))
		if err != nil {
			return false, err
		}
		if found && (id == p.EnginePermission || m.Position > p.DecidedSeq && prompt == ContinuePrompt &&
			strings.Contains(string(m.Parts), ContinuePrompt)) {
			return true, nil
		}
	}
	return false, nil
}

func resumptionID(request string) string { return store.RecordID("resume/" + request) }

// resume submits the prompt that resumes a turn, once: its id follows from that of the ask or the questions.
func (o *Outbox) resume(ctx context.Context, chatID, request, actor, prompt string) error {
	_, seq, err := o.Chats.SubmitMessage(ctx, chat.SubmitMessage{
		Command: handlers.Command{ID: request, Actor: actor}, Chat: chatID,
		Message: resumptionID(request), Resumes: request,
		Parts: []events.Part{{Type: "text", Text: prompt}},
	})
	if err != nil {
		return err
	}
	return o.Model.Wait(ctx, seq)
}
