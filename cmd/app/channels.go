package app

import (
	"context"
	"log/slog"
	"slices"
	"time"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/channel/email"
	"pocketcoder/bridge/channel/telegram"
	"pocketcoder/bridge/outbox"
	"pocketcoder/handlers/channel"
)

// wireChannels creates the channels to messengers.
func (s *System) wireChannels() {
	s.channels = &channel.Channels{
		Log: s.log, Secrets: s.secrets, Records: s.records, Chats: s.chats, Accounts: s.accounts, Decide: s.gate.Decide,
		AwaitReadModels: s.model.Wait,
		CountWaiting:    s.model.CountWaiting, IsSubmitted: s.model.IsSubmitted,
	}
}

// runChannels connects the channels, on the node with the engine.
func (s *System) runChannels(ctx context.Context) error {
	hub := &bridge.Hub{
		Channels: s.channels, Model: s.model, Logger: s.o.Logger, URL: s.publicURL,
		// a message waits until its platform accepts it, and each try is in the log
		RetryAfter: append(slices.Clone(outbox.RetryAfter), 5*time.Minute),
		Connect: func(c channel.Channel, token string, logger *slog.Logger) (bridge.Platform, error) {
			if c.Kind == channel.Email {
				return email.New(c, token, s.o.PushPrivate, logger)
			}
			return telegram.New(c, token, s.o.PushPrivate, logger)
		},
	}
	return hub.Run(ctx)
}

// runWebhooks posts events to the URLs that subscribe to them, on the node with the engine.
func (s *System) runWebhooks(ctx context.Context) error {
	sender := &bridge.WebhookSender{Channels: s.channels, Log: s.log, Model: s.model, Logger: s.o.Logger,
		RetryAfter: outbox.RetryAfter, AllowPrivate: s.o.PushPrivate}
	return sender.Run(ctx)
}
