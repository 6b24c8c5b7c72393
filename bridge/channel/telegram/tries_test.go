package telegram_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/matryer/is"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/channel/channeltest"
	"pocketcoder/bridge/channel/telegram"
	"pocketcoder/handlers/channel"
	"pocketcoder/ops/expect"
)

// receiver refuses some messages.
type receiver struct {
	bridge.Receiver

	mu    sync.Mutex
	texts []string
}

func (r *receiver) Receive(_ context.Context, in channel.Incoming) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, in.Text)
	if in.Text == "bad" {
		return errors.New("refused by the test")
	}
	return nil
}

func TestAnUpdateThatFailsEachTimeIsSkipped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := channeltest.NewTelegram(t)
	var lines expect.Buffer
	b, err := telegram.New(channel.Channel{Server: server.URL}, channeltest.BotToken, true,
		slog.New(slog.NewTextHandler(&lines, nil)))
	is.NoErr(err)
	b.Tries = bridge.Tries{Most: 3, Each: time.Minute, Pause: time.Millisecond}
	server.Say(me, me, "bad")
	server.SayTexts(me, me, "what is this?")
	last := server.Say(me, me, "good")
	ctx, cancel := context.WithCancel(t.Context())
	ended, to := make(chan error, 1), &receiver{}
	go func() { ended <- b.Run(ctx, to) }()
	server.AwaitConfirmed(t, last)
	cancel()
	<-ended
	is.Equal(to.texts, []string{"bad", "bad", "bad", "good"})
	expect.Contains(t, lines.String(), `msg="skipped an update of a channel" channel="" update=101 tries=3`)
	expect.Contains(t, lines.String(), `msg="skipped an update of a channel that cannot be read" channel="" update=102`)
}

func TestUpdatesThatAreTooLargeTogetherAreFetchedOneByOne(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	var last int64
	for range 90 {
		last = s.telegram.Say(stranger, stranger, strings.Repeat("x", 50<<10))
	}
	s.telegram.AwaitConfirmed(t, last)
}
