package channeltest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/mail"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"
	"github.com/emersion/go-imap/v2/imapserver/imapmemserver"
	"github.com/emersion/go-message"
	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// The mailbox of the assistant, and the name with which the server marks its Authentication-Results headers.
const (
	MailAddress  = "assistant@example.org"
	MailPassword = "xkqv-wjzr-bqhd-mfvt"
	Authserv     = "mx.example.org"
)

type MailServer struct {
	IMAP, SMTP string         // URLs
	Roots      *x509.CertPool // with TLS

	user *imapmemserver.User

	mu      sync.Mutex
	changed chan struct{} // closed on each change
	last    imap.UID
	seen    map[imap.UID]bool
	flagged []imap.UID
	sent    []Mail
	before  func(command string) error
}

// Mail is a mail that the assistant has sent.
type Mail struct {
	To        string
	Header    message.Header
	ID        string
	InReplyTo string
	Text      string
	File      string // name of the attachment; empty for none
	Content   string // of the attachment
}

// Code returns the code after a verb in the text of a mail.
func (m Mail) Code(verb string) string {
	_, rest, _ := strings.Cut(m.Text, "\n    "+verb+" ")
	code, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(code)
}

// NewMailServer starts a server on the loopback address without TLS. It ends with the test.
func NewMailServer(t testing.TB) *MailServer { return startMailServer(t, nil, "imap", "smtp") }

// NewMailServerTLS starts a server that encrypts its connections from the start.
func NewMailServerTLS(t testing.TB) *MailServer { return startEncryptedMailServer(t, "imaps", "smtps") }

// NewMailServerStartTLS starts a server that accepts a password only after STARTTLS.
func NewMailServerStartTLS(t testing.TB) *MailServer {
	return startEncryptedMailServer(t, "imap", "smtp")
}

func startEncryptedMailServer(t testing.TB, imapScheme, smtpScheme string) *MailServer {
	https := httptest.NewTLSServer(nil) // has a certificate of example.com and 127.0.0.1
	defer https.Close()
	config := https.TLS.Clone()
	config.NextProtos = nil
	s := startMailServer(t, config, imapScheme, smtpScheme)
	s.Roots = x509.NewCertPool()
	s.Roots.AddCert(https.Certificate())
	return s
}

func startMailServer(t testing.TB, config *tls.Config, imapScheme, smtpScheme string) *MailServer {
	t.Helper()
	s := &MailServer{changed: make(chan struct{}), seen: map[imap.UID]bool{},
		user: imapmemserver.NewUser(MailAddress, MailPassword)}
	if err := s.user.Create("INBOX", nil); err != nil {
		t.Fatal(err)
	}
	listen := func(scheme string) (net.Listener, string) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		url := scheme + "://" + l.Addr().String()
		if strings.HasSuffix(scheme, "s") {
			l = tls.NewListener(l, config)
		}
		return l, url
	}
	silent := log.New(io.Discard, "", 0)
	store := imapmemserver.New()
	store.AddUser(s.user)
	in := imapserver.New(&imapserver.Options{InsecureAuth: config == nil, TLSConfig: config, Logger: silent,
		NewSession: func(*imapserver.Conn) (imapserver.Session, *imapserver.GreetingData, error) {
			return &mailSession{store.NewSession(), s}, nil, nil
		}})
	out := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) {
		return &outgoingMail{server: s}, nil
	}))
	out.Domain, out.AllowInsecureAuth, out.TLSConfig, out.ErrorLog = "mx.example.org", config == nil, config, silent
	var inListener, outListener net.Listener
	inListener, s.IMAP = listen(imapScheme)
	outListener, s.SMTP = listen(smtpScheme)
	go in.Serve(inListener)
	go out.Serve(outListener)
	t.Cleanup(func() { in.Close(); out.Close() })
	return s
}

// mailSession is a connection of an IMAP client.
type mailSession struct {
	imapserver.Session
	server *MailServer
}

// Store stores flags, and notes the mails that are seen.
func (x *mailSession) Store(w *imapserver.FetchWriter, set imap.NumSet, flags *imap.StoreFlags,
	o *imap.StoreOptions) error {
	if err := x.server.refused("STORE"); err != nil {
		return err
	}
	if err := x.Session.Store(w, set, flags, o); err != nil {
		return err
	}
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	if uids, ok := set.(imap.UIDSet); ok && flags.Op == imap.StoreFlagsAdd && slices.Contains(flags.Flags, imap.FlagSeen) {
		all, _ := uids.Nums()
		for _, uid := range all {
			x.server.seen[uid] = true
			if slices.Contains(flags.Flags, imap.FlagFlagged) {
				x.server.flagged = append(x.server.flagged, uid)
			}
		}
	}
	x.server.change()
	return nil
}

// Fetch tells a test that a client fetches a mail.
func (x *mailSession) Fetch(w *imapserver.FetchWriter, set imap.NumSet, o *imap.FetchOptions) error {
	if err := x.server.refused("FETCH"); err != nil {
		return err
	}
	return x.Session.Fetch(w, set, o)
}

// Login tells a test that a client logs in.
func (x *mailSession) Login(user, password string) error {
	if err := x.server.refused("LOGIN"); err != nil {
		return err
	}
	return x.Session.Login(user, password)
}

// Idle reports mails until stop is closed. That of the memory store loses a mail that comes as it begins.
func (x *mailSession) Idle(w *imapserver.UpdateWriter, stop <-chan struct{}) error {
	for {
		x.server.mu.Lock()
		changed := x.server.changed
		x.server.mu.Unlock()
		if err := x.Session.Poll(w, true); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stop:
			return nil
		}
	}
}

// Search also tells a test that a client looks for mails.
func (x *mailSession) Search(kind imapserver.NumKind, c *imap.SearchCriteria,
	o *imap.SearchOptions) (*imap.SearchData, error) {
	if err := x.server.refused("SEARCH"); err != nil {
		return nil, err
	}
	return x.Session.Search(kind, c, o)
}

// Before sets what is called before the commands LOGIN, STORE, SEARCH, FETCH, AUTH, MAIL, RCPT, DATA (before the text
// of the mail) and END (after it). An error refuses the command. smtp.SMTPError sets the status.
func (s *MailServer) Before(fn func(command string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = fn
}

// Status is an error that refuses a command of SMTP with a status.
func Status(code int) error { return &smtp.SMTPError{Code: code, Message: "refused by the test"} }

func (s *MailServer) refused(command string) error {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(command)
}

func (s *MailServer) change() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// outgoingMail is a connection of an SMTP client.
type outgoingMail struct {
	server *MailServer
	known  bool
	to     string
}

func (x *outgoingMail) AuthMechanisms() []string { return []string{sasl.Plain} }

func (x *outgoingMail) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != MailAddress || password != MailPassword {
			return &smtp.SMTPError{Code: 535, Message: "authentication failed"}
		}
		x.known = true
		return x.server.refused("AUTH")
	}), nil
}

func (x *outgoingMail) Mail(from string, _ *smtp.MailOptions) error {
	if !x.known || from != MailAddress {
		return &smtp.SMTPError{Code: 530, Message: "authentication required"}
	}
	return x.server.refused("MAIL")
}

func (x *outgoingMail) Rcpt(to string, _ *smtp.RcptOptions) error {
	x.to = to
	return x.server.refused("RCPT")
}

func (x *outgoingMail) Reset()        {}
func (x *outgoingMail) Logout() error { return nil }

func (x *outgoingMail) Data(r io.Reader) error {
	if err := x.server.refused("DATA"); err != nil {
		return err
	}
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	e, err := message.Read(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	m := Mail{To: x.to, Header: e.Header, ID: e.Header.Get("Message-Id"), InReplyTo: e.Header.Get("In-Reply-To")}
	if err := e.Walk(m.readPart); err != nil {
		return err
	}
	if err := x.server.refused("END"); err != nil {
		return err
	}
	x.server.mu.Lock()
	defer x.server.mu.Unlock()
	x.server.sent = append(x.server.sent, m)
	x.server.change()
	return nil
}

// readPart reads a part of the mail, or the mail itself if it has no parts.
func (m *Mail) readPart(_ []int, part *message.Entity, err error) error {
	if err != nil || part.MultipartReader() != nil {
		return err
	}
	content, err := io.ReadAll(part.Body)
	if disposition, params, _ := part.Header.ContentDisposition(); disposition == "attachment" {
		m.File, m.Content = params["filename"], string(content)
	} else {
		m.Text = strings.ReplaceAll(string(content), "\r\n", "\n")
	}
	return err
}

// Deliver stores a mail in the mailbox of the assistant, as a server does that has received it.
func (s *MailServer) Deliver(t testing.TB, raw string) (uid imap.UID) {
	t.Helper()
	body := strings.ReplaceAll(raw, "\n", "\r\n")
	data, err := s.user.Append("INBOX", literal{strings.NewReader(body), int64(len(body))}, &imap.AppendOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change()
	return data.UID
}

type literal struct {
	io.Reader
	size int64
}

func (l literal) Size() int64 { return l.size }

// Pass is the field that the server adds to a mail of a sender whom DKIM authenticates.
func Pass(from string) string {
	address, err := mail.ParseAddress(from)
	if err != nil {
		return err.Error()
	}
	domain := address.Address[strings.LastIndexByte(address.Address, '@')+1:]
	return "Authentication-Results: " + Authserv + "; dkim=pass (2048-bit key) header.d=" + domain + "; spf=none\n"
}

// Say delivers a mail that begins a thread.
func (s *MailServer) Say(t testing.TB, from, subject, text string) (uid imap.UID) {
	t.Helper()
	return s.Deliver(t, s.Compose(from, "Subject: "+subject+"\n", text))
}

// Reply delivers an answer to a mail of the assistant, which quotes it.
func (s *MailServer) Reply(t testing.TB, to Mail, from, text string) (uid imap.UID) {
	t.Helper()
	quoted := "\n\nOn 26 November 2026, the assistant wrote:\n> " + strings.ReplaceAll(strings.TrimSpace(to.Text), "\n", "\n> ") + "\n"
	references := strings.TrimSpace(strings.Join(strings.Fields(to.Header.Get("References")), " ") + " " + to.ID)
	return s.Deliver(t, s.Compose(from, "Subject: "+to.Header.Get("Subject")+"\nIn-Reply-To: "+to.ID+
		"\nReferences: "+references+"\n", text+quoted))
}

// Compose returns a mail of an authentic sender with further fields and a text. Its Message-ID is a new one.
func (s *MailServer) Compose(from, fields, text string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	if !strings.Contains(fields, "Message-ID:") {
		fields += fmt.Sprintf("Message-ID: <%d@client.example.org>\n", s.last)
	}
	return Pass(from) + "From: " + from + "\nTo: " + MailAddress + "\n" + fields + "\n" + text + "\n"
}

// AwaitConfirmed waits until a mail is marked as seen.
func (s *MailServer) AwaitConfirmed(t testing.TB, uid imap.UID) {
	t.Helper()
	s.await(t, fmt.Sprintf("mail %d is seen", uid), func() bool { return s.seen[uid] })
}

// AwaitText waits for a mail of the assistant with a text, and returns the newest.
func (s *MailServer) AwaitText(t testing.TB, text string) (found Mail) {
	t.Helper()
	s.await(t, fmt.Sprintf("a mail has %q", text), func() bool {
		for _, m := range slices.Backward(s.sent) {
			if strings.Contains(m.Text, text) {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// AwaitMore waits until the assistant has sent more than n mails, and returns the newest.
func (s *MailServer) AwaitMore(t testing.TB, n int) Mail {
	t.Helper()
	s.await(t, fmt.Sprintf("%d mails are sent", n+1), func() bool { return len(s.sent) > n })
	all := s.Mails()
	return all[len(all)-1]
}

// Flagged returns the mails that were flagged as they were marked as seen.
func (s *MailServer) Flagged() []imap.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.flagged)
}

// Mails returns the mails that the assistant has sent.
func (s *MailServer) Mails() []Mail {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sent)
}

func (s *MailServer) await(t testing.TB, what string, is func() bool) {
	t.Helper()
	limit := time.After(90 * time.Second)
	for {
		s.mu.Lock()
		ok, changed, sent := is(), s.changed, slices.Clone(s.sent)
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit:
			t.Fatalf("not within 90 s: %s; the assistant has sent %+v", what, sent)
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}
