package telegram_test

import (
	"log/slog"
	"strings"
	"testing"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/channel/channeltest"
	"pocketcoder/bridge/channel/telegram"
	"pocketcoder/handlers/channel"
	"pocketcoder/ops/expect"
)

func TestMain(m *testing.M) { expect.Run(m) }

// system has a bot.
type system struct {
	*channeltest.System
	telegram *channeltest.Telegram
}

const (
	me       = int64(4711) // a person, and the private conversation with her
	stranger = int64(666)
	group    = int64(-100200)
)

func newSystem(t *testing.T) *system {
	t.Helper()
	server := channeltest.NewTelegram(t)
	fields := map[string]any{"name": "bot", "kind": channel.Telegram, "server": server.URL, "token": channeltest.BotToken,
		"trigger": "poco"}
	return &system{telegram: server, System: channeltest.New(t, fields,
		func(c channel.Channel, token string, l *slog.Logger) (bridge.Platform, error) {
			return telegram.New(c, token, true, l)
		})}
}

// pair pairs a person in a conversation with an account, and returns the chat.
func (s *system) pair(place, from int64, user string) (chat string) {
	s.T.Helper()
	before := len(s.Pairings())
	s.telegram.AwaitConfirmed(s.T, s.telegram.Say(place, from, "/start "+s.Code(user)))
	all := s.Pairings()
	if len(all) != before+1 {
		s.T.Fatalf("not paired: %+v", all)
	}
	s.telegram.AwaitText(s.T, "You are paired")
	return s.ChatOf(place)
}

// say sends a text and waits until it is confirmed to Telegram.
func (s *system) say(place, from int64, text string) {
	s.T.Helper()
	s.telegram.AwaitConfirmed(s.T, s.telegram.Say(place, from, text))
}

func count(all []channeltest.TelegramMessage, text string) (n int) {
	for _, m := range all {
		if strings.Contains(m.Text, text) {
			n++
		}
	}
	return n
}
