package channel

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"pocketcoder/bridge/egress"
	"pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers/channel"
	"pocketcoder/projections"
)

// WebhookSender posts events to the enabled targets, which are the URLs that subscribe to their types. All fields but
// AllowPrivate must be set.
//
// A target gets the events of its types in order. Each is signed with the secret of the target. An event that a target
// does not accept is tried again, and then recorded as failed; the next one follows. No target waits for another. After
// a crash between the response and its record, an event is sent twice, with the same sequence. A target is reached over
// https at a public address or not at all, and redirects are not followed.
type WebhookSender struct {
	Channels     *channel.Channels
	Log          *log.Log
	Model        *projections.Model // wakes the sender when targets change
	Logger       *slog.Logger
	RetryAfter   []time.Duration // pauses between tries
	AllowPrivate bool            // targets may be at private addresses, with http too

	http    *http.Client
	running map[string]webhookDelivery // by target; also those that were stopped, which may still have a request
	busy    sync.WaitGroup
}

// webhookDelivery is the delivery to a target as it was at a sequence.
type webhookDelivery struct {
	seq   uint64
	stop  context.CancelFunc
	ended chan struct{}
}

const (
	webhookTimeout   = 10 * time.Second
	maxWebhookAnswer = 4 << 10 // bytes of a response that are read
	webhookPause     = time.Second
	targetPause      = time.Hour // a change of the targets wakes the sender
)

// Run posts events until ctx ends.
func (s *WebhookSender) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.busy.Wait()
	defer cancel()
	guard := egress.Public
	if s.AllowPrivate {
		guard = func(netip.Addr) error { return nil }
	}
	dialer := net.Dialer{Timeout: webhookTimeout, Control: egress.Guard(guard)}
	s.http = &http.Client{Timeout: webhookTimeout,
		Transport: &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: webhookTimeout,
			IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.running = map[string]webhookDelivery{}
	return s.Model.Watch(ctx, s.Logger, "webhook targets", webhookPause, s.look)
}

// look starts and stops deliveries, so that exactly those of the enabled targets run, with their current settings. It
// must run again after targetPause.
func (s *WebhookSender) look(ctx context.Context) (next time.Duration, err error) {
	all, err := s.Channels.ListTargets(ctx)
	if err != nil {
		return 0, err
	}
	now := map[string]uint64{}
	for _, t := range all {
		if t.Enabled {
			now[t.ID] = t.Seq
		}
	}
	for id, d := range s.running {
		if now[id] != d.seq {
			d.stop()
		}
	}
	for _, t := range all {
		before, known := s.running[t.ID]
		if known && before.seq == t.Seq || !t.Enabled {
			continue
		}
		serving, stop := context.WithCancel(ctx)
		now := webhookDelivery{t.Seq, stop, make(chan struct{})}
		s.running[t.ID] = now
		s.busy.Go(func() {
			defer close(now.ended)
			if known {
				<-before.ended // it may be posting the event that comes next
			}
			s.serve(serving, t)
		})
	}
	return targetPause, nil
}

// serve posts the events of a target until ctx ends.
func (s *WebhookSender) serve(ctx context.Context, t channel.Target) {
	for ctx.Err() == nil {
		if err := s.follow(ctx, t); err != nil && ctx.Err() == nil {
			s.Logger.Error("webhook", "target", t.Name, "err", err)
			_ = sleep.For(ctx, webhookPause)
		}
	}
}

func (s *WebhookSender) follow(ctx context.Context, t channel.Target) error {
	secret, err := s.Channels.Records.Secret(ctx, channel.Targets, t.ID)
	if err != nil {
		return err
	}
	if len(secret) == 0 {
		<-ctx.Done() // storing one changes the target
		return ctx.Err()
	}
	position, err := s.Channels.Position(ctx, t.ID)
	if err != nil {
		return err
	}
	return s.Log.Read(ctx, position.Event, t.Filters(), func(b log.Batch) error {
		for _, e := range b.Events {
			err := outbox.Repeat(ctx, s.Logger.With("target", t.Name, "event", e.Seq), s.RetryAfter,
				func(ctx context.Context, tried int) error {
					return s.deliver(ctx, t, []byte(secret), position, e, tried+1)
				})
			if errors.Is(err, log.ErrConflict) { // a replay: the events follow from another position
				return events.ErrStop
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// deliver posts an event, and records whether the target has accepted it, unless another try may help.
func (s *WebhookSender) deliver(ctx context.Context, t channel.Target, secret []byte, from channel.Position,
	e events.Event, attempts int) error {
	patient, cancel := outbox.Patient(ctx)
	defer cancel()
	var d events.Data = events.WebhookDelivered{Event: e.Seq, Attempts: attempts}
	if err := s.post(patient, t, secret, e); err != nil {
		if attempts <= len(s.RetryAfter) || ctx.Err() != nil {
			return err
		}
		d = events.WebhookFailed{Event: e.Seq, Type: channel.TypeOf(e.Subject), Attempts: attempts, Reason: err.Error()}
	}
	return outbox.Record(ctx, s.Logger, func(ctx context.Context) error {
		return s.Channels.RecordDelivery(ctx, t.ID, from, d)
	})
}

// WebhookBody is the body of a request to a target.
type WebhookBody struct {
	Seq   uint64          `json:"seq"`
	Type  string          `json:"type"`
	Chat  string          `json:"chat,omitempty"` // empty for an event that is about no chat
	ID    string          `json:"id,omitempty"`   // of the record or account that it is about
	Time  time.Time       `json:"time"`
	Actor string          `json:"actor"`
	Data  json.RawMessage `json:"data"`
}

// post posts an event once. No error names the URL, which may have a secret in it.
func (s *WebhookSender) post(ctx context.Context, t channel.Target, secret []byte, e events.Event) error {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "https" && !s.AllowPrivate {
		return errors.New("the URL must be https")
	}
	if e.Malformed != nil {
		return nil
	}
	p := WebhookBody{Seq: e.Seq, Type: channel.TypeOf(e.Subject), ID: e.Subject.ID, Time: e.Time, Actor: e.Actor,
		Data: e.Data}
	if e.Subject.Scope == events.ScopeChat {
		p.Chat, p.ID = p.ID, ""
	}
	body, err := events.Encode(p)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.URL, bytes.NewReader(body))
	if err != nil {
		return errors.New("the URL is not one")
	}
	at := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", strconv.FormatUint(e.Seq, 10))
	r.Header.Set("X-PocketCoder-Timestamp", at)
	r.Header.Set("X-PocketCoder-Signature", "sha256="+SignWebhook(secret, at, body))
	resp, err := s.http.Do(r)
	if at := (*url.Error)(nil); errors.As(err, &at) {
		err = at.Err
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, maxWebhookAnswer) // so that the connection can be used again
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}

// SignWebhook returns the HMAC-SHA256 of a timestamp, a dot and a body, in hex.
func SignWebhook(secret []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}
