package push

import (
	"context"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// DefaultAwayAfter allows a client to reconnect.
const DefaultAwayAfter = 15 * time.Second

// viewer is an account that is viewing a chat.
type viewer struct{ user, chat string }

// withheldNotifications records the viewers who were not notified because they were viewing the chat. The value is the
// time since when the viewer is absent; it is zero while the viewer is present. The zero value is empty.
type withheldNotifications struct {
	mu sync.Mutex
	by map[viewer]time.Time
}

func (w *withheldNotifications) add(v viewer, absent time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.by == nil {
		w.by = map[viewer]time.Time{}
	}
	w.by[v] = absent
}

// left removes and returns the viewers who have been absent for at least away.
func (w *withheldNotifications) left(now time.Time, away time.Duration, present func(user,
	chat string) bool) (left []viewer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v, absent := range w.by {
		switch {
		case present(v.user, v.chat):
			w.by[v] = time.Time{}
		case absent.IsZero():
			w.by[v] = now
		case now.Sub(absent) >= away:
			delete(w.by, v)
			left = append(left, v)
		}
	}
	return left
}

// watchPresence notifies viewers who left a chat of the requests that are still pending there. A restart ends presence
// too, so it begins with all pending requests.
func (p *Push) watchPresence(ctx context.Context) {
	if err := p.withholdPending(ctx); err != nil && ctx.Err() == nil {
		p.Logger.Error("find pending requests to notify of", "err", err)
	}
	tick := time.NewTicker(max(p.AwayAfter/3, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			for _, v := range p.withheld.left(now, p.AwayAfter, p.Present) {
				if err := p.notifyPending(ctx, v.chat); err != nil && ctx.Err() == nil {
					p.Logger.Error("notify of pending requests", "chat", v.chat, "err", err)
					p.withheld.add(v, now) // try again
				}
			}
		case <-ctx.Done():
			return
		}
	}
}

// withholdPending records the owners of chats with a recent pending request as viewers who have just left.
func (p *Push) withholdPending(ctx context.Context) error {
	requests, err := p.Model.Permissions(ctx, "", events.Draft)
	if err != nil {
		return err
	}
	waiting, err := p.Model.Questions(ctx, "", projections.QuestionAsked)
	if err != nil {
		return err
	}
	since := events.FormatTime(time.Now().Add(-maxAge))
	chats := map[string]bool{}
	for _, a := range requests {
		chats[a.Chat] = chats[a.Chat] || a.WaitsForPerson() && a.Created > since
	}
	for _, q := range waiting {
		chats[q.Chat] = chats[q.Chat] || q.Created > since
	}
	for id, recent := range chats {
		chat, found, err := p.Model.Chat(ctx, id)
		if err != nil {
			return err
		}
		if !recent || !found || chat.Removed {
			continue
		}
		people, err := p.peopleOf(ctx, chat.User)
		if err != nil {
			return err
		}
		for _, user := range people {
			p.withheld.add(viewer{user, id}, time.Now())
		}
	}
	return nil
}

// notifyPending notifies the people of a chat of its pending requests. Devices that were notified already are skipped.
func (p *Push) notifyPending(ctx context.Context, chat string) error {
	requests, err := p.Model.Permissions(ctx, chat, events.Draft)
	if err != nil {
		return err
	}
	for _, a := range requests {
		if !a.WaitsForPerson() {
			continue // the policy is still deciding; its event will notify
		}
		if err := p.notifyRequest(ctx, "", events.Notice{Chat: chat, Permission: a.EnginePermission}); err != nil {
			return err
		}
	}
	waiting, err := p.Model.Questions(ctx, chat, projections.QuestionAsked)
	if err != nil {
		return err
	}
	for _, q := range waiting {
		if err := p.notifyRequest(ctx, "", events.Notice{Chat: chat, Question: q.EngineQuestion}); err != nil {
			return err
		}
	}
	return nil
}
