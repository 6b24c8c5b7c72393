package email

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-message/mail"

	bridge "pocketcoder/bridge/channel"
)

// Send sends a mail. It returns its Message-ID.
func (m *Mailbox) Send(ctx context.Context, place string, message bridge.Message) (receipt string, err error) {
	limit := sendTimeout
	if message.File != nil {
		limit = fileTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	id := m.messageID(message)
	text, err := m.compose(place, id, message, time.Now())
	if err != nil {
		return "", bridge.PermanentError{Reason: "write the mail: " + bridge.ShortReason(err)}
	}
	c, err := m.connectSMTP(ctx)
	if err != nil {
		return "", bridge.RetryError{Err: err}
	}
	defer c.Close()
	if err := c.Mail(m.address); err != nil {
		return "", refusal("the server refuses the sender", err)
	}
	if err := c.Rcpt(place); err != nil {
		return "", refusal("the server refuses "+place, err)
	}
	w, err := c.Data()
	if err != nil {
		return "", refusal("the server refuses the mail", err)
	}
	if _, err := w.Write(text); err != nil {
		return "", bridge.RetryError{Err: fmt.Errorf("send the mail: %w", err)} // the line that ends it was not sent
	}
	if err := w.Close(); err != nil {
		if status := (*textproto.Error)(nil); errors.As(err, &status) {
			err = refusal("the server refuses the mail", err)
		}
		return "", err
	}
	_ = c.Quit() // the server has the mail
	return id, nil
}

// refusal is the error of a command without which the server has no mail.
func refusal(what string, err error) error {
	reason := what + ": " + bridge.ShortReason(err)
	if status := (*textproto.Error)(nil); errors.As(err, &status) && status.Code >= 500 {
		return bridge.PermanentError{Reason: reason}
	}
	return bridge.RetryError{Err: errors.New(reason)}
}

// connectSMTP logs in to the SMTP server. The connection ends with ctx.
func (m *Mailbox) connectSMTP(ctx context.Context) (*smtp.Client, error) {
	implicit := m.smtp.Scheme == "smtps"
	port := "587"
	if implicit {
		port = "465"
	}
	conn, err := m.dial(ctx, m.smtp, port, implicit)
	if err != nil {
		return nil, fmt.Errorf("connect to the SMTP server: %w", err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	c, err := smtp.NewClient(conn, m.smtp.Hostname())
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet the SMTP server: %w", err)
	}
	if err = c.Hello(m.domain()); err == nil && !implicit && !m.local(conn) {
		err = c.StartTLS(m.tlsConfig(m.smtp))
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("encrypt the connection to the SMTP server: %w", err)
	}
	if err = c.Auth(smtp.PlainAuth("", m.user(m.smtp), m.secret, m.smtp.Hostname())); err != nil {
		c.Close()
		return nil, fmt.Errorf("log in to the SMTP server as %s: %w", m.user(m.smtp), err)
	}
	return c, nil
}

func (m *Mailbox) domain() string { return domainOf(m.address) }

// messageID returns the Message-ID of a mail. It names the conversation, so that an answer leads there.
func (m *Mailbox) messageID(message bridge.Message) string {
	return fmt.Sprintf("<pocketcoder.%s.%s@%s>", message.ID, message.Thread.Conversation, m.domain())
}

// compose returns a mail as it is sent.
func (m *Mailbox) compose(to, id string, message bridge.Message, now time.Time) ([]byte, error) {
	var b bytes.Buffer
	h, utf8 := m.header(to, id, message, now), map[string]string{"charset": "utf-8"}
	body := []byte(message.Text + codes(message.Buttons) + "\n")
	if message.File == nil {
		h.SetContentType("text/plain", utf8)
		w, err := mail.CreateSingleInlineWriter(&b, h)
		err = writePart(w, body, err)
		return b.Bytes(), err
	}
	parts, err := mail.CreateWriter(&b, h)
	if err != nil {
		return nil, err
	}
	var text mail.InlineHeader
	text.SetContentType("text/plain", utf8)
	w, err := parts.CreateSingleInline(text)
	if err = writePart(w, body, err); err != nil {
		return nil, err
	}
	var file mail.AttachmentHeader
	kind := http.DetectContentType(message.File.Content)
	if strings.Contains(kind, "charset=utf-16") { // go-message writes text in UTF-8 only
		kind = "application/octet-stream"
	}
	file.Set("Content-Type", kind)
	file.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": message.File.Name}))
	w, err = parts.CreateAttachment(file)
	if err = writePart(w, message.File.Content, err); err != nil {
		return nil, err
	}
	err = parts.Close()
	return b.Bytes(), err
}

// header returns the header of a mail, without the fields that describe its content.
func (m *Mailbox) header(to, id string, message bridge.Message, now time.Time) (h mail.Header) {
	subject := message.Thread.Subject
	if !strings.HasPrefix(strings.ToLower(subject), "re:") {
		subject = strings.TrimSpace("Re: " + subject)
	}
	references := []string{}
	for _, one := range []string{message.Thread.Root, message.Thread.Parent} {
		if messageID.FindString(one) == one && one != "" && !slices.Contains(references, one) {
			references = append(references, one)
		}
	}
	if len(references) > 0 {
		h.Set("References", strings.Join(references, " "))
		h.Set("In-Reply-To", references[len(references)-1])
	}
	h.Set("Auto-Submitted", "auto-replied")
	h.Set("Message-Id", id)
	h.SetDate(now)
	h.SetSubject(subject)
	h.SetAddressList("To", []*mail.Address{{Address: to}})
	h.SetAddressList("From", []*mail.Address{{Name: m.channel.Name, Address: m.address}})
	return h
}

// writePart writes a part of a mail, unless the part could not be created.
func writePart(w io.WriteCloser, content []byte, failed error) error {
	if failed != nil {
		return failed
	}
	_, err := w.Write(content)
	return errors.Join(err, w.Close())
}

// codes returns what is said about the buttons of a message: the lines with which a person answers.
func codes(buttons []bridge.Button) string {
	if len(buttons) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\n\nAnswer with one of these lines as the first line of your mail:\n")
	for _, one := range buttons {
		if !strings.EqualFold(one.Title, one.Verb) {
			fmt.Fprintf(&b, "\n%s:", one.Title)
		}
		fmt.Fprintf(&b, "\n    %s %s\n", one.Verb, one.Token)
	}
	return b.String()
}
