package email

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/matryer/is"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/channel/channeltest"
	"pocketcoder/handlers/channel"
	"pocketcoder/ops/expect"
)

func TestAnIMAPServerThatHangsIsConnectedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "* OK [CAPABILITY IMAP4rev1] ready\r\n")
		_, _ = io.Copy(io.Discard, conn) // the login gets no answer
	}()
	m, err := New(channel.Channel{Address: "assistant@example.org", Server: "imap://" + l.Addr().String()}, "secret", true,
		slog.New(slog.DiscardHandler))
	is.NoErr(err)
	m.silence = 50 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	is.True(m.Run(ctx, nil) != nil)
	is.NoErr(ctx.Err()) // it is Run that gave up
}

// Distrust makes the mailbox treat its servers as those of another machine, to which a password goes only encrypted.
func (m *Mailbox) Distrust() { m.local = func(net.Conn) bool { return false } }

func TestThePasswordLeavesThisMachineOnlyEncrypted(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]*channeltest.MailServer{
		"without STARTTLS":            channeltest.NewMailServer(t),
		"with an unknown certificate": channeltest.NewMailServerStartTLS(t),
		"encrypted, and unknown too":  channeltest.NewMailServerTLS(t),
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			server.Before(func(command string) error {
				if command == "LOGIN" || command == "AUTH" {
					t.Error("the server got", command)
				}
				return nil
			})
			m, err := New(channel.Channel{Address: channeltest.MailAddress, Server: server.IMAP, SMTP: server.SMTP},
				channeltest.MailPassword, true, slog.New(slog.DiscardHandler))
			is.NoErr(err)
			m.Distrust()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			expect.Contains(t, fmt.Sprint(m.Run(ctx, nil)), "to the IMAP server")
			_, err = m.Send(ctx, "ann@example.org", bridge.Message{})
			expect.Contains(t, fmt.Sprint(err), "to the SMTP server")
			is.NoErr(ctx.Err())
		})
	}
}
