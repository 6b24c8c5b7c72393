package app

import (
	"pocketcoder/bridge/push"
	"pocketcoder/bridge/push/service"
	"pocketcoder/web/api"
)

// wirePush makes what tells people on their devices, once the API is there: it knows who looks at a chat.
func (s *System) wirePush() {
	s.push = &push.Push{
		Log: s.log, Secrets: s.secrets, Model: s.model, Accounts: s.accounts, Records: s.records, Permissions: s.permissions, Logger: s.o.Logger,
		Sender:  service.Sender{URL: s.reached, VAPID: s.vapid, Relay: s.o.Relay, AllowPrivate: s.o.PushPrivate},
		Present: s.web.Realtime.Present, RetryAfter: push.DefaultRetryAfter, AwayAfter: push.DefaultAwayAfter,
	}
	s.web.API.Push = api.Push{Key: s.vapid.Public, Tell: s.push.Tell, Test: s.push.Test, Act: s.push.Act}
}
