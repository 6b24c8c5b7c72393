package email

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/channel"
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
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	is.True(m.Run(ctx, nil) != nil)
	is.NoErr(ctx.Err()) // it is Run that gave up
}
