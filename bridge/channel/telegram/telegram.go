// Package telegram connects a channel to Telegram, as a bot: https://core.telegram.org/bots/api.
//
// Promises: an update is confirmed to Telegram only after it has been handled, so a crash loses none; Telegram repeats
// it, and its id makes the repetition harmless. Updates are handled one at a time and in order. An update that fails
// bridge.Tries times, or that cannot be read, is skipped, and the log says so. The sender of a message
// is the numeric id that Telegram states. Texts are sent as plain text without previews of links: nothing in them is a
// format, and no server of Telegram fetches an address that the model wrote.
//
// It must not know chats, accounts, or what is sent.
package telegram

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	bridge "pocketcoder/bridge/channel"
	"pocketcoder/bridge/egress"
	"pocketcoder/events"
	"pocketcoder/handlers/channel"
)

const (
	server      = "https://api.telegram.org"
	pollFor     = 50 * time.Second // how long Telegram holds a request for updates
	callTimeout = 30 * time.Second
	fileTimeout = 5 * time.Minute // to send a file
	maxText     = 4096            // UTF-16 units of a message
	maxAnswer   = 4 << 20         // bytes of a response
	maxUpdates  = 100             // of one response
	maxCallback = 190             // bytes of the answer to a press; Telegram takes 200 characters
)

type Bot struct {
	channel channel.Channel
	token   string
	base    string
	http    *http.Client
	api     *bot.Bot
	logger  *slog.Logger
	name    string // of the bot, once it is known

	// Tries limits the work for one update.
	Tries bridge.Tries
}

// New returns the bot of a channel. Without allowPrivate it reaches its server over https at a public address only.
func New(c channel.Channel, token string, allowPrivate bool, logger *slog.Logger) (*Bot, error) {
	b := &Bot{channel: c, token: token, base: strings.TrimRight(c.Server, "/"), logger: logger,
		Tries: bridge.DefaultTries}
	if b.base == "" {
		b.base = server
	}
	if u, err := url.Parse(b.base); err != nil || u.Scheme != "https" && !allowPrivate {
		return nil, errors.New("the server of the bot must be https")
	}
	guard := egress.Public
	if allowPrivate {
		guard = func(netip.Addr) error { return nil }
	}
	dialer := net.Dialer{Timeout: callTimeout, Control: egress.Guard(guard)}
	b.http = &http.Client{
		Transport: boundedResponses{&http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: callTimeout,
			IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true}, "/bot" + token + "/"},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	api, err := bot.New(token, bot.WithSkipGetMe(), bot.WithServerURL(b.base), bot.WithHTTPClient(0, b.http),
		bot.WithErrorsHandler(func(err error) { logger.Warn("telegram", "err", err) }))
	b.api = api
	return b, err
}

var errTooLarge = fmt.Errorf("the response has more than %d MiB", maxAnswer>>20)

// boundedResponses bounds the responses to calls of methods. The library reads a response as a whole, and its error
// contains a response that is not JSON.
type boundedResponses struct {
	http.RoundTripper
	methods string // part of the paths of methods
}

func (a boundedResponses) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(r)
	if err != nil || !strings.Contains(r.URL.Path, a.methods) || strings.Contains(r.URL.Path, "/file"+a.methods) {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err == nil && len(body) > maxAnswer:
		err = errTooLarge
	case err == nil && !json.Valid(body):
		err = fmt.Errorf("the server answered %d with something other than JSON", resp.StatusCode)
	}
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

// Run fetches updates and passes them to the receiver. Its next request confirms the handled ones. The library's
// own loop confirms updates before they are handled, so it is not used.
func (b *Bot) Run(ctx context.Context, to bridge.Receiver) error {
	me, err := b.api.GetMe(ctx)
	if err != nil {
		return fmt.Errorf("ask Telegram for the name of the bot: %w", err)
	}
	b.name = me.Username
	most := maxUpdates
	for next := int64(0); ctx.Err() == nil; {
		updates, err := b.updates(ctx, next, most)
		if errors.Is(err, errTooLarge) && most > 1 { // else the same updates would come again and again
			most = 1
			continue
		}
		if err != nil {
			return err
		}
		most = maxUpdates
		for _, raw := range updates {
			id, err := b.handle(ctx, to, raw)
			if err != nil {
				return fmt.Errorf("handle update %d of Telegram: %w", id, err)
			}
			next = id + 1
		}
	}
	return ctx.Err()
}

// updates returns at most so many updates from an id on, and confirms the earlier ones. It waits for the first.
func (b *Bot) updates(ctx context.Context, next int64, most int) (list []json.RawMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollFor+callTimeout)
	defer cancel()
	query := url.Values{"offset": {strconv.FormatInt(next, 10)}, "timeout": {strconv.Itoa(int(pollFor.Seconds()))},
		"limit": {strconv.Itoa(most)}, "allowed_updates": {`["message","callback_query"]`}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, b.base+"/bot"+b.token+"/getUpdates",
		strings.NewReader(query.Encode()))
	if err != nil {
		return nil, errors.New("ask for updates: the server is not a URL")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	body, err := b.fetch(r, maxAnswer)
	if err != nil {
		return nil, fmt.Errorf("ask for updates: %w", err)
	}
	var answer struct {
		OK          bool
		Result      []json.RawMessage
		Description string
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read updates: %w", err)
	}
	if !answer.OK {
		return nil, fmt.Errorf("ask for updates: %.200q", answer.Description)
	}
	return answer.Result, nil
}

// fetch sends a request and returns the body of the response. No error names the URL, which has the token.
func (b *Bot) fetch(r *http.Request, most int64) ([]byte, error) {
	resp, err := b.http.Do(r)
	if u := (*url.Error)(nil); errors.As(err, &u) {
		return nil, u.Err
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(body)) > most {
		err = fmt.Errorf("the response is larger than %d bytes", most)
	}
	return body, err
}

// handle reads an update and passes it to the receiver. It skips an update that cannot be read, or that fails each
// time. It returns the id of the update. The error is that of ctx, or that the update has no id.
func (b *Bot) handle(ctx context.Context, to bridge.Receiver, raw json.RawMessage) (id int64, err error) {
	var known struct {
		ID int64 `json:"update_id"`
	}
	if err := json.Unmarshal(raw, &known); err != nil {
		return 0, fmt.Errorf("read the id of the update: %w", err)
	}
	logger := b.logger.With("channel", b.channel.Name, "update", known.ID)
	var u models.Update
	if err := json.Unmarshal(raw, &u); err != nil {
		logger.Error("skipped an update of a channel that cannot be read", "err", bridge.ShortReason(err))
		return known.ID, ctx.Err()
	}
	b.Tries.HandOver(ctx, logger, func(ctx context.Context) error { return b.tryHandle(ctx, to, &u) })
	return known.ID, ctx.Err()
}

func (b *Bot) tryHandle(ctx context.Context, to bridge.Receiver, u *models.Update) error {
	in := channel.Incoming{Channel: b.channel, Update: strconv.FormatInt(u.ID, 10)}
	switch {
	case u.CallbackQuery != nil && u.CallbackQuery.Message.Message != nil:
		q := u.CallbackQuery
		b.from(&in, &q.From, q.Message.Message.Chat)
		said, err := to.Press(ctx, in, q.Data)
		if err != nil {
			return err
		}
		b.answer(ctx, q, said)
	case u.Message != nil && u.Message.MigrateToChatID != 0: // Telegram itself says so
		in.Place = strconv.FormatInt(u.Message.Chat.ID, 10)
		return to.Move(ctx, in, strconv.FormatInt(u.Message.MigrateToChatID, 10))
	case u.Message != nil && u.Message.From != nil && !u.Message.From.IsBot && u.Message.SenderChat == nil:
		b.from(&in, u.Message.From, u.Message.Chat)
		b.read(&in, u.Message)
		return to.Receive(ctx, in)
	}
	return nil
}

func (b *Bot) from(in *channel.Incoming, who *models.User, at models.Chat) {
	in.Address, in.Place = strconv.FormatInt(who.ID, 10), strconv.FormatInt(at.ID, 10)
	in.Sender = strings.TrimSpace(who.FirstName + " " + who.LastName)
	in.Group = at.Type != models.ChatTypePrivate
}

// read reads the content of a message. A forwarded message counts as what the sender wrote.
func (b *Bot) read(in *channel.Incoming, m *models.Message) {
	in.Text = m.Text
	if in.Text == "" {
		in.Text = m.Caption
	}
	first, rest, _ := strings.Cut(in.Text, " ")
	switch mention := "@" + strings.ToLower(b.name); {
	case strings.TrimRight(strings.ToLower(first), ",:") == mention:
		in.Addressed, in.Text = true, rest
	case strings.HasPrefix(first, "/") && strings.HasSuffix(strings.ToLower(first), mention): // /stop@example_bot
		in.Addressed = true
	default:
		reply := m.ReplyToMessage
		in.Addressed = reply != nil && reply.From != nil && reply.From.Username == b.name
	}
	var id, name, typ string
	var size int64
	switch {
	case m.Document != nil:
		id, name, typ, size = m.Document.FileID, m.Document.FileName, m.Document.MimeType, m.Document.FileSize
	case len(m.Photo) > 0:
		largest := m.Photo[len(m.Photo)-1]
		id, name, typ, size = largest.FileID, "photo.jpg", "image/jpeg", int64(largest.FileSize)
	case m.Voice != nil || m.Video != nil || m.Audio != nil || m.Sticker != nil || m.VideoNote != nil || m.Animation != nil:
		in.Files = func(context.Context) ([]events.Part, error) {
			return nil, errors.New("it has something that is neither text, a photo nor a document")
		}
		return
	default:
		return
	}
	in.Files = func(ctx context.Context) ([]events.Part, error) {
		part, err := b.file(ctx, id, name, typ, size)
		return []events.Part{part}, err
	}
}

// file fetches a file of a message. Its error is a sentence for the sender.
func (b *Bot) file(ctx context.Context, id, name, typ string, size int64) (part events.Part, err error) {
	if size > bridge.MaxFile {
		return part, fmt.Errorf("the file has %d KiB, and the limit is %d KiB", size>>10, bridge.MaxFile>>10)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	f, err := b.api.GetFile(ctx, &bot.GetFileParams{FileID: id})
	if err != nil {
		return part, errors.New("the file cannot be had from Telegram")
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.api.FileDownloadLink(f), nil)
	if err != nil {
		return part, errors.New("the file cannot be had from Telegram")
	}
	body, err := b.fetch(r, bridge.MaxFile)
	if err != nil {
		return part, fmt.Errorf("the file could not be fetched: %w", err)
	}
	return bridge.FilePart(name, typ, body), nil
}

// answer tells the person who pressed a button what happened, and removes the buttons. A failure has no consequence,
// because a button works once.
func (b *Bot) answer(ctx context.Context, q *models.CallbackQuery, said string) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text := strings.ToValidUTF8(said[:min(len(said), maxCallback)], "")
	if _, err := b.api.AnswerCallbackQuery(ctx, &bot.AnswerCallbackQueryParams{CallbackQueryID: q.ID, Text: text,
		ShowAlert: said != ""}); err != nil {
		b.logger.Info("telegram: answer a button", "err", err)
	}
	if said == "" {
		return
	}
	if _, err := b.api.EditMessageReplyMarkup(ctx, &bot.EditMessageReplyMarkupParams{ChatID: q.Message.Message.Chat.ID,
		MessageID: q.Message.Message.ID}); err != nil {
		b.logger.Info("telegram: remove buttons", "err", err)
	}
}

func (b *Bot) Send(ctx context.Context, place string, m bridge.Message) (receipt string, err error) {
	if m.File != nil {
		return b.sendFile(ctx, place, m)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	off := true
	p := &bot.SendMessageParams{ChatID: place, Text: m.Text,
		LinkPreviewOptions: &models.LinkPreviewOptions{IsDisabled: &off}}
	if len(m.Buttons) > 0 {
		var rows [][]models.InlineKeyboardButton
		for _, one := range m.Buttons {
			rows = append(rows, []models.InlineKeyboardButton{{Text: one.Title, CallbackData: one.Token}})
		}
		p.ReplyMarkup = models.InlineKeyboardMarkup{InlineKeyboard: rows}
	}
	sent, err := b.api.SendMessage(ctx, p)
	if err != nil {
		return "", sendError(err)
	}
	return strconv.Itoa(sent.ID), nil
}

// sendFile sends a file as a document, also a picture: Telegram compresses what it gets as a photo.
func (b *Bot) sendFile(ctx context.Context, place string, m bridge.Message) (receipt string, err error) {
	ctx, cancel := context.WithTimeout(ctx, fileTimeout)
	defer cancel()
	sent, err := b.api.SendDocument(ctx, &bot.SendDocumentParams{ChatID: place, Caption: m.Text,
		Document:                    &models.InputFileUpload{Filename: m.File.Name, Data: bytes.NewReader(m.File.Content)},
		DisableContentTypeDetection: true})
	if err != nil {
		return "", sendError(err)
	}
	return strconv.Itoa(sent.ID), nil
}

// sendError returns a PermanentError or a RetryError if Telegram does not have the message, because it refused the
// message or was not reached. It returns other errors as they are.
func sendError(err error) error {
	var busy *bot.TooManyRequestsError
	var dial *net.OpError
	var moved *bot.MigrateError
	reason := errors.New(bridge.ShortReason(err))
	switch {
	case errors.As(err, &busy):
		return bridge.RetryError{Err: reason, After: time.Duration(busy.RetryAfter) * time.Second}
	case errors.As(err, &moved), errors.Is(err, bot.ErrorBadRequest), errors.Is(err, bot.ErrorForbidden),
		strings.HasPrefix(err.Error(), "error response from telegram for method sendDocument, 413 "): // too large
		return bridge.PermanentError{Reason: reason.Error()}
	case errors.Is(err, bot.ErrorUnauthorized), errors.Is(err, bot.ErrorNotFound), errors.Is(err, bot.ErrorConflict), // the token
		errors.As(err, &dial) && dial.Op == "dial",
		strings.HasPrefix(err.Error(), "error response from telegram"): // 5xx
		return bridge.RetryError{Err: reason}
	}
	return reason
}

// Typing shows for five seconds that the bot is writing.
func (b *Bot) Typing(ctx context.Context, place string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := b.api.SendChatAction(ctx, &bot.SendChatActionParams{ChatID: place, Action: models.ChatActionTyping})
	return err
}

// Split cuts a text into texts of at most 4096 UTF-16 units, at the ends of lines where it can.
func (b *Bot) Split(text string) (texts []string) {
	for {
		end := prefix(text, maxText)
		if end == len(text) {
			return append(texts, text)
		}
		if line := strings.LastIndexByte(text[:end], '\n'); line > 0 && strings.TrimSpace(text[:line]) != "" {
			end = line
		}
		if strings.TrimSpace(text[:end]) != "" { // Telegram refuses an empty message
			texts = append(texts, text[:end])
		}
		text = strings.TrimPrefix(text[end:], "\n")
	}
}

// prefix returns the length in bytes of the longest prefix of a text that has at most so many UTF-16 units.
func prefix(text string, most int) int {
	units := 0
	for i, r := range text {
		if units++; r > 0xFFFF {
			units++
		}
		if units > most {
			return i
		}
	}
	return len(text)
}
