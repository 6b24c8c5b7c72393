package realtime

import (
	"cmp"
	"context"
	"errors"
	"time"

	"pocketcoder/web/api"
)

// timeouts are the time limits of a connection.
type timeouts struct {
	ping  time.Duration // between two pings
	idle  time.Duration // a connection without an event ends after this time, 5 minutes as in PocketBase
	guest time.Duration // a connection that is still a guest's ends after this time
}

var defaultTimeouts = timeouts{ping: api.PingEvery, idle: 5 * time.Minute, guest: 2 * time.Minute}

// stream sends queued events until the connection ends, and returns why it ended.
func (s *Realtime) stream(ctx context.Context, out *api.DeadlineWriter, c *client, p timeouts) error {
	ping, idle, anon := time.NewTicker(p.ping), time.NewTimer(p.idle), time.NewTimer(p.guest)
	defer ping.Stop()
	defer idle.Stop()
	defer anon.Stop()
	for {
		ended, expires := c.session()
		var err error
		sent := false
		select {
		case <-ctx.Done():
			return probeClose(out)
		case <-ended:
			return errSessionOver
		case <-idle.C:
			return errIdle
		case <-anon.C:
			if ended == nil {
				return errIdle
			}
		case now := <-ping.C:
			if !expires.IsZero() && now.After(expires) {
				return errSessionOver
			}
			err = send(out, []byte(": ping\n\n"))
		case <-c.wake:
			sent, err = s.deliver(ctx, out, c)
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) { // the client closed the connection between two pages
			return probeClose(out)
		}
		if err != nil {
			return err
		}
		if sent {
			idle.Reset(p.idle)
		}
	}
}

// probeClose reports whether the client closed the connection itself. A write to such a client still succeeds, so the
// client has received everything. A write to a dead connection fails.
func probeClose(out *api.DeadlineWriter) error {
	if err := send(out, []byte(": bye\n\n")); err != nil {
		return err
	}
	return errClosed
}

// send passes b to the kernel.
func send(out *api.DeadlineWriter, b []byte) error {
	if _, err := out.Write(b); err != nil {
		return err
	}
	return out.Flush()
}

func (c *client) session() (ended <-chan struct{}, expires time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended, c.expires
}

// deliver sends all queued events and catch-ups, and reports whether it sent any.
func (s *Realtime) deliver(ctx context.Context, out *api.DeadlineWriter, c *client) (sent bool, err error) {
	for _, sub := range c.dequeueCatchUps() {
		any, err := s.catchUp(ctx, out, sub)
		if sent = sent || any; err != nil {
			return sent, err
		}
	}
	queue, err := c.dequeue()
	if err != nil {
		return sent, err
	}
	if err := sendFrames(out, queue); err != nil {
		return sent, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending = nil
	c.api.RemoveUnsent(c.account, c.pending)
	c.pending = 0
	return sent || len(queue) > 0, nil
}

func (c *client) dequeueCatchUps() []*subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	behind := c.catchingUp
	c.catchingUp = nil
	return behind
}

// dequeue returns the frames to send now, without those that a catch-up has already sent.
func (c *client) dequeue() (queue []frame, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	for _, f := range c.queue {
		if !f.sub.ended && (f.last == 0 || f.last > f.sub.from) {
			f.clientHas = max(f.known, f.sub.from)
			queue = append(queue, f)
		}
	}
	c.sending, c.queue, c.bytes = queue, nil, 0
	c.pending, c.counted = c.counted, 0
	return queue, nil
}

// sendFrames sends frames together, in pieces of the size that the writer uses.
func sendFrames(out *api.DeadlineWriter, frames []frame) error {
	var piece []byte
	for i, f := range frames {
		if piece == nil {
			piece = make([]byte, 0, min(api.WritePiece, f.size()*(len(frames)-i)))
		}
		if piece = f.appendTo(piece); len(piece) < api.WritePiece && i < len(frames)-1 {
			continue
		}
		if err := send(out, piece); err != nil {
			return err
		}
		piece = piece[:0]
	}
	return nil
}

// stopped reports whether the subscription has ended. The error says that the session of the client has ended.
func (sub *subscription) stopped() (bool, error) {
	c := sub.client
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.ended:
		return true, errSessionOver
	default:
		return sub.ended, nil
	}
}

// catchUp sends the changes that a subscription missed, page by page.
func (s *Realtime) catchUp(ctx context.Context, out *api.DeadlineWriter, sub *subscription) (sent bool, err error) {
	begun := sub.from
	for more := true; more; {
		if stop, err := sub.stopped(); stop {
			return sent, err
		}
		var page []*message
		var upTo uint64
		if page, upTo, more, err = s.changes(ctx, sub.topic, sub.topic.ids(), sub.from); err != nil {
			return sent, cmp.Or(ctx.Err(), err)
		}
		if err := s.sendPage(out, sub, page, begun); err != nil {
			return sent, err
		}
		sent = sent || len(page) > 0
		sub.client.mu.Lock()
		sub.from, sub.catchUp = max(sub.from, upTo), more
		sub.client.mu.Unlock()
	}
	return sent, nil
}

// sendPage sends changes after begun, and counts their bytes meanwhile.
func (s *Realtime) sendPage(out *api.DeadlineWriter, sub *subscription, page []*message, begun uint64) error {
	frames, size := make([]frame, len(page)), 0
	for i, m := range page {
		frames[i] = frame{sub: sub, message: m, clientHas: begun}
		size += len(m.record)
	}
	if size <= api.WritePiece {
		return sendFrames(out, frames)
	}
	if !s.API.AddUnsent(sub.topic.slotKey, size) {
		return errSlow
	}
	defer s.API.RemoveUnsent(sub.topic.slotKey, size)
	return sendFrames(out, frames)
}
