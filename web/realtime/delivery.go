package realtime

import (
	"context"
	"time"

	"pocketcoder/web/api"
)

// pace is how patient a connection is.
type pace struct {
	ping time.Duration // between signs of life
	idle time.Duration // without an event, after which it ends: PocketBase's 5 minutes
	anon time.Duration // after which one ends that is still nobody's
}

var usual = pace{ping: api.PingEvery, idle: 5 * time.Minute, anon: 2 * time.Minute}

// stream sends a client what is queued for it until one of them ends the connection, and says why it ended.
func (s *Realtime) stream(ctx context.Context, out *api.PatientWriter, c *client, p pace) error {
	ping, idle, anon := time.NewTicker(p.ping), time.NewTimer(p.idle), time.NewTimer(p.anon)
	defer ping.Stop()
	defer idle.Stop()
	defer anon.Stop()
	for {
		ended, expires := c.session()
		var err error
		sent := false
		select {
		case <-ctx.Done():
			return goodbye(out)
		case <-ended:
			return errOver
		case <-idle.C:
			return errIdle
		case <-anon.C:
			if ended == nil {
				return errIdle
			}
		case now := <-ping.C:
			if !expires.IsZero() && now.After(expires) {
				return errOver
			}
			err = send(out, []byte(": ping\n\n"))
		case <-c.news:
			sent, err = s.deliver(ctx, out, c)
		}
		if err != nil {
			return err
		}
		if sent {
			idle.Reset(p.idle)
		}
	}
}

// goodbye tells a client that closed the connection, and so had got everything, from one that was given up or that left
// unread what it had: what is written to the first is still taken, to the others it is not.
func goodbye(out *api.PatientWriter) error {
	if err := send(out, []byte(": bye\n\n")); err != nil {
		return err
	}
	return errClosed
}

// send hands b to the kernel.
func send(out *api.PatientWriter, b []byte) error {
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

// deliver sends what there is to send, and says whether there was any.
func (s *Realtime) deliver(ctx context.Context, out *api.PatientWriter, c *client) (sent bool, err error) {
	for _, sub := range c.takeBehind() {
		any, err := s.catchUp(ctx, out, sub)
		if sent = sent || any; err != nil {
			return sent, err
		}
	}
	queue, err := c.take()
	if err != nil {
		return sent, err
	}
	if err := sendFrames(out, queue); err != nil {
		return sent, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending = nil
	return sent || len(queue) > 0, nil
}

func (c *client) takeBehind() []*subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	behind := c.behind
	c.behind = nil
	return behind
}

// take gives what is to be sent now: without what a subscription that caught up has sent already.
func (c *client) take() (queue []frame, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return nil, c.failed
	}
	for _, f := range c.queue {
		if !f.sub.over && (f.last == 0 || f.last > f.sub.from) {
			f.had = max(f.known, f.sub.from)
			queue = append(queue, f)
		}
	}
	c.sending, c.queue, c.bytes = queue, nil, 0
	return queue, nil
}

// sendFrames sends many frames at once, in pieces as large as the writer makes them.
func sendFrames(out *api.PatientWriter, frames []frame) error {
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

// stopped says whether there is no more to send for a subscription, or for its client.
func (sub *subscription) stopped() (bool, error) {
	c := sub.client
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.ended:
		return true, errOver
	default:
		return sub.over, nil
	}
}

// catchUp sends what a subscription has missed, a page at a time.
func (s *Realtime) catchUp(ctx context.Context, out *api.PatientWriter, sub *subscription) (sent bool, err error) {
	begun := sub.from
	for more := true; more; {
		if stop, err := sub.stopped(); stop {
			return sent, err
		}
		var page []*message
		var upTo uint64
		if page, upTo, more, err = s.changes(ctx, sub.topic, sub.topic.ids(), sub.from); err != nil {
			return sent, err
		}
		frames := make([]frame, len(page))
		for i, m := range page {
			frames[i] = frame{sub, m, begun}
		}
		if err := sendFrames(out, frames); err != nil {
			return sent, err
		}
		sent = sent || len(page) > 0
		sub.client.mu.Lock()
		sub.from, sub.behind = max(sub.from, upTo), more
		sub.client.mu.Unlock()
	}
	return sent, nil
}
