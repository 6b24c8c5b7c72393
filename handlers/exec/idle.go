package exec

import (
	"context"
	"fmt"
	"io"
	"time"

	"pocketcoder/events"
	"pocketcoder/sandbox/wire"
)

// maxIdlePause is the longest time between two looks for idle chats.
const maxIdlePause = time.Minute

// endIdle ends the background commands of idle chats, until ctx ends.
func (x *Executions) endIdle(ctx context.Context) {
	tick := time.NewTicker(max(min(x.IdleAfter/4, maxIdlePause), time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for chat, runs := range x.running.onlyDetached() {
			idle, err := x.isIdle(ctx, chat, runs)
			if err != nil && ctx.Err() == nil {
				x.Logger.Warn("look whether a chat is idle", "chat", chat, "err", err)
			}
			for i := 0; idle && i < len(runs); i++ {
				why := fmt.Sprintf("The chat was idle for %s.", x.IdleAfter)
				runs[i].endedBecause.Store(&why)
				runs[i].end()
			}
		}
	}
}

// isIdle reports whether a chat with background commands is idle: for IdleAfter it had no event and no running turn,
// and its commands wrote no output and had no connection.
func (x *Executions) isIdle(ctx context.Context, chat string, runs []*run) (bool, error) {
	since := time.Now().Add(-x.IdleAfter)
	for _, u := range runs {
		if u.connections.Load() > 0 || time.Unix(0, u.used.Load()).After(since) {
			return false, nil
		}
	}
	last, err := x.Log.Newest(ctx, events.ChatFilter(chat))
	if err != nil {
		return false, err
	}
	at, err := x.Log.Stored(ctx, last)
	if err != nil || at.After(since) {
		return false, err
	}
	hasTurn, err := x.HasTurn(ctx, chat)
	return !hasTurn, err
}

// onlyDetached returns the executions of the chats in which nothing runs but background commands.
func (r *runningExecutions) onlyDetached() map[string][]*run {
	r.mu.Lock()
	defer r.mu.Unlock()
	chats, others := map[string][]*run{}, map[string]bool{}
	for _, u := range r.byExec {
		chats[u.chat] = append(chats[u.chat], u)
		others[u.chat] = others[u.chat] || !u.requested.Detached
	}
	for chat := range others {
		if others[chat] {
			delete(chats, chat)
		}
	}
	return chats
}

// use notes that an execution is in use now.
func (u *run) use() { u.used.Store(time.Now().UnixNano()) }

// noting returns a writer of output that notes the use.
func (u *run) noting(w io.Writer) io.Writer {
	return writer(func(p []byte) (int, error) {
		u.use()
		return w.Write(p)
	})
}

// withEnd sets why PocketCoder ended an execution.
func (u *run) withEnd(result wire.Result) wire.Result {
	why := u.endedBecause.Load()
	if why != nil && (result.Reason == wire.Cancelled || result.Reason == wire.Exited) {
		result.Reason, result.Error = wire.Cancelled, *why
	}
	return result
}
