// Package email connects a channel to a mailbox: it reads the mailbox over IMAP and sends over SMTP.
//
// Promises:
//   - A mail is marked as seen only after it has been handled, so a crash loses none. Its Message-ID, or its UID if it
//     has none, makes a repetition harmless. Mails are handled one at a time and in order.
//   - The address in From is the sender only if the receiving server states, in its own header, that DKIM or SPF passed
//     for exactly the domain of that address. The mailbox must be in To: a signed mail to another address, which a
//     third person sends on, is not for the assistant. Any other mail is marked as seen, and has no effect.
//   - Automatic mails have no effect, so that no loop of mails arises. Each mail that leaves is marked as automatic.
//   - Without TLS it speaks only to a loopback address.
//   - A server that answers nothing for maxSilence is connected again.
//   - The Message-ID of a mail that leaves is the same for each try to send it.
//
// It must not know chats, accounts, or what is sent.
package email

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/egress"
	"pocketcoder/handlers/channel"
	"pocketcoder/sleep"
)

const (
	dialTimeout  = 30 * time.Second
	sendTimeout  = time.Minute
	fileTimeout  = 5 * time.Minute       // to send a file
	pollPause    = 30 * time.Second      // without IDLE
	idleFor      = 2 * time.Minute       // a server may lose a change that happens as IDLE begins
	maxSilence   = idleFor + time.Minute // of an IMAP server, which answers at the end of idleFor
	retryPause   = 5 * time.Second
	loginPause   = 5 * time.Minute // after a wrong password: further tries could lock the mailbox
	maxMail      = 2 << 20         // bytes; larger mails are not fetched, except their headers
	maxHeader    = 64 << 10        // bytes of the headers of a larger mail
	inbox        = "INBOX"
	defaultIMAPS = "993"
)

// Mailbox is a mailbox of the assistant.
type Mailbox struct {
	channel channel.Channel
	secret  string
	imap    *url.URL
	smtp    *url.URL
	address string
	dialer  net.Dialer
	silence time.Duration         // after which the connection to the IMAP server ends
	local   func(c net.Conn) bool // loopback, but for tests
	logger  *slog.Logger

	// Roots are the authorities whose certificates the servers must have; nil stands for those of the operating system.
	Roots *x509.CertPool
}

// New returns the mailbox of a channel. Without allowPrivate it reaches its servers at public addresses only.
func New(c channel.Channel, password string, allowPrivate bool, logger *slog.Logger) (*Mailbox, error) {
	m := &Mailbox{channel: c, secret: password, silence: maxSilence, local: loopback, logger: logger}
	var valid bool
	var err error
	if m.address, valid = channel.MailAddress(c.Address); !valid {
		return nil, errors.New("the mailbox has no address")
	}
	if m.imap, err = url.Parse(c.Server); err != nil {
		return nil, errors.New("the IMAP server is not a URL")
	}
	if m.smtp, err = url.Parse(c.SMTP); err != nil {
		return nil, errors.New("the SMTP server is not a URL")
	}
	guard := egress.Public
	if allowPrivate {
		guard = func(netip.Addr) error { return nil }
	}
	m.dialer = net.Dialer{Timeout: dialTimeout, Control: egress.Guard(guard)}
	return m, nil
}

// user returns the name with which to log in to a server: that in its URL, or the address.
func (m *Mailbox) user(server *url.URL) string {
	if name := server.User.Username(); name != "" {
		return name
	}
	return m.address
}

// dial connects to a server. The connection is encrypted if implicit is set.
func (m *Mailbox) dial(ctx context.Context, server *url.URL, port string, implicit bool) (net.Conn, error) {
	if server.Port() != "" {
		port = server.Port()
	}
	address := net.JoinHostPort(server.Hostname(), port)
	if implicit {
		dialer := tls.Dialer{NetDialer: &m.dialer, Config: m.tlsConfig(server)}
		return dialer.DialContext(ctx, "tcp", address)
	}
	return m.dialer.DialContext(ctx, "tcp", address)
}

func (m *Mailbox) tlsConfig(server *url.URL) *tls.Config {
	return &tls.Config{RootCAs: m.Roots, ServerName: server.Hostname(), MinVersion: tls.VersionTLS12}
}

// loopback reports whether a connection does not leave this machine, and thus needs no encryption.
func loopback(conn net.Conn) bool {
	at, ok := conn.RemoteAddr().(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// Typing does nothing: a mailbox cannot show it.
func (m *Mailbox) Typing(context.Context, string) error { return nil }

// Split returns the text: a mail has no limit that an answer reaches.
func (m *Mailbox) Split(text string) []string { return []string{text} }

// Run hands over the mails that are not seen, and waits for further ones.
func (m *Mailbox) Run(ctx context.Context, to bridge.Receiver) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	woken := make(chan struct{}, 1)
	c, err := m.connect(ctx, woken)
	if err != nil {
		return err
	}
	defer c.Close()
	selected, err := c.Select(inbox, nil).Wait()
	if err != nil {
		return fmt.Errorf("select %s: %w", inbox, err)
	}
	for {
		select {
		case <-woken: // what follows sees the mail
		default:
		}
		if err := m.receive(ctx, c, selected.UIDValidity, to); err != nil {
			return err
		}
		if err := m.wait(ctx, c, woken); err != nil {
			return err
		}
	}
}

// connect logs in to the IMAP server. The client sends to woken when the mailbox changes. The connection ends with ctx.
func (m *Mailbox) connect(ctx context.Context, woken chan<- struct{}) (*imapclient.Client, error) {
	implicit := m.imap.Scheme == "imaps"
	port := "143"
	if implicit {
		port = defaultIMAPS
	}
	conn, err := m.dial(ctx, m.imap, port, implicit)
	if err != nil {
		return nil, fmt.Errorf("connect to the IMAP server: %w", err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	conn = impatient{conn, m.silence}
	o := &imapclient.Options{TLSConfig: m.tlsConfig(m.imap), UnilateralDataHandler: &imapclient.UnilateralDataHandler{
		Mailbox: func(*imapclient.UnilateralDataMailbox) {
			select {
			case woken <- struct{}{}:
			default:
			}
		}}}
	var c *imapclient.Client
	if implicit || m.local(conn) {
		c = imapclient.New(conn, o)
	} else if c, err = imapclient.NewStartTLS(conn, o); err != nil {
		return nil, fmt.Errorf("encrypt the connection to the IMAP server: %w", err)
	}
	if err := c.Login(m.user(m.imap), m.secret).Wait(); err != nil {
		c.Close()
		err = fmt.Errorf("log in to the IMAP server as %s: %w", m.user(m.imap), err)
		if refused := (*imap.Error)(nil); errors.As(err, &refused) {
			return nil, bridge.RetryError{Err: err, After: loginPause}
		}
		return nil, err
	}
	return c, nil
}

// impatient is a connection that is closed after a read without a deadline has waited for a time. The client sets no
// deadline while it waits for a response, so a server that hangs would stop the mailbox for ever.
type impatient struct {
	net.Conn
	silence time.Duration
}

func (c impatient) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		t = time.Now().Add(c.silence)
	}
	return c.Conn.SetReadDeadline(t)
}

func (c impatient) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.Close() // the client would read on
	}
	return n, err
}

// receive hands over the mails that are not seen, and marks each as seen.
func (m *Mailbox) receive(ctx context.Context, c *imapclient.Client, validity uint32, to bridge.Receiver) error {
	found, err := c.UIDSearch(&imap.SearchCriteria{NotFlag: []imap.Flag{imap.FlagSeen, imap.FlagDeleted}}, nil).Wait()
	if err != nil {
		return fmt.Errorf("search mails: %w", err)
	}
	for _, uid := range firstOf(found.All) {
		in, err := m.fetch(c, uid)
		logger := m.logger.With("channel", m.channel.Name, "uid", uid)
		switch refused, why := (*imap.Error)(nil), ignored(""); {
		case errors.As(err, &refused): // the next search has it again
			logger.Error("email: the server does not deliver a mail", "err", err)
			continue
		case errors.As(err, &why):
			logger.Warn("email: a mail has no effect", "reason", why)
		case err != nil:
			return fmt.Errorf("fetch mail %d: %w", uid, err)
		default:
			in.Channel, in.Update = m.channel, in.Address+" "+in.Thread.Message
			if in.Thread.Message == "" {
				in.Update = fmt.Sprintf("%d.%d", validity, uid)
			}
			if err := m.handOver(ctx, to, in); err != nil {
				return fmt.Errorf("handle mail %d: %w", uid, err)
			}
		}
		seen := &imap.StoreFlags{Op: imap.StoreFlagsAdd, Silent: true, Flags: []imap.Flag{imap.FlagSeen}}
		if err := c.Store(imap.UIDSetNum(uid), seen, nil).Close(); err != nil {
			return fmt.Errorf("mark mail %d as seen: %w", uid, err)
		}
	}
	return nil
}

// maxFound is how many mails of a search are handled before the next search.
const maxFound = 1000

// firstOf returns the lowest UIDs of a search. A server may name ranges of any size.
func firstOf(found imap.NumSet) (uids []imap.UID) {
	set, _ := found.(imap.UIDSet)
	slices.SortFunc(set, func(a, b imap.UIDRange) int { return cmp.Compare(a.Start, b.Start) })
	for _, r := range set {
		for uid := r.Start; uid != 0 && uid <= r.Stop && len(uids) < maxFound; uid++ {
			uids = append(uids, uid)
		}
	}
	return uids
}

// handOver hands over a mail until it is taken. It returns only the error of ctx.
func (m *Mailbox) handOver(ctx context.Context, to bridge.Receiver, in channel.Incoming) error {
	for {
		err := to.Receive(ctx, in)
		if err == nil || ctx.Err() != nil {
			return ctx.Err()
		}
		m.logger.Error("email", "channel", m.channel.Name, "mail", in.Update, "err", err)
		_ = sleep.For(ctx, retryPause)
	}
}

// fetch fetches a mail. The error may be ignored.
func (m *Mailbox) fetch(c *imapclient.Client, uid imap.UID) (in channel.Incoming, err error) {
	list, err := c.Fetch(imap.UIDSetNum(uid), &imap.FetchOptions{UID: true, RFC822Size: true}).Collect()
	if err != nil {
		return in, err
	}
	if len(list) == 0 {
		return in, ignored("another client has deleted it")
	}
	size := list[0].RFC822Size
	section := &imap.FetchItemBodySection{Peek: true, Partial: &imap.SectionPartial{Size: maxMail}}
	if size > maxMail {
		section.Specifier, section.Partial.Size = imap.PartSpecifierHeader, maxHeader
	}
	what := &imap.FetchOptions{UID: true, BodySection: []*imap.FetchItemBodySection{section}}
	list, err = c.Fetch(imap.UIDSetNum(uid), what).Collect()
	if err != nil {
		return in, err
	}
	if len(list) == 0 || len(list[0].BodySection) == 0 {
		return in, ignored("another client has deleted it")
	}
	raw := list[0].BodySection[0].Bytes
	if size > maxMail && len(raw) >= maxHeader { // its end, and thus a field, may be cut
		return in, ignored("its headers are too large")
	}
	return m.read(raw, size)
}

// wait waits until the mailbox changes, or for a time.
func (m *Mailbox) wait(ctx context.Context, c *imapclient.Client, woken <-chan struct{}) error {
	if !c.Caps().Has(imap.CapIdle) {
		return awaitChange(ctx, c, woken, pollPause)
	}
	idle, err := c.Idle()
	if err != nil {
		return fmt.Errorf("wait for mails: %w", err)
	}
	err = awaitChange(ctx, c, woken, idleFor)
	return errors.Join(err, idle.Close(), idle.Wait())
}

func awaitChange(ctx context.Context, c *imapclient.Client, woken <-chan struct{}, pause time.Duration) error {
	select {
	case <-woken:
	case <-time.After(pause):
	case <-c.Closed():
		return errors.New("wait for mails: the IMAP server closed the connection")
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
