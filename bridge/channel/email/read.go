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

// read reads the headers of a mail and the beginning of its text. The Read of what it returns reads the rest. raw has
// only the headers of a mail with a larger size. The error is ignored, for example if the sender is not authentic.
func (m *Mailbox) read(ctx context.Context, raw []byte, size int64) (in channel.Incoming, err error) {
	headers, found := headersOf(raw)
	if !found { // a field may be cut
		return in, ignored("its headers are too large")
	}
	e, err := message.Read(bytes.NewReader(raw[:headers]))
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
	in.Text, _, _ = content(ctx, raw[:min(len(raw), headers+maxStart)], true) // an error is that of Read, too
	in.Read = func(ctx context.Context, in *channel.Incoming) error {
		text, files, err := content(ctx, raw, false)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if in.Text = text; text == "" && len(files) == 0 {
			in.Text = in.Thread.Subject
		}
		switch {
		case err != nil:
			in.Files = refuse(err)
		case len(files) > 0:
			in.Files = func(context.Context) ([]events.Part, error) { return files, nil }
		}
		return nil
	}
	return in, nil
}

// headersOf returns the length of the headers of a mail, with the blank line that ends them. found is false if they are
// too large.
func headersOf(raw []byte) (length int, found bool) {
	start := raw[:min(len(raw), maxHeader)]
	for _, blank := range []string{"\r\n\r\n", "\n\n"} {
		if at := bytes.Index(start, []byte(blank)); at >= 0 && (length == 0 || at+len(blank) < length) {
			length = at + len(blank)
		}
	}
	if length == 0 && len(raw) < maxHeader { // it has no text
		return len(raw), true
	}
	return length, length > 0
}

// content returns the text and the files of a mail. Of a mail that is cut, it returns those before the end. The error
// is a sentence for the sender, unless ctx has ended.
func content(ctx context.Context, raw []byte, cut bool) (text string, files []events.Part, err error) {
	e, err := message.Read(contextReader{ctx, bytes.NewReader(raw)})
	if err != nil && !message.IsUnknownCharset(err) && !message.IsUnknownEncoding(err) {
		return "", nil, errors.New("the mail cannot be read")
	}
	b := body{cut: cut}
	err = b.read(e, 0)
	return b.text(ctx), b.files, err
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
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
	cut         bool // only the beginning of the mail is there
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
	if err != nil && !b.cut {
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
func (b *body) text(ctx context.Context) string {
	text := b.plain
	if strings.TrimSpace(text) == "" {
		text = plainText(ctx, b.html)
	}
	return newText(ctx, text)
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

// newText returns a text without quoted lines, the lines that introduce them, and the signature. It visits each line
// once, and stops when ctx ends.
func newText(ctx context.Context, text string) string {
	var kept []string
	begin, end := 0, 0 // of the last paragraph among the kept lines; blank lines may follow it
	quoted := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimRight(line, "\r")
		trimmed := strings.TrimSpace(line)
		if line == "-- " || forwarded.MatchString(trimmed) || ctx.Err() != nil {
			break
		}
		if strings.HasPrefix(line, ">") {
			if !quoted && introduces(kept[begin:end]) {
				kept, end = kept[:begin], begin
			}
			quoted = true
			continue
		}
		if trimmed == "" {
			if quoted && end == len(kept) && end > begin || !quoted {
				kept = append(kept, line)
			}
			continue // after other quotations, the blank line before is enough
		}
		if end < len(kept) || end == begin { // a blank line or nothing is before it
			begin = len(kept)
		}
		quoted, kept = false, append(kept, line)
		end = len(kept)
	}
	return strings.TrimSpace(strings.Join(kept, "\n"))
}

const maxAttribution = 1000 // bytes

// introduces reports whether a paragraph introduces a quotation, such as "On 26 November, Ann wrote:".
func introduces(paragraph []string) bool {
	if len(paragraph) > 3 {
		return false
	}
	text := strings.Join(paragraph, "\n")
	return len(text) <= maxAttribution && attribution.MatchString(text)
}

var htmlBlanks = strings.NewReplacer("\r", "", "\n", " ")

// plainText returns the text of HTML, without quotations. It stops when ctx ends.
func plainText(ctx context.Context, source string) string {
	var out strings.Builder
	hidden := 0
	for z := html.NewTokenizer(contextReader{ctx, strings.NewReader(source)}); ; {
		typ := z.Next()
		name, _ := z.TagName()
		switch tag := string(name); {
		case typ == html.ErrorToken:
			return out.String()
		case typ == html.TextToken && hidden == 0:
			out.WriteString(htmlBlanks.Replace(string(z.Text())))
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
