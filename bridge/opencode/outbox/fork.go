package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"maps"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/events"
	"pocketcoder/projections"
)

// fork copies a chat's session into the new chat. The messages of the copy arrive through the stream. The copy becomes
// the session of the new chat when it is complete. If OpenCode refuses, the new chat is empty.
func (o *Outbox) fork(ctx context.Context, f projections.Effect) error {
	from, _, err := o.Model.Chat(ctx, f.Chat)
	if err != nil {
		return err
	}
	into, known, err := o.Model.Chat(ctx, f.Into)
	if err != nil {
		return err
	}
	if from.Session == "" || !known || into.Removed || into.Session != "" {
		return nil // nothing to copy, no chat for the copy, or the copy is bound
	}
	if err := o.clear(ctx, into.ID); err != nil {
		return err
	}
	s, err := o.copy(ctx, from.Session, f)
	if err != nil {
		return err
	}
	if err := o.removeUnfinished(ctx, s.ID); err != nil {
		return err
	}
	if _, err := o.waitForChat(ctx, s.ID); err != nil {
		return err
	}
	return o.record(ctx, into.ID, events.SessionBound{Session: s.ID, Directory: s.Directory})
}

// clear deletes the copies of an interrupted try. They are not bound, so they have no messages of a person. clear
// deletes their messages one by one, because OpenCode reports no message deletions when a session is deleted.
func (o *Outbox) clear(ctx context.Context, chat string) error {
	known, err := o.Model.Sessions(ctx, o.Engine)
	if err != nil {
		return err
	}
	for _, s := range known {
		if s.Chat != chat || s.Parent != "" {
			continue
		}
		err := o.removeMessages(ctx, s.ID, func(client.Message) bool { return true })
		if err == nil {
			err = o.Ingest.Current().DeleteSession(ctx, s.ID)
		}
		if err != nil && !errors.Is(err, client.ErrGone) {
			return err
		}
	}
	return nil
}

// copy forks a session. It checks first that OpenCode knows the message, because OpenCode would otherwise copy
// everything (behaviour fork-unknown-message). If the mark stays in the metadata of the source, it has no effect.
func (o *Outbox) copy(ctx context.Context, session string, f projections.Effect) (client.Session, error) {
	c := o.Ingest.Current()
	if f.Message != "" {
		if err := c.HasMessage(ctx, session, f.Message); err != nil {
			return client.Session{}, err
		}
	}
	source, err := c.Session(ctx, session)
	if err != nil {
		return source, err
	}
	metadata := map[string]any{}
	_ = json.Unmarshal(source.Metadata, &metadata) // OpenCode stores only objects
	delete(metadata, ingest.MetadataFork)
	marked := maps.Clone(metadata)
	marked[ingest.MetadataFork] = f.Into
	if err := c.SetMetadata(ctx, session, marked); err != nil {
		return source, err
	}
	forked, err := c.Fork(ctx, session, f.Message)
	if err := c.SetMetadata(context.WithoutCancel(ctx), session, metadata); err != nil {
		o.Logger.Warn("fork", "session", session, "err", err)
	}
	return forked, err
}

// removeUnfinished deletes the unfinished answer of a running turn from a copy, where it would never finish.
func (o *Outbox) removeUnfinished(ctx context.Context, session string) error {
	return o.removeMessages(ctx, session, func(m client.Message) bool {
		return m.Info.Role == "assistant" && m.Info.Time.Completed == 0 && len(m.Info.Error) == 0
	})
}

func (o *Outbox) removeMessages(ctx context.Context, session string, which func(client.Message) bool) error {
	all, err := o.Ingest.Current().Messages(ctx, session)
	if err != nil {
		return err
	}
	for _, m := range all {
		if !which(m) {
			continue
		}
		if err := o.Ingest.Current().DeleteMessage(ctx, session, m.Info.ID); err != nil && !errors.Is(err, client.ErrGone) {
			return err
		}
	}
	return nil
}
