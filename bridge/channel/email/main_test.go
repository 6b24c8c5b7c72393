package email_test

import (
	"log/slog"
	"testing"

	"github.com/emersion/go-imap/v2"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/channel/channeltest"
	"pocketcoder/bridge/channel/email"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

func TestMain(m *testing.M) { expect.Run(m) }

// system has a mailbox.
type system struct {
	*channeltest.System
	mail *channeltest.MailServer
}

const (
	ann      = "Ann <ann@example.org>"
	bob      = "Bob <bob@example.net>"
	stranger = "mallory@example.com"
)

func newSystem(t *testing.T) *system {
	return newSystemAt(t, channeltest.NewMailServer(t), channeltest.MailPassword)
}

func newSystemAt(t *testing.T, server *channeltest.MailServer, password string) *system {
	t.Helper()
	fields := map[string]any{"name": "mail", "kind": channel.Email, "server": server.IMAP, "smtp": server.SMTP,
		"address": channeltest.MailAddress, "authserv_id": channeltest.Authserv, "token": password}
	return &system{mail: server, System: channeltest.New(t, fields,
		func(c channel.Channel, token string, l *slog.Logger) (bridge.Platform, error) {
			m, err := email.New(c, token, true, l)
			if err == nil && server.Roots != nil {
				m.Roots = server.Roots
				m.Distrust()
			}
			return m, err
		})}
}

// pair pairs the sender of a mail with an account, and returns the answer and the chat of the thread.
func (s *system) pair(from, user string) (paired channeltest.Mail, chat string) {
	s.T.Helper()
	before := len(s.mail.Mails())
	s.confirmed(s.mail.Say(s.T, from, "Please pair me", s.Code(user)))
	paired = s.mail.AwaitMore(s.T, before)
	if len(s.Pairings()) == 0 {
		s.T.Fatal("not paired")
	}
	chats := s.chats()
	return paired, chats[len(chats)-1]
}

// confirmed waits until a mail is marked as seen.
func (s *system) confirmed(uid imap.UID) {
	s.T.Helper()
	s.mail.AwaitConfirmed(s.T, uid)
}

// chats returns the chats of all conversations, the newest last.
func (s *system) chats() (all []string) {
	s.T.Helper()
	list, err := record.All[struct{ Chat string }](s.T.Context(), s.Records, channel.Conversations)
	if err != nil {
		s.T.Fatal(err)
	}
	for _, r := range list {
		all = append(all, r.Value.Chat)
	}
	return all
}
