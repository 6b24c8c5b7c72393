// Package email connects a channel to a mailbox: it reads the mailbox over IMAP and sends over SMTP.
//
// Promises:
//   - A mail is marked as seen only after it has been handled, so a crash loses none. Its Message-ID, or its UID if it
//     has none, makes a repetition harmless. Mails are handled one at a time and in order.
//   - A mail that fails bridge.Tries times is skipped: it is marked as seen and flagged, and the log says so.
//   - Reading a mail takes time in proportion to its size, and ends with its context. Only the headers and the
//     beginning of a stranger's mail are read, to find a pairing code.
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
)

const (
	dialTimeout  = 30 * time.Second
	sendTimeout  = time.Minute
	fileTimeout  = 5 * time.Minute       // to send a file
	pollPause    = 30 * time.Second      // without IDLE
	idleFor      = 2 * time.Minute       // a server may lose a change that happens as IDLE begins
	maxSilence   = idleFor + time.Minute // of an IMAP server, which answers at the end of idleFor
	loginPause   = 5 * time.Minute       // after a wrong password: further tries could lock the mailbox
	maxMail      = 2 << 20               // bytes; larger mails are not fetched, except their headers
	maxHeader    = 64 << 10              // bytes of the headers of a mail
	maxStart     = 64 << 10              // bytes after the headers of a stranger's mail in which a code is searched
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
	mails   map[mailID]mailState // those that failed, or that are not yet marked as seen

	// Tries limits the work for one mail.
	Tries bridge.Tries
	// Roots are the authorities whose certificates the servers must have; nil stands for those of the operating system.
	Roots *x509.CertPool
}

// New returns the mailbox of a channel. Without allowPrivate it reaches its servers at public addresses only.
func New(c channel.Channel, password string, allowPrivate bool, logger *slog.Logger) (*Mailbox, error) {
	m := &Mailbox{channel: c, secret: password, silence: maxSilence, local: loopback, logger: logger,
		mails: map[mailID]mailState{}, Tries: bridge.DefaultTries}
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

// mailID identifies a mail of the mailbox.
type mailID struct {
	validity uint32
	uid      imap.UID
}

// mailState is the state of a mail between searches. It outlives the connection: without it, a mail that breaks
// connections would be fetched forever.
type mailState struct {
	failed int         // fetches that failed
	flags  []imap.Flag // to set, because the mail was handled or skipped; nil before
}

var (
	handled = []imap.Flag{imap.FlagSeen}
	skipped = []imap.Flag{imap.FlagSeen, imap.FlagFlagged} // so that a person finds it
)

// receive hands over the mails that are not seen, and marks each as seen.
func (m *Mailbox) receive(ctx context.Context, c *imapclient.Client, validity uint32, to bridge.Receiver) error {
	found, err := c.UIDSearch(&imap.SearchCriteria{NotFlag: []imap.Flag{imap.FlagSeen, imap.FlagDeleted}}, nil).Wait()
	if err != nil {
		return fmt.Errorf("search mails: %w", err)
	}
	for _, uid := range firstOf(found.All) {
		id := mailID{validity, uid}
		if m.mails[id].flags == nil {
			if err := m.take(ctx, c, id, to); err != nil {
				return err
			}
		}
		flags := m.mails[id].flags
		if flags == nil { // the next search has it again
			continue
		}
		store := &imap.StoreFlags{Op: imap.StoreFlagsAdd, Silent: true, Flags: flags}
		if err := c.Store(imap.UIDSetNum(uid), store, nil).Close(); err != nil {
			return fmt.Errorf("mark mail %d as seen: %w", uid, err)
		}
		delete(m.mails, id)
	}
	return nil
}

// take fetches a mail and hands it over. It sets the flags of the mail if the mail needs no further work. It returns
// the error of a connection that broke.
func (m *Mailbox) take(ctx context.Context, c *imapclient.Client, id mailID, to bridge.Receiver) error {
	logger := m.logger.With("channel", m.channel.Name, "uid", id.uid)
	in, err := m.fetch(ctx, c, id.uid)
	if why := ignored(""); errors.As(err, &why) {
		logger.Warn("email: a mail has no effect", "reason", why)
		m.mails[id] = mailState{flags: handled}
		return nil
	}
	if err != nil {
		return m.fetchFailed(ctx, logger, id, err)
	}
	in.Channel, in.Update = m.channel, in.Address+" "+in.Thread.Message
	if in.Thread.Message == "" {
		in.Update = fmt.Sprintf("%d.%d", id.validity, id.uid)
	}
	flags := handled
	if m.Tries.HandOver(ctx, logger.With("mail", in.Update), func(ctx context.Context) error {
		return to.Receive(ctx, in)
	}) {
		flags = skipped
	}
	if ctx.Err() != nil {
		return fmt.Errorf("handle mail %d: %w", id.uid, ctx.Err())
	}
	m.mails[id] = mailState{flags: flags}
	return nil
}

// fetchFailed counts a failed fetch of a mail, and skips the mail after the last try. It returns err unless the server
// refused the fetch, and thus still answers.
func (m *Mailbox) fetchFailed(ctx context.Context, logger *slog.Logger, id mailID, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	state := m.mails[id]
	if state.failed++; state.failed >= m.Tries.Most {
		logger.Error("email: skipped a mail that the server does not deliver", "tries", state.failed, "err", err)
		state.flags = skipped
	} else {
		logger.Error("email: the server does not deliver a mail", "failed", state.failed, "err", err)
	}
	m.mails[id] = state
	if errors.As(err, new(*imap.Error)) {
		return nil
	}
	return fmt.Errorf("fetch mail %d: %w", id.uid, err)
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

// fetch fetches a mail. The error may be ignored.
func (m *Mailbox) fetch(ctx context.Context, c *imapclient.Client, uid imap.UID) (in channel.Incoming, err error) {
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
	return m.read(ctx, list[0].BodySection[0].Bytes, size)
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
