package email

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/http"
	"net/mail"
	"net/smtp"
	"net/textproto"
	"slices"
	"strings"
	"time"

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
	c, err := m.connectSMTP(ctx)
	if err != nil {
		return "", bridge.RetryError{Err: err}
	}
	defer c.Close()
	id := m.messageID(message)
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
	if _, err := w.Write(m.compose(place, id, message, time.Now())); err != nil {
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
func (m *Mailbox) compose(to, id string, message bridge.Message, now time.Time) []byte {
	subject := message.Thread.Subject
	if !strings.HasPrefix(strings.ToLower(subject), "re:") {
		subject = strings.TrimSpace("Re: " + subject)
	}
	var b bytes.Buffer
	field := func(name, value string) { fmt.Fprintf(&b, "%s: %s\r\n", name, value) }
	field("From", (&mail.Address{Name: m.channel.Name, Address: m.address}).String())
	field("To", (&mail.Address{Address: to}).String())
	field("Subject", mime.QEncoding.Encode("utf-8", subject))
	field("Date", now.Format(time.RFC1123Z))
	field("Message-ID", id)
	references := []string{}
	for _, one := range []string{message.Thread.Root, message.Thread.Parent} {
		if messageID.FindString(one) == one && one != "" && (len(references) == 0 || references[0] != one) {
			references = append(references, one)
		}
	}
	if len(references) > 0 {
		field("In-Reply-To", references[len(references)-1])
		field("References", strings.Join(references, "\r\n "))
	}
	field("Auto-Submitted", "auto-replied")
	field("MIME-Version", "1.0")
	if message.File == nil {
		field("Content-Type", textType)
		field("Content-Transfer-Encoding", "quoted-printable")
		b.WriteString("\r\n")
		writeText(&b, message)
		return b.Bytes()
	}
	parts := multipart.NewWriter(&b)
	field("Content-Type", mime.FormatMediaType("multipart/mixed", map[string]string{"boundary": parts.Boundary()}))
	b.WriteString("\r\n")
	w, _ := parts.CreatePart(textproto.MIMEHeader{"Content-Type": {textType},
		"Content-Transfer-Encoding": {"quoted-printable"}}) // a Buffer takes all
	writeText(w, message)
	w, _ = parts.CreatePart(textproto.MIMEHeader{"Content-Type": {http.DetectContentType(message.File.Content)},
		"Content-Transfer-Encoding": {"base64"},
		"Content-Disposition":       {mime.FormatMediaType("attachment", map[string]string{"filename": message.File.Name})}})
	writeBase64(w, message.File.Content)
	_ = parts.Close()
	return b.Bytes()
}

const textType = "text/plain; charset=utf-8"

// writeText writes the text of a mail to a writer that takes all.
func writeText(to io.Writer, message bridge.Message) {
	w := quotedprintable.NewWriter(to)
	_, _ = w.Write([]byte(message.Text + codes(message.Buttons) + "\n"))
	_ = w.Close()
}

// maxLine is the length of a line of base64 in a mail.
const maxLine = 76

// writeBase64 writes a content to a writer that takes all.
func writeBase64(to io.Writer, content []byte) {
	for line := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(content)), maxLine) {
		_, _ = to.Write(append(line, "\r\n"...))
	}
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
