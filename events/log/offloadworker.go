package log

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log/blob"
	"pocketcoder/events/log/sleep"
)

// OffloadWorker moves large contents of old chats out of the log, to files in a directory of the operator. Without Dir
// it does nothing; the other fields must be set.
//
// It moves what the events of a chat name (outputs of commands and changed files), and OpenCode's diffs, once the chat
// has been archived for long. Read models need none of these. Events do not change. The log has a content until its
// file is complete, and readers find it there afterwards.
type OffloadWorker struct {
	Log    *Log
	Dir    string        // absolute
	After  time.Duration // since the last change of an archived chat
	Logger *slog.Logger

	// Archived returns the archived chats that have not changed since a time: when each has changed, by id.
	Archived func(ctx context.Context, since time.Time) (map[string]string, error)
}

// offloadEvery is how often the worker looks for chats.
const offloadEvery = 24 * time.Hour

// Run offloads contents at the start and once a day until ctx ends.
func (w *OffloadWorker) Run(ctx context.Context) error {
	if w.Dir == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	// the chats that are offloaded, as Archived returned them: reading a long chat takes a second
	done := map[string]string{}
	for {
		if err := w.pass(ctx, done); err != nil && ctx.Err() == nil {
			w.Logger.Error("offload contents of archived chats", "err", err)
		}
		if err := sleep.For(ctx, offloadEvery); err != nil {
			return err
		}
	}
}

// pass offloads the contents of all chats that are not done.
func (w *OffloadWorker) pass(ctx context.Context, done map[string]string) (err error) {
	chats, err := w.Archived(ctx, time.Now().Add(-w.After))
	if err != nil {
		return err
	}
	for chat, changed := range chats {
		if done[chat] == changed {
			continue
		}
		failed := w.offload(ctx, chat)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failed == nil {
			done[chat] = changed
		}
		err = errors.Join(err, failed)
	}
	return err
}

// offload moves the contents of a chat. If one cannot be moved, the others are moved all the same.
func (w *OffloadWorker) offload(ctx context.Context, chat string) (failed error) {
	names := map[string]bool{}
	_, err := w.Log.Fold(WithoutTimeout(ctx), events.ChatFilter(chat), 0, func(e events.Event) error {
		if e.Malformed != nil {
			return nil
		}
		for _, name := range events.BlobsIn(e.Data) {
			names[name] = true
		}
		if e.Subject.Kind == sessionDiff && len(e.Data) > MaxInline {
			names[blob.HashName(e.Data)] = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name := range names {
		if _, err := w.Log.Blobs.Offload(ctx, name, w.Dir); err != nil && !errors.Is(err, blob.ErrNotFound) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// sessionDiff is the kind of OpenCode's diffs.
var sessionDiff = events.OpenCode{Type: "session.diff"}.Kind()
