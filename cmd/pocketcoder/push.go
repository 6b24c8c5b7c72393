package main

import (
	"errors"
	"flag"
	"net/url"
	"strings"

	"pocketcoder/bridge/push"
	"pocketcoder/bridge/push/service"
	"pocketcoder/web/api"
)

// pushFlags are what a person may choose about notifications. The relay's secret is no flag: others see those.
func (o *upOptions) pushFlags(fs *flag.FlagSet, env environment) {
	fs.StringVar(&o.relay.URL, "push-relay", env.getenv("POCKETCODER_PUSH_RELAY"), "`URL` of the relay that hands notifications on to Firebase, with POCKETCODER_PUSH_RELAY_SECRET (POCKETCODER_PUSH_RELAY)")
	fs.BoolVar(&o.pushPrivate, "push-allow-private", env.getenv("POCKETCODER_PUSH_ALLOW_PRIVATE") != "",
		"let devices name push services at private and loopback addresses, and http there: for an ntfy of your own (POCKETCODER_PUSH_ALLOW_PRIVATE)")
	o.relay.Secret = env.getenv("POCKETCODER_PUSH_RELAY_SECRET")
}

func (o upOptions) checkPush() error {
	u, err := url.Parse(o.relay.URL)
	if err != nil || o.relay.URL != "" && (u.Host == "" || u.Scheme != "https" && u.Scheme != "http") {
		return errors.New("--push-relay: want a URL such as https://relay.example.org/push")
	}
	return nil
}

// reached is the URL under which people reach the web server, which listens at address.
func (o upOptions) reached(address string) string {
	if o.url != "" {
		return strings.TrimSuffix(o.url, "/")
	}
	return "http://" + address
}

// wirePush makes what tells people on their devices, once the API is there: it knows who looks at a chat.
func (s *parts) wirePush() {
	s.push = &push.Push{
		Log: s.log, Secrets: s.secrets, Model: s.model, Accounts: s.accounts, Handlers: s.handlers, Logger: s.o.logger,
		Sender:  service.Sender{URL: s.reached, VAPID: s.vapid, Relay: s.o.relay, AllowPrivate: s.o.pushPrivate},
		Present: s.web.Realtime.Present, RetryAfter: push.DefaultRetryAfter, AwayAfter: push.DefaultAwayAfter,
	}
	s.web.API.Push = api.Push{Key: s.vapid.Public, Tell: s.push.Tell, Test: s.push.Test, Act: s.push.Act}
}
