package channel_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/matryer/is"
	"github.com/nats-io/nats.go"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

// The stored token of one channel is damaged.
func TestAChannelWhoseTokenCannotBeReadStopsNoOther(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	for _, name := range []string{"unreadable", "readable"} {
		id, seq, err := s.channels.Records.Save(t.Context(), record.Save{Collection: channel.Collection, New: true,
			Command: handlers.Command{Actor: events.ActorSystem}, Set: record.Fields(map[string]any{"name": name,
				"kind": channel.Telegram, "enabled": true, "token": "1:abcdefghijklmnopq"})})
		is.NoErr(err)
		is.NoErr(s.model.Wait(t.Context(), seq))
		if name == "unreadable" {
			damaged := &nats.Msg{Subject: "$KV.SECRETS.channel." + id, Header: nats.Header{"Nats-Sequence": {"x"}}}
			_, err := s.nc.RequestMsgWithContext(t.Context(), damaged)
			is.NoErr(err)
		}
	}
	connected, logged := make(chan string, 2), &expect.Buffer{}
	hub := &bridge.Hub{Channels: s.channels, Model: s.model, Logger: slog.New(slog.NewTextHandler(logged, nil)),
		Connect: func(c channel.Channel, _ string, _ *slog.Logger) (bridge.Platform, error) {
			connected <- c.Name
			return nil, errors.New("no more is needed")
		}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- hub.Run(ctx) }()
	is.Equal(<-connected, "readable")
	cancel()
	<-ended
	expect.Contains(t, logged.String(), `"read the token of a channel" channel=unreadable`)
}
