package projections

import (
	"context"
	"slices"
	"sync"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
)

// Limits of a MomentCache.
const (
	maxMomentChats   = 4
	maxMomentModel   = 64 << 20        // bytes; larger read models are computed from a save each time
	momentSaveEvery  = 200             // events
	momentUnusedTime = 5 * time.Minute // after which a chat is removed
)

// MomentEvent is an event of a chat without its body.
type MomentEvent struct {
	Seq   uint64
	ID    string
	Kind  string
	Actor string
	Time  time.Time
}

// MomentCache holds the read models of the few chats that were replayed last, so that another moment costs little. Each
// moment equals the one that MomentAt computes. A chat that is not replayed any more is removed. It is safe for
// concurrent use. Its callers take turns for a chat.
type MomentCache struct {
	log *log.Log

	mu    sync.Mutex
	chats []*momentChat // the one used last is the first
}

func NewMomentCache(l *log.Log) *MomentCache { return &MomentCache{log: l} }

// momentChat is what the cache holds of a chat.
type momentChat struct {
	id     string
	turn   chan struct{} // holds a value while a caller uses events and model
	events []MomentEvent
	model  *momentModel

	users  int         // callers that use it or wait for it; MomentCache.mu guards it
	unused *time.Timer // removes it while there are no users
}

// Show calls fn with a chat as it was after the event at seq, and again after each of the chat's next events, more of
// them at most. It returns ErrNoChat if the chat had no event at seq, and an error of fn unchanged.
func (c *MomentCache) Show(ctx context.Context, id string, seq uint64, more int, fn MomentView) error {
	return c.use(ctx, id, func(k *momentChat) error {
		err := k.model.show(ctx, seq, more, fn)
		if err != nil || k.model.size(ctx) > maxMomentModel {
			k.model.close()
		}
		return err
	})
}

// Events returns the events of a chat that are stored now, in order. It returns ErrNoChat if there are none.
func (c *MomentCache) Events(ctx context.Context, id string) (all []MomentEvent, err error) {
	err = c.use(ctx, id, func(k *momentChat) error {
		after := uint64(0)
		if n := len(k.events); n > 0 {
			after = k.events[n-1].Seq
		}
		_, err := c.log.Fold(ctx, events.ChatFilter(id), after, func(e events.Event) error {
			k.events = append(k.events, MomentEvent{e.Seq, e.ID, e.Subject.Kind, e.Actor, e.Time})
			return nil
		})
		if all = slices.Clip(k.events); err == nil && len(all) == 0 {
			return ErrNoChat
		}
		return err
	})
	return all, err
}

// use calls fn when it is the caller's turn for a chat.
func (c *MomentCache) use(ctx context.Context, id string, fn func(*momentChat) error) error {
	k := c.enter(id)
	defer c.leave(k)
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-k.turn }()
	return fn(k)
}

// enter adds a user to a chat, which becomes the first of the list. It removes the last one of a long list.
func (c *MomentCache) enter(id string) *momentChat {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.chats, func(k *momentChat) bool { return k.id == id })
	var k *momentChat
	if i >= 0 {
		k = c.chats[i]
		c.chats = slices.Delete(c.chats, i, i+1)
		k.unused.Stop()
	} else {
		m := &momentModel{log: c.log, chat: id, every: momentSaveEvery, limit: maxMomentSaves}
		k = &momentChat{id: id, turn: make(chan struct{}, 1), model: m}
		k.unused = time.AfterFunc(momentUnusedTime, func() { c.remove(k) })
	}
	k.users++
	c.chats = slices.Insert(c.chats, 0, k)
	if len(c.chats) > maxMomentChats {
		c.drop(c.chats[maxMomentChats])
	}
	return k
}

// leave removes a user from a chat.
func (c *MomentCache) leave(k *momentChat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.users--
	if k.users > 0 {
		return
	}
	if slices.Contains(c.chats, k) {
		k.unused.Reset(momentUnusedTime)
	} else {
		k.model.close()
	}
}

// remove removes a chat that was not used for a while.
func (c *MomentCache) remove(k *momentChat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.users == 0 {
		c.drop(k)
	}
}

// drop removes a chat from the list. Its last user frees its memory. The caller holds c.mu.
func (c *MomentCache) drop(k *momentChat) {
	k.unused.Stop()
	c.chats = slices.DeleteFunc(c.chats, func(one *momentChat) bool { return one == k })
	if k.users == 0 {
		k.model.close()
	}
}
