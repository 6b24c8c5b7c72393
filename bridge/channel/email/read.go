package email

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"regexp"
	"slices"
	"strings"

	"github.com/emersion/go-message"
	"github.com/emersion/go-message/charset"
	"golang.org/x/net/html"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/events"
	"pocketcoder/handlers/channel"
)

var words = &mime.WordDecoder{CharsetReader: charset.Reader}

const (
	maxParts      = 50
	maxDepth      = 5
	maxSubject    = 200 // bytes
	maxReferences = 100
)

// ignored is the error of a mail that has no effect, and says why.
type ignored string

func (e ignored) Error() string { return string(e) }

// read reads a mail, or the headers of one with a larger size. The error is ignored, for example if the sender is not
// authentic.
func (m *Mailbox) read(raw []byte, size int64) (in channel.Incoming, err error) {
	e, err := message.Read(bytes.NewReader(raw))
	if err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
		return in, ignored("it is not a mail")
	}
	if automatic(&e.Header) {
		return in, ignored("it is automatic")
	}
	address, name, err := m.sender(&e.Header)
	if err != nil {
		return in, err
	}
	if address == m.address {
		return in, ignored("it is from the mailbox itself")
	}
	in.Address, in.Place, in.Sender = address, address, name
	if in.Sender == "" {
		in.Sender = address
	}
	in.Thread = thread(&e.Header)
	if size > maxMail {
		in.Files = refuse(fmt.Errorf("the mail has %d KiB, and the limit is %d KiB", size>>10, maxMail>>10))
		return in, nil
	}
	var b body
	err = b.read(e, 0)
	if in.Text = b.text(); in.Text == "" && len(b.files) == 0 {
		in.Text = in.Thread.Subject
	}
	switch {
	case err != nil:
		in.Files = refuse(err)
	case len(b.files) > 0:
		in.Files = func(context.Context) ([]events.Part, error) { return b.files, nil }
	}
	return in, nil
}

func refuse(err error) func(context.Context) ([]events.Part, error) {
	return func(context.Context) ([]events.Part, error) { return nil, err }
}

// automatic reports whether no person wrote a mail: it must not be answered (RFC 3834).
func automatic(h *message.Header) bool {
	first := func(name string) string {
		value, _, _ := strings.Cut(h.Get(name), ";")
		return strings.ToLower(strings.TrimSpace(value))
	}
	submitted := first("Auto-Submitted")
	return submitted != "" && submitted != "no" ||
		slices.Contains([]string{"bulk", "list", "junk", "auto_reply"}, first("Precedence")) ||
		h.Has("List-Id") || h.Has("X-Autoreply") || h.Has("X-Autorespond") ||
		h.Has("Return-Path") && first("Return-Path") == "<>" || first("Content-Type") == "multipart/report"
}

var messageID = regexp.MustCompile(`<[!-;=?-~]{1,250}>`)

// ownID finds the id of the conversation in a Message-ID of ours.
var ownID = regexp.MustCompile(`^<pocketcoder\.[a-z0-9]+\.([a-z0-9]+)@`)

// thread returns what a mail refers to.
func thread(h *message.Header) (t channel.Thread) {
	t.Message = messageID.FindString(h.Get("Message-Id"))
	references := messageID.FindAllString(h.Get("References"), maxReferences)
	references = append(references, messageID.FindAllString(h.Get("In-Reply-To"), maxReferences)...)
	for _, one := range slices.Backward(references) {
		if id := ownID.FindStringSubmatch(one); id != nil {
			t.Conversations = append(t.Conversations, id[1])
		}
	}
	if t.Root = t.Message; len(references) > 0 {
		t.Root = references[0]
	}
	if t.Root == "" {
		t.Root = "without Message-ID" // such mails of a sender are one thread
	}
	subject, err := words.DecodeHeader(h.Get("Subject"))
	if err != nil {
		subject = h.Get("Subject")
	}
	subject = strings.Join(strings.Fields(subject), " ")
	t.Subject = strings.ToValidUTF8(subject[:min(len(subject), maxSubject)], "")
	return t
}

// body is the content of a mail.
type body struct {
	plain, html string
	files       []events.Part
	parts, size int
}

// read reads a part and its parts. Its error is a sentence for the sender.
func (b *body) read(e *message.Entity, depth int) error {
	if b.parts++; b.parts > maxParts || depth > maxDepth {
		return errors.New("the mail has too many parts")
	}
	typ, params, _ := e.Header.ContentType()
	if typ == "multipart/encrypted" || strings.HasSuffix(typ, "/pkcs7-mime") {
		return errors.New("the mail is encrypted")
	}
	multi := e.MultipartReader()
	if multi == nil {
		return b.readLeaf(e, typ, params)
	}
	for n := 0; ; n++ {
		part, err := multi.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
			return errors.New("the mail cannot be read")
		}
		if n > 0 && typ == "multipart/related" || n > 0 && typ == "multipart/signed" {
			continue // pictures of an HTML text, a signature
		}
		if err := b.read(part, depth+1); err != nil {
			return err
		}
	}
}

func (b *body) readLeaf(e *message.Entity, typ string, params map[string]string) error {
	disposition, more, _ := e.Header.ContentDisposition()
	name := more["filename"]
	if name == "" {
		name = params["name"]
	}
	if decoded, err := words.DecodeHeader(name); err == nil {
		name = decoded
	}
	content, err := io.ReadAll(e.Body)
	if err != nil {
		return errors.New("the mail cannot be read")
	}
	isText := (typ == "text/plain" || typ == "text/html" || typ == "") && disposition != "attachment" && name == ""
	switch {
	case isText && typ == "text/html":
		b.html += string(content)
	case isText:
		text := strings.ReplaceAll(string(content), "\r\n", "\n")
		if strings.EqualFold(params["format"], "flowed") {
			text = unflow(text, strings.EqualFold(params["delsp"], "yes"))
		}
		b.plain += strings.TrimRight(text, "\n") + "\n"
	case len(content) > 0:
		if b.size += len(content); b.size > bridge.MaxFile {
			return fmt.Errorf("its files have more than %d KiB", bridge.MaxFile>>10)
		}
		b.files = append(b.files, bridge.FilePart(name, typ, content))
	}
	return nil
}

// text returns what the sender wrote, without quotations and the signature.
func (b *body) text() string {
	text := b.plain
	if strings.TrimSpace(text) == "" {
		text = plainText(b.html)
	}
	return newText(text)
}

// unflow joins the lines of paragraphs (RFC 3676).
func unflow(text string, delete bool) string {
	var out strings.Builder
	for _, line := range strings.SplitAfter(text, "\n") {
		if !strings.HasPrefix(line, ">") {
			line = strings.TrimPrefix(line, " ")
		}
		soft := strings.TrimSuffix(line, " \n")
		switch {
		case soft == line || line == "-- \n":
			out.WriteString(line)
		case delete:
			out.WriteString(soft)
		default:
			out.WriteString(soft + " ")
		}
	}
	return out.String()
}

var (
	attribution = regexp.MustCompile(`(?s)(\d|@).*[:：]\s*$`)
	forwarded   = regexp.MustCompile(`(?i)^(-{3,} ?(original message|ursprüngliche nachricht|forwarded message)[ -]*|_{20,})$`)
)

// newText returns a text without quoted lines, the lines that introduce them, and the signature.
func newText(text string) string {
	var kept []string
	quoted := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, "\r")
		if line == "-- " || forwarded.MatchString(strings.TrimSpace(line)) {
			break
		}
		if strings.HasPrefix(line, ">") {
			if !quoted {
				kept = withoutAttribution(kept)
			}
			quoted = true
			continue
		}
		if strings.TrimSpace(line) != "" {
			quoted = false
		} else if quoted && (len(kept) == 0 || strings.TrimSpace(kept[len(kept)-1]) == "") {
			continue // the blank line before the quotation is enough
		}
		kept = append(kept, line)
	}
	return strings.TrimSpace(strings.Join(kept, "\n"))
}

// withoutAttribution removes a last paragraph of at most three lines such as "On 26 November, Ann wrote:".
func withoutAttribution(lines []string) []string {
	end := len(lines)
	for end > 0 && strings.TrimSpace(lines[end-1]) == "" {
		end--
	}
	begin := end
	for begin > 0 && strings.TrimSpace(lines[begin-1]) != "" {
		begin--
	}
	if end-begin <= 3 && attribution.MatchString(strings.Join(lines[begin:end], "\n")) {
		return lines[:begin]
	}
	return lines
}

// plainText returns the text of HTML, without quotations.
func plainText(source string) string {
	var out strings.Builder
	hidden := 0
	for z := html.NewTokenizer(strings.NewReader(source)); ; {
		typ := z.Next()
		name, _ := z.TagName()
		switch tag := string(name); {
		case typ == html.ErrorToken:
			return out.String()
		case typ == html.TextToken && hidden == 0:
			out.WriteString(strings.NewReplacer("\r", "", "\n", " ").Replace(string(z.Text())))
		case slices.Contains([]string{"blockquote", "style", "script", "head", "title"}, tag):
			switch typ {
			case html.StartTagToken:
				hidden++
			case html.EndTagToken:
				hidden = max(hidden-1, 0)
			}
		case slices.Contains([]string{"br", "p", "div", "tr", "li", "h1", "h2", "h3", "pre"}, tag) && hidden == 0 &&
			(typ == html.EndTagToken || tag == "br"):
			out.WriteByte('\n')
		}
	}
}
