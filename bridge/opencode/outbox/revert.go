package outbox

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/projections"
	"pocketcoder/projections/effects"
	"pocketcoder/projections/turns"
)

// errStillRuns means that a turn was still running after it was stopped.
var errStillRuns = errors.New("the turn that is to be undone still runs")

// revert undoes a message and everything after it, or undoes the last revert. If OpenCode reports that an earlier try
// was successful, revert does not repeat it, because another revert would overwrite later changes of files. It returns
// the files that it kept because they had been changed.
func (o *Outbox) revert(ctx context.Context, f effects.Effect) (kept []string, err error) {
	chat, _, err := o.Model.Chat(ctx, f.Chat)
	if err != nil || chat.Session == "" {
		return nil, err // without a session there is nothing to revert
	}
	now, err := o.Current().Session(ctx, chat.Session)
	if err != nil {
		return nil, err
	}
	if f.Message == "" || now.Revert.MessageID != f.Message {
		if kept, err = o.keepFiles(ctx, f, chat, now); err != nil {
			return nil, err
		}
		if err := o.revertIn(ctx, chat.Session, f.Message); err != nil {
			return nil, errors.Join(err, o.discardKept(f.ID, err))
		}
	}
	if o.Snapshots != nil {
		err = o.Snapshots.Restore(f.ID)
	}
	return kept, err
}

// discardKept discards the copies of files if OpenCode has refused, and so changed no file: at the next try the files
// may be newer.
func (o *Outbox) discardKept(effect string, err error) error {
	var refusal *client.Error
	isRefused := errors.As(err, &refusal) && refusal.Status != 0 && !client.Retryable(err) || errors.Is(err, errStillRuns)
	if o.Snapshots == nil || !isRefused {
		return nil
	}
	return o.Snapshots.Discard(effect)
}

// revertIn makes OpenCode undo a message, or undo its last revert if message is empty.
func (o *Outbox) revertIn(ctx context.Context, session, message string) error {
	if message == "" {
		return o.Current().Unrevert(ctx, session)
	}
	err := o.Current().Revert(ctx, session, message)
	if !isBusy(err) {
		return err
	}
	// The running turn is part of what is undone.
	if err = o.stop(ctx, session); err == nil {
		err = o.Current().Revert(ctx, session, message)
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

// keepFiles copies the files that the effect must not change, and returns those of them that the undone turns changed
// too. OpenCode restores a whole snapshot to undo a revert, and also before it reverts more messages. That also
// overwrites files that no turn has changed, and leaves files that the snapshot does not have.
func (o *Outbox) keepFiles(ctx context.Context, f effects.Effect, chat projections.Chat,
	now client.Session) (changed []string, err error) {
	if o.Snapshots == nil {
		return nil, nil
	}
	files, err := o.filesOf(ctx, chat, f.Message, now)
	if err == nil && !f.Overwrite {
		changed, err = o.changed(ctx, files, f.Message, now)
	}
	if err != nil {
		return nil, err
	}
	kept, absent := changed, []string{}
	if snapshot := now.Revert.Snapshot; snapshot != "" {
		all, err := o.Snapshots.AllDiffering(ctx, snapshot)
		if err != nil {
			return nil, err
		}
		for _, file := range all {
			if !slices.ContainsFunc(files, func(f expectedFile) bool { return f.path == file }) {
				kept = append(kept, file)
			}
		}
		if f.Message == "" {
			var undone []string
			for _, file := range files {
				if !slices.Contains(kept, file.path) {
					undone = append(undone, file.path)
				}
			}
			if absent, err = o.Snapshots.Absent(ctx, snapshot, undone); err != nil {
				return nil, err
			}
		}
	}
	if len(kept)+len(absent) == 0 {
		return nil, nil
	}
	return changed, o.Snapshots.Keep(f.ID, kept, absent)
}

// expectedFile is a file that a revert changes, and the snapshot that holds it as the turns, or the last revert, left
// it. The snapshot is empty if there is none.
type expectedFile struct{ path, snapshot string }

// filesOf returns the files that a revert of a message changes, or, without a message, the undoing of the last revert.
func (o *Outbox) filesOf(ctx context.Context, chat projections.Chat, message string,
	now client.Session) (all []expectedFile, err error) {
	var undone []turns.ChangedFile
	if now.Revert.MessageID != "" {
		if undone, err = turns.Changes(ctx, o.Model, chat.ID, now.Revert.MessageID); err != nil {
			return nil, err
		}
	}
	for _, file := range undone {
		all = append(all, expectedFile{file.Path, file.Before})
	}
	if message == "" {
		return all, nil
	}
	changes, err := turns.Changes(ctx, o.Model, chat.ID, message)
	for _, file := range changes {
		if !slices.ContainsFunc(all, func(f expectedFile) bool { return f.path == file.Path }) {
			all = append(all, expectedFile{file.Path, file.After})
		}
	}
	return all, err
}

// changed returns the files that are not as expected. Of the files that the undoing of a revert changes, those count
// that it would lose.
func (o *Outbox) changed(ctx context.Context, files []expectedFile, message string,
	now client.Session) (all []string, err error) {
	of := map[string][]string{}
	for _, file := range files {
		of[file.snapshot] = append(of[file.snapshot], file.path)
	}
	for snapshot, paths := range of {
		differing, err := o.Snapshots.Differing(ctx, snapshot, paths)
		if err != nil {
			return nil, err
		}
		all = append(all, differing...)
	}
	if message == "" && len(all) > 0 {
		all, err = o.Snapshots.Differing(ctx, now.Revert.Snapshot, all)
	}
	slices.Sort(all)
	return all, err
}

// Changed returns the files that a revert would change although they differ from the state that the turns of the chat,
// or its last revert, left. A file that cannot be compared counts as one. message is OpenCode's id, empty for the
// undoing of the last revert. The error may be ErrUnknownChat or ErrUnavailable.
func (o *Outbox) Changed(ctx context.Context, chatID, message string) (all []string, err error) {
	session, err := o.sessionOf(ctx, chatID)
	if err != nil || session == "" || o.Snapshots == nil {
		return nil, err
	}
	chat, _, err := o.Model.Chat(ctx, chatID)
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if o.WaitConnected(waiting) != nil {
		return nil, ErrUnavailable
	}
	now, err := o.Current().Session(waiting, session)
	switch {
	case errors.Is(err, client.ErrGone) || err == nil && message != "" && now.Revert.MessageID == message:
		return nil, nil
	case err != nil:
		return nil, errors.Join(ErrUnavailable, err)
	}
	files, err := o.filesOf(ctx, chat, message, now)
	if err != nil {
		return nil, err
	}
	return o.changed(ctx, files, message, now)
}
