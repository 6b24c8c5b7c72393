package outbox

import (
	"context"
	"errors"
	"net/http"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/projections/effects"
)

// errStillRuns means that a turn still ran after it was stopped.
var errStillRuns = errors.New("the turn that is to be taken back still runs")

// revert takes back a message and what came after it, or undoes the last revert. OpenCode says whether an earlier try
// did it: to do it again would overwrite what people have changed in the files since.
func (o *Outbox) revert(ctx context.Context, f effects.Effect) error {
	chat, _, err := o.Model.Chat(ctx, f.Chat)
	if err != nil || chat.Session == "" {
		return err // nothing has run there yet
	}
	if f.Message == "" {
		return o.Current().Unrevert(ctx, chat.Session)
	}
	now, err := o.Current().Session(ctx, chat.Session)
	if err != nil || now.Revert.MessageID == f.Message {
		return err
	}
	if err = o.Current().Revert(ctx, chat.Session, f.Message); !isBusy(err) {
		return err
	}
	// What runs comes after the message, or is its turn: it is taken back too.
	if err = o.stop(ctx, chat.Session); err == nil {
		err = o.Current().Revert(ctx, chat.Session, f.Message)
	}
	if isBusy(err) {
		return errStillRuns
	}
	return err
}

// isBusy reports whether OpenCode refused because a turn of the session is running.
func isBusy(err error) bool {
	var refusal *client.Error
	return errors.As(err, &refusal) && refusal.Status == http.StatusConflict
}
