package app

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/channel/channeltest"
	"pocketcoder/events"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/web"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
)

func TestWithoutTheOptionNothingIsSentToPrivateAddresses(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := openedModel(t)
	var lines expect.Buffer
	s.o.Logger = slog.New(slog.NewTextHandler(&lines, nil))
	s.records, s.engineNode = recordtype.Open(s.log, nil), &sharedEngine{}
	s.web = &web.Server{Site: &site.Site{API: &api.Server{}}}
	var err error
	s.secrets, err = secret.Open(t.Context(), s.nc, 1)
	is.NoErr(err)
	s.records.Secrets = s.secrets
	s.wireChannels()
	s.wirePush()
	is.True(!s.push.Sender.AllowPrivate)

	save := func(collection string, fields map[string]any) {
		_, _, err := s.records.Save(t.Context(), record.Save{New: true, Command: handlers.Command{Actor: events.ActorSystem},
			Collection: collection, Set: record.Fields(fields)})
		is.NoErr(err)
	}
	for _, fields := range []map[string]any{
		{"name": "bot", "kind": channel.Telegram, "server": "https://127.0.0.1:1"},
		{"name": "mailbox", "kind": channel.Email, "server": "imap://127.0.0.1:1", "smtp": "smtp://127.0.0.1:1",
			"address": "assistant@example.org", "authserv_id": "mx.example.org"},
	} {
		fields["token"] = channeltest.BotToken
		save(channel.Collection, fields)
	}
	save(channel.Targets, map[string]any{"name": "target", "url": "https://127.0.0.1:1", "types": "turn.lost"})
	for _, run := range []func(context.Context) error{s.runChannels, s.runWebhooks} {
		expect.Background(t, run)
	}
	e, err := events.New("chat1", events.ActorPolicy, events.TurnLost{Session: "ses_1"})
	is.NoErr(err)
	_, err = s.log.Append(t.Context(), e)
	is.NoErr(err)
	for _, name := range []string{"channel=bot ", "channel=mailbox ", "target=target "} {
		expect.Eventually(t, "an error about "+name, func() bool { return strings.Contains(lines.String(), name) })
	}
	for line := range strings.Lines(lines.String()) {
		expect.Contains(t, line, "127.0.0.1 is not a public address")
	}
}
