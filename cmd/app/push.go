package app

import (
	"pocketcoder/bridge/push"
	"pocketcoder/bridge/push/service"
	"pocketcoder/web/api"
)

// wirePush creates the sender of notifications. It comes after the API, which knows the users that have a chat open.
func (s *System) wirePush() {
	s.push = &push.Push{
		Log: s.log, Secrets: s.secrets, Model: s.model, Accounts: s.accounts, Records: s.records, Permissions: s.permissions, Logger: s.o.Logger,
		Sender:  service.Sender{URL: s.reached, VAPID: s.vapid, Relay: s.o.Relay, AllowPrivate: s.o.PushPrivate},
		Present: s.web.Realtime.Present, RetryAfter: push.DefaultRetryAfter, AwayAfter: push.DefaultAwayAfter,
	}
	s.web.API.Push = api.Push{Key: s.vapid.Public, Tell: s.push.Tell, Test: s.push.Test, Act: s.push.Act}
}
