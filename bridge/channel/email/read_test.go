package email

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/matryer/is"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/channel/channeltest"
	"pocketcoder/handlers/channel"
	"pocketcoder/ops/expect"
)

// Quotations is a text of almost maxMail in which each second line is quoted. A reader that looks at all lines before a
// quotation needs minutes for it.
var Quotations = "On 1 x@y wrote:\n" + strings.Repeat("a\n>\n", 340_000)

func TestEachLineOfATextIsVisitedOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text := newText(t.Context(), Quotations)
	is.Equal(text, "On 1 x@y wrote:\n"+strings.TrimSpace(strings.Repeat("a\n", 340_000)))
	for text, want := range map[string]string{
		"On 1 x wrote:\n> b\n\nOn 2 x wrote:\n> c\nd":      "d",
		"a\n\nOn 1 x wrote:\n\n\n> b\n\n\nOn 2:\n> c\n\nd": "a\n\nd",
		"a\nb\nc\nOn 1 x wrote:\n> d":                      "a\nb\nc\nOn 1 x wrote:",
		"a\n> b\n\nc\n> d\n\n\ne":                          "a\n\nc\n\ne",
		"\n\n> a\n\nb":                                     "b",
		"1" + strings.Repeat("x", 1000) + ":\n> a":         "1" + strings.Repeat("x", 1000) + ":",
	} {
		is.Equal(newText(t.Context(), text), want)
	}
}

func TestReadingAMailEndsWithItsContext(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	is.Equal(newText(ctx, Quotations), "")
	is.Equal(plainText(ctx, strings.Repeat("<p>a</p>", 100)), "")
	_, _, err := content(ctx, []byte("Subject: a\n\nb"), false)
	is.True(err != nil)
}

func TestOfAStrangersMailOnlyTheBeginningIsRead(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	m := mailbox(t, channeltest.NewMailServer(t), nil)
	mixed := "Content-Type: multipart/mixed; boundary=b\r\n"
	file := "\r\n--b\r\nContent-Disposition: attachment; filename=a\r\n\r\n" + strings.Repeat("x\r\n", maxStart)
	for _, raw := range []string{
		compose("", "code\r\n"+strings.Repeat("x\r\n", maxStart)),
		compose(mixed, "--b\r\n\r\ncode\r\n"+file+"\r\n--b--"),
		compose("Content-Transfer-Encoding: base64\r\n", "Y29kZSAg"+strings.Repeat("eHh4eHh4\r\n", maxStart)),
	} {
		in, err := m.read(t.Context(), []byte(raw), int64(len(raw)))
		is.NoErr(err)
		is.True(strings.HasPrefix(in.Text, "code"))
		is.True(len(in.Text) <= maxStart)
		is.True(in.Files == nil)
		is.NoErr(in.Read(t.Context(), &in))
		is.True(strings.HasPrefix(in.Text, "code"))
		is.Equal(in.Files != nil, strings.Contains(raw, mixed))
	}
	_, err := m.read(t.Context(), []byte(compose(strings.Repeat("X-A: b\r\n", maxHeader/8), "")), maxHeader)
	is.Equal(err, ignored("its headers are too large"))
}

// compose returns a mail of an authentic sender with further headers and a body.
func compose(headers, body string) string {
	return strings.ReplaceAll(channeltest.Pass("a@example.org"), "\n", "\r\n") + "From: a@example.org\r\nTo: " +
		channeltest.MailAddress + "\r\n" + headers + "\r\n" + body
}

func mailbox(t *testing.T, server *channeltest.MailServer, lines io.Writer) *Mailbox {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	if lines != nil {
		logger = slog.New(slog.NewTextHandler(lines, nil))
	}
	m, err := New(channel.Channel{Address: channeltest.MailAddress, Server: server.IMAP, SMTP: server.SMTP,
		Authserv: channeltest.Authserv}, channeltest.MailPassword, true, logger)
	if err != nil {
		t.Fatal(err)
	}
	m.Tries = bridge.Tries{Most: 3, Each: time.Minute, Pause: time.Millisecond}
	return m
}

// receiver refuses some mails.
type receiver struct {
	bridge.Receiver
	refuses string // text of the mails

	mu    sync.Mutex
	texts []string
}

func (r *receiver) Receive(ctx context.Context, in channel.Incoming) error {
	if err := in.Read(ctx, &in); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.texts = append(r.texts, in.Text)
	if in.Text == r.refuses {
		return errors.New("refused by the test")
	}
	return nil
}

func TestAMailThatFailsEachTimeIsSkipped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := channeltest.NewMailServer(t)
	var lines expect.Buffer
	m, to := mailbox(t, server, &lines), &receiver{refuses: "bad"}
	bad := server.Say(t, "a@example.org", "", "bad")
	good := server.Say(t, "a@example.org", "", "good")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx, to) }()
	server.AwaitConfirmed(t, good)
	server.AwaitConfirmed(t, bad)
	cancel()
	<-ended
	is.Equal(to.texts, []string{"bad", "bad", "bad", "good"})
	expect.Contains(t, lines.String(), "skipped an update of a channel")
	is.Equal(server.Flagged(), []imap.UID{bad})
}

func TestAMailThatCannotBeFetchedIsSkipped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	server := channeltest.NewMailServer(t)
	var lines expect.Buffer
	m, to := mailbox(t, server, &lines), &receiver{}
	bad := server.Say(t, "a@example.org", "", "bad")
	server.Before(func(command string) error {
		if command == "FETCH" {
			return errors.New("refused by the test")
		}
		return nil
	})
	search := func(connection int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c, err := m.connect(ctx, make(chan struct{}, 1))
		is.NoErr(err)
		defer c.Close()
		_, err = c.Select(inbox, nil).Wait()
		is.NoErr(err)
		is.NoErr(m.receive(ctx, c, 1, to))
		is.Equal(len(server.Flagged()) > 0, connection == 3)
	}
	for connection := range 3 {
		search(connection + 1)
	}
	server.AwaitConfirmed(t, bad)
	expect.Contains(t, lines.String(), "skipped a mail that the server does not deliver")
	for n := range 3 { // a mail that breaks the connection, which ends Run
		id := mailID{1, 99}
		err := m.fetchFailed(t.Context(), m.logger, id, io.ErrUnexpectedEOF)
		is.True(errors.Is(err, io.ErrUnexpectedEOF))
		is.Equal(slices.Equal(m.mails[id].flags, skipped), n == 2)
	}
	is.Equal(fmt.Sprint(to.texts), "[]")
}
