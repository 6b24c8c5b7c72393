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
	"pocketcoder/projections/store"
)

// ContinuePrompt resumes a turn which was lost with requests pending, after one of them was approved.
const ContinuePrompt = "The tool calls of your last answer were interrupted before they could run. They have been approved now: make the same calls again, exactly as they were, and go on."

// StalePrompt begins the prompt that resumes such a turn if a file of the request has changed since. A sentence about
// the file follows.
const StalePrompt = "Your last tool call was interrupted before it could run, and it will not run as it was: "

// decisions lists the decisions that OpenCode has not confirmed.
func (s *schedule) decisions(ctx context.Context) (open []effect, err error) {
	decided, err := s.Model.DecidedRequests(ctx)
	for _, p := range decided {
		if p.Engine != s.Engine {
			continue
		}
		key := "reply/" + p.EnginePermission
		if p.Interrupted { // a key of its own, because a reply may have been tried before
			key = "resume/" + p.EnginePermission
		}
		open = append(open, effect{Key: key, Target: p.Chat, Pause: s.Pause, Of: work{kind: replyKind, seq: p.DecidedSeq,
			try: func(ctx context.Context, _ int) error { return s.sendDecision(ctx, p) }}})
	}
	return open, err
}

// sendDecision sends a decision to OpenCode. If OpenCode has forgotten the request, an approval resumes the turn with a
// prompt.
func (o *Outbox) sendDecision(ctx context.Context, p projections.PendingRequest) error {
	// The state may have changed since the effect was listed.
	now, known, err := o.Model.Permission(ctx, p.EnginePermission)
	if err != nil || !known {
		return err
	}
	if now.Replied || now.GrantUsed || now.Status == events.Expired {
		return nil
	}
	stale := ""
	if now.Status == events.Authorized {
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
	case now.Interrupted && now.Status == events.Authorized:
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
	case stale != "": // if OpenCode does not wait, it may have changed the file itself
		if err = o.Ingest.Current().Reject(ctx, p.Directory, p.EnginePermission, stale); err == nil {
			return o.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: stale})
		}
	case now.Status == events.Authorized:
		if now.Permission == events.KindEdit && o.BeforeEdit != nil {
			o.BeforeEdit(ctx, now.Content(), p.Directory)
		}
		err = o.Ingest.Current().Allow(ctx, p.Directory, p.EnginePermission)
	default:
		err = o.Ingest.Current().Reject(ctx, p.Directory, p.EnginePermission, p.Reason)
	}
	if errors.Is(err, client.ErrGone) {
		return o.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission,
			Reason: "OpenCode does not wait for it any more"})
	}
	return err
}

// expireInvalid expires a request whose approval is no longer valid. If OpenCode still waits, it rejects the request
// there first.
func (o *Outbox) expireInvalid(ctx context.Context, p projections.PendingRequest, interrupted bool, why string) error {
	if !interrupted {
		if err := o.Ingest.Current().Reject(ctx, p.Directory, p.EnginePermission, why); err != nil &&
			!errors.Is(err, client.ErrGone) {
			return err
		}
	}
	return o.record(ctx, p.Chat, events.PermissionExpired{Permission: p.EnginePermission, Reason: why})
}

// resumed reports whether a prompt has resumed the turn since the request was decided. One prompt resumes all calls of
// an answer, because there may be hundreds, so it may be the prompt of another request. A request never gets a second
// prompt of its own, even if the resumed turn has changed the file since.
func (o *Outbox) resumed(ctx context.Context, p projections.Permission, prompt string) (bool, error) {
	together, err := o.Model.InterruptedTogether(ctx, p)
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

// resume submits the prompt that resumes a turn. The id of the message is derived from the id of the request or
// questions, so it is submitted once.
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
