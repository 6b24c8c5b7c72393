package outbox

import (
	"context"
	"errors"
	"net/http"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/projections/effects"
)

// errStillRuns means that a turn was still running after it was stopped.
var errStillRuns = errors.New("the turn that is to be undone still runs")

// revert undoes a message and everything after it, or undoes the last revert. If OpenCode reports that an earlier try
// was successful, revert does nothing, because another revert would overwrite later changes of files.
func (o *Outbox) revert(ctx context.Context, f effects.Effect) error {
	chat, _, err := o.Model.Chat(ctx, f.Chat)
	if err != nil || chat.Session == "" {
		return err // without a session there is nothing to revert
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
	// The running turn is part of what is undone.
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
