package app

import (
	"context"
	"errors"
	"os"

	"pocketcoder/bridge/outbox"
	"pocketcoder/bridge/push"
	"pocketcoder/events/atomicfile"
	"pocketcoder/events/secret"
)

// wirePush creates the sender of notifications.
func (s *System) wirePush() {
	s.push = &push.Push{
		Log: s.log, Secrets: s.secrets, Model: s.model, Accounts: s.accounts, Records: s.records, Decide: s.gate.Decide, Logger: s.o.Logger,
		Sender:     push.Sender{URL: s.publicURL, VAPID: s.vapid, Relay: s.o.Relay, AllowPrivate: s.o.PushPrivate},
		Present:    func(user, chat string) bool { return s.web.Realtime.IsViewing(user, chat) },
		RetryAfter: outbox.RetryAfter, AwayAfter: push.DefaultAwayAfter,
	}
}

// openVAPID loads the keys for Web Push. All nodes use the keys of the first one, because browsers subscribe with them.
func (s *System) openVAPID(ctx context.Context) (err error) {
	const shared = "webpush"
	file := s.o.Data.Path("keys", "webpush.json")
	if s.o.Roles == nil {
		s.vapid, err = push.LoadVAPID(file)
		return err
	}
	body, found, err := s.secrets.Get(ctx, shared)
	if err != nil {
		return err
	}
	if found {
		if err := atomicfile.Write(file, body); err != nil {
			return err
		}
	}
	if s.vapid, err = push.LoadVAPID(file); err != nil || found {
		return err
	}
	if body, err = os.ReadFile(file); err != nil {
		return err
	}
	if err = s.secrets.Create(ctx, shared, body); errors.Is(err, secret.ErrExists) {
		return s.openVAPID(ctx)
	}
	return err
}
