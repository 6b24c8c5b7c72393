package outbox

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/snapshots"
	"pocketcoder/events"
	"pocketcoder/projections"
)

// errStillRuns means that a turn was still running after it was stopped.
var errStillRuns = errors.New("the turn that is to be undone still runs")

// filesError means that a revert could not keep or restore a file.
type filesError struct{ err error }

func (e filesError) Error() string { return e.err.Error() }
func (e filesError) Unwrap() error { return e.err }

// maxFilesTries is the number of tries that end with a filesError after which the revert fails.
const maxFilesTries = 5

// tryRevert tries a revert and records its outcome. After maxFilesTries a fault of the files is the outcome, so that
// the chat goes on.
func (o *Outbox) tryRevert(ctx context.Context, f projections.Effect, earlierTries int) error {
	restored, err := o.revert(ctx, f)
	if e := (filesError{}); errors.As(err, &e) && earlierTries+1 >= maxFilesTries && ctx.Err() == nil {
		o.Logger.Error("keep files in an undo", "chat", f.Chat, "err", err)
		return o.record(ctx, f.Chat, events.EffectFailed{Effect: f.ID, Reason: err.Error()})
	}
	return o.recordOutcome(ctx, f, restored, err)
}

// revert undoes a message and everything after it, or undoes the last revert. If OpenCode reports that an earlier try
// was successful, revert does not repeat it, because another revert would overwrite later changes of files. It returns
// the files that it kept because they had been changed.
func (o *Outbox) revert(ctx context.Context, f projections.Effect) (restored snapshots.Restored, err error) {
	chat, _, err := o.Model.Chat(ctx, f.Chat)
	if err != nil || chat.Session == "" {
		return restored, err // without a session there is nothing to revert
	}
	now, err := o.Ingest.Current().Session(ctx, chat.Session)
	if err != nil {
		return restored, err
	}
	if f.Message == "" || now.Revert.MessageID != f.Message {
		if err := o.keepFiles(ctx, f, chat, now); err != nil {
			return restored, filesError{err}
		}
		if err := o.revertIn(ctx, chat.Session, f.Message); err != nil {
			return restored, errors.Join(err, o.discardKept(f.ID, err))
		}
	}
	if o.Snapshots == nil {
		return restored, nil
	}
	if restored, err = o.Snapshots.Restore(ctx, f.ID); err != nil {
		return restored, filesError{err}
	}
	return restored, nil
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
		return o.Ingest.Current().Unrevert(ctx, session)
	}
	err := o.Ingest.Current().Revert(ctx, session, message)
	if !isBusy(err) {
		return err
	}
	// The running turn is part of what is undone.
	if err = o.stop(ctx, session); err == nil {
		err = o.Ingest.Current().Revert(ctx, session, message)
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

// keepFiles copies the files that the revert must not change. OpenCode restores a whole snapshot when it undoes a
// revert, and before it reverts further messages. That overwrites files that no turn has changed. It also leaves files
// behind that the snapshot lacks. An earlier try may have reverted some files already. keepFiles does not copy these
// again, because the copies of that try hold their content from before the revert.
func (o *Outbox) keepFiles(ctx context.Context, f projections.Effect, chat projections.Chat, now client.Session) error {
	if o.Snapshots == nil {
		return nil
	}
	files, err := o.filesOf(ctx, chat, f.Message, now)
	if err != nil {
		return err
	}
	c := snapshots.Copies{Written: map[string][]string{}}
	for _, file := range files {
		c.Written[file.path] = file.written
	}
	compared := files
	if f.Overwrite { // the person agreed to lose what the first try saw, and nothing later
		c.Seen = slices.Collect(maps.Keys(c.Written))
		newer, err := o.Snapshots.ChangedSince(f.ID, c.Seen)
		if err != nil {
			return err
		}
		compared = slices.DeleteFunc(slices.Clone(files), func(f expectedFile) bool {
			return !slices.Contains(newer, f.path)
		})
	}
	if c.Changed, c.Unchanged, err = o.compare(ctx, compared); err != nil {
		return err
	}
	c.Files = slices.Clone(c.Changed)
	if snapshot := now.Revert.Snapshot; snapshot != "" {
		all, err := o.Snapshots.AllDiffering(ctx, snapshot)
		if err != nil {
			return err
		}
		for _, file := range all {
			if !slices.ContainsFunc(files, func(f expectedFile) bool { return f.path == file }) {
				c.Files = append(c.Files, file)
				c.Written[file] = []string{snapshot}
			}
		}
		if f.Message == "" {
			var undone []string
			for _, file := range files {
				if !slices.Contains(c.Files, file.path) {
					undone = append(undone, file.path)
				}
			}
			if c.Absent, err = o.Snapshots.Absent(ctx, snapshot, undone); err != nil {
				return err
			}
		}
	}
	return o.Snapshots.Keep(f.ID, c)
}

// expectedFile is a file that a revert changes.
type expectedFile struct {
	path     string
	snapshot string   // with the content that the turns or the last revert left; empty for none
	written  []string // snapshots with the contents that OpenCode's revert writes, in this order
}

// filesOf returns the files that a revert of a message changes, or, without a message, the undoing of the last revert.
func (o *Outbox) filesOf(ctx context.Context, chat projections.Chat, message string,
	now client.Session) (all []expectedFile, err error) {
	var undone []projections.ChangedFile
	if now.Revert.MessageID != "" {
		if undone, err = o.Model.ChangesSince(ctx, chat.ID, now.Revert.MessageID); err != nil {
			return nil, err
		}
	}
	for _, file := range undone {
		all = append(all, expectedFile{file.Path, file.Before, []string{now.Revert.Snapshot}})
	}
	if message == "" {
		return all, nil
	}
	changes, err := o.Model.ChangesSince(ctx, chat.ID, message)
	for _, file := range changes {
		i := slices.IndexFunc(all, func(f expectedFile) bool { return f.path == file.Path })
		if i < 0 {
			i, all = len(all), append(all, expectedFile{path: file.Path, snapshot: file.After})
		}
		all[i].written = append(all[i].written, file.Before)
	}
	return all, err
}

// compare divides files into two groups. A changed file has neither the expected content nor one that OpenCode's
// revert writes, so the revert would lose its content. An unchanged file has the expected content. compare returns no
// file that the revert has already written.
func (o *Outbox) compare(ctx context.Context, files []expectedFile) (changed, unchanged []string, err error) {
	expected, made := map[string][]string{}, map[string][]string{}
	for _, file := range files {
		expected[file.snapshot] = append(expected[file.snapshot], file.path)
		for _, snapshot := range file.written {
			made[snapshot] = append(made[snapshot], file.path)
		}
	}
	isOther, isMade := map[string]bool{}, map[string]bool{}
	for snapshot, paths := range expected {
		differing, err := o.Snapshots.Differing(ctx, snapshot, paths)
		if err != nil {
			return nil, nil, err
		}
		for _, path := range differing {
			isOther[path] = true
		}
	}
	for snapshot, paths := range made {
		differing, err := o.Snapshots.Differing(ctx, snapshot, paths)
		if err != nil {
			return nil, nil, err
		}
		for _, path := range paths {
			isMade[path] = isMade[path] || !slices.Contains(differing, path)
		}
	}
	for _, file := range files {
		switch {
		case isMade[file.path]:
		case isOther[file.path]:
			changed = append(changed, file.path)
		default:
			unchanged = append(unchanged, file.path)
		}
	}
	slices.Sort(changed)
	return changed, unchanged, nil
}

// Changed returns the files that a revert would change although they differ from the state that the turns of the chat,
// or its last revert, left. A file that cannot be compared counts as one. It waits for the earlier aborts, reverts and
// forks of the chat. message is OpenCode's id, empty for the undoing of the last revert. The error may be
// ErrUnknownChat or ErrUnavailable.
func (o *Outbox) Changed(ctx context.Context, chatID, message string) ([]string, error) {
	session, err := o.sessionOf(ctx, chatID)
	if err != nil || session == "" || o.Snapshots == nil {
		return nil, err
	}
	chat, _, err := o.Model.Chat(ctx, chatID)
	if err != nil {
		return nil, err
	}
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if o.Ingest.WaitConnected(connecting) != nil {
		return nil, ErrUnavailable
	}
	waiting, cancel := context.WithTimeout(ctx, changedTimeout)
	defer cancel()
	if err := o.awaitEffects(waiting, chatID); err != nil {
		return nil, errors.Join(ErrUnavailable, err)
	}
	now, err := o.Ingest.Current().Session(waiting, session)
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
	changed, _, err := o.compare(ctx, files)
	return changed, err
}

// changedTimeout limits the wait for the earlier effects of the chat.
const changedTimeout = 20 * time.Second

// awaitEffects waits until the aborts, reverts and forks of a chat that the log has now are carried out.
func (o *Outbox) awaitEffects(ctx context.Context, chat string) error {
	last, err := o.Log.Last(ctx)
	if err == nil {
		err = o.Model.Wait(ctx, last)
	}
	for err == nil {
		seq := o.Model.Seq()
		open, listErr := o.Model.PendingEffects(ctx, o.Engine)
		isOpen := func(f projections.Effect) bool { return f.Chat == chat && uint64(f.Position) <= last }
		if listErr != nil || !slices.ContainsFunc(open, isOpen) {
			return listErr
		}
		err = o.Model.Wait(ctx, seq+1)
	}
	return err
}
