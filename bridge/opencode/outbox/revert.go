package outbox

import (
	"context"
	"errors"
	"net/http"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
)

// RevertWorker is the name under which the log remembers which reverts were carried out.
const RevertWorker = "revert"

// Revert carries out people's wishes that a message be taken back, or that this be undone, until ctx ends: each until
// OpenCode has taken it or has refused it for good.
func (o *Outbox) Revert(ctx context.Context) error {
	filter := events.ChatSubject("*", events.RevertRequested{}.Kind())
	return o.Log.Work(ctx, RevertWorker, filter, o.revert, func(e events.Event, err error) {
		o.Logger.Warn("revert", "chat", e.Subject.ID, "err", err)
	})
}

func (o *Outbox) revert(ctx context.Context, e events.Event) error {
	var wish events.RevertRequested
	if err := o.wished(ctx, e, &wish); err != nil {
		return err
	}
	chat, _, err := o.Model.Chat(ctx, e.Subject.ID)
	if err != nil || chat.Session == "" || chat.Engine != o.Engine {
		return err // nothing has run there yet
	}
	if wish.Message == "" {
		err = o.api().Unrevert(ctx, chat.Session)
	} else if err = o.api().Revert(ctx, chat.Session, wish.Message); isBusy(err) {
		// What runs comes after the message, or is its turn: it is taken back too.
		return errors.Join(err, o.stop(ctx, chat.Session))
	}
	return o.settled(e, err)
}

// isBusy says whether OpenCode refused because a turn of the session is running.
func isBusy(err error) bool {
	var refusal *client.Error
	return errors.As(err, &refusal) && refusal.Status == http.StatusConflict
}

// settled keeps an error only if trying again may help; that OpenCode has refused a wish for good is the end of it.
func (o *Outbox) settled(e events.Event, err error) error {
	var refusal *client.Error
	if !errors.As(err, &refusal) || refusal.Status == 0 || client.Retryable(err) {
		return err
	}
	o.Logger.Warn("opencode refuses", "command", e.Subject.Kind, "chat", e.Subject.ID, "err", err)
	return nil
}
