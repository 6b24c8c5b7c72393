package outbox

import (
	"context"
	"errors"
	"net/http"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/events"
)

// Revert carries out RevertRequested events until ctx ends. It retries each until OpenCode accepts it or refuses it for good.
func (o *Outbox) Revert(ctx context.Context) error {
	return o.carryOut(ctx, revertWorker, events.RevertRequested{}, o.revert)
}

func (o *Outbox) revert(ctx context.Context, e events.Event) error {
	var command events.RevertRequested
	if err := o.readCommand(ctx, e, &command); err != nil {
		return err
	}
	chat, _, err := o.Model.Chat(ctx, e.Subject.ID)
	if err != nil || chat.Session == "" || chat.Engine != o.Engine {
		return err // nothing has run there yet
	}
	if command.Message == "" {
		err = o.Current().Unrevert(ctx, chat.Session)
	} else if err = o.Current().Revert(ctx, chat.Session, command.Message); isBusy(err) {
		// What runs comes after the message, or is its turn: it is taken back too.
		return errors.Join(err, o.stop(ctx, chat.Session))
	}
	return o.ignoreRefusal(e, err)
}

// isBusy reports whether OpenCode refused because a turn of the session is running.
func isBusy(err error) bool {
	var refusal *client.Error
	return errors.As(err, &refusal) && refusal.Status == http.StatusConflict
}

// ignoreRefusal returns err unless OpenCode has refused the command for good. It logs such a refusal.
func (o *Outbox) ignoreRefusal(e events.Event, err error) error {
	var refusal *client.Error
	if !errors.As(err, &refusal) || refusal.Status == 0 || client.Retryable(err) {
		return err
	}
	o.Logger.Warn("opencode refuses", "command", e.Subject.Kind, "chat", e.Subject.ID, "err", err)
	return nil
}
