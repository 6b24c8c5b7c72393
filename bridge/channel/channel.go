// Package channel connects messengers. Messages of people reach the chat of their conversation. The chat's answers,
// permission requests and questions are sent to the conversation. It also posts events to the targets of webhooks.
//
// Promises:
//   - The read models determine what is sent: final answers, errors, requests, questions and files of the chat of a
//     conversation in which a sender is paired. No tool call is sent, and no text in <internal>…</internal>.
//   - Nothing is lost when the process ends at any moment, and nothing is sent twice. A message whose sending began
//     before a crash is unknown: the conversation gets a link to the chat, and the message is not sent again.
//   - Conversations do not wait for each other. At most 100 messages of one wait; then the oldest is dropped, which is
//     recorded. While a platform cannot be reached, messages wait.
//
// It must not know any platform: each is a package below this one. It must not know HTTP routes.
package channel

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"mime"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"pocketcoder/bridge/outbox"
	"pocketcoder/events"
	"pocketcoder/events/log/sleep"
	"pocketcoder/handlers/channel"
	"pocketcoder/projections"
)

// Platform is the connection of one channel to its messenger. Its methods are safe for concurrent use.
type Platform interface {
	// Run passes messages and presses to the receiver until ctx ends. It returns an error if retrying cannot help. It
	// confirms a message to the messenger only when Receive or Press has returned without an error. It is called again
	// after a pause, which a RetryError can set.
	Run(ctx context.Context, to Receiver) error
	// Send sends a message to a conversation and returns the messenger's id of it. Its errors are a PermanentError, a
	// RetryError, or any other if the messenger may have the message.
	Send(ctx context.Context, place string, m Message) (receipt string, err error)
	Typing(ctx context.Context, place string) error
	Split(text string) []string // into the texts of several messages
}

// Receiver handles messages and presses of buttons in a messenger.
type Receiver interface {
	Receive(ctx context.Context, in channel.Incoming) error
	Press(ctx context.Context, in channel.Incoming, token string) (said string, err error)
	Move(ctx context.Context, in channel.Incoming, place string) error // the id of the conversation has changed
}

// Message is a plain text with buttons, or a file with the text as its caption.
type Message struct {
	ID      string // the same for each try to send the message
	Text    string
	Buttons []Button
	File    *File
	Thread  projections.ChannelThread // for a messenger with threads
}

// File is a file that the assistant sends.
type File struct {
	Name    string
	Content []byte
}

// Button is a button of a message. The messenger hands its token to Press. In a messenger without buttons, a person
// writes the verb and the token in the first line of a message.
type Button struct{ Title, Verb, Token string }

// MaxFile is the size of the largest files of a message of a person, in bytes: with base64 it is a message of less than
// chat.MaxMessage.
const MaxFile = 5 << 17

// FilePart returns the part of a message for a file. Without a valid type, the content decides the type.
func FilePart(name, typ string, body []byte) events.Part {
	typ, _, err := mime.ParseMediaType(typ)
	if err != nil || !strings.Contains(typ, "/") {
		typ = "application/octet-stream"
		if utf8.Valid(body) {
			typ = "text/plain"
		}
	}
	return events.Part{Type: "file", Mime: typ, Filename: strings.ToValidUTF8(name, "\uFFFD"),
		URL: "data:" + typ + ";base64," + base64.StdEncoding.EncodeToString(body)}
}

// PermanentError is the error of a message that the messenger refuses for good.
type PermanentError struct{ Reason string }

func (e PermanentError) Error() string { return e.Reason }

// RetryError is the error of a message that the messenger did not accept and that may be sent again. After is the pause
// before the next attempt, 0 for the usual one.
type RetryError struct {
	Err   error
	After time.Duration
}

func (e RetryError) Error() string { return e.Err.Error() }
func (e RetryError) Unwrap() error { return e.Err }

// ShortReason returns an error as one line of at most 200 bytes: what a server says may be of any length.
func ShortReason(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	return strings.ToValidUTF8(text[:min(len(text), 200)], "")
}

// Hub runs the enabled channels. All exported fields must be set.
type Hub struct {
	Channels *channel.Channels
	Model    *projections.Model
	Logger   *slog.Logger
	URL      string // public URL of this system, without a / at its end
	// Connect returns the platform of a channel, which uses the token.
	Connect    func(c channel.Channel, token string, logger *slog.Logger) (Platform, error)
	RetryAfter []time.Duration // pauses between tries; the last one repeats

	mu      sync.Mutex
	running map[string]*connection // by channel
	looked  uint64                 // sequence up to which pending rows were read
	busy    sync.WaitGroup
}

type connection struct {
	Platform
	channel channel.Channel
	stop    context.CancelFunc
}

const (
	lookAgain   = time.Minute // also without an event, because pairings expire
	typingEvery = 4 * time.Second
	sweepEvery  = time.Hour
	connectWait = 5 * time.Second // before a channel that failed is connected again
	queueWait   = time.Second     // before what could not be queued is queued again
)

// Run connects the channels until ctx ends. The read models must have caught up.
func (h *Hub) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer h.busy.Wait()
	defer cancel()
	h.running = map[string]*connection{}
	h.busy.Go(func() { h.every(ctx, typingEvery, h.showTyping) })
	h.busy.Go(func() { h.every(ctx, sweepEvery, h.Channels.Sweep) })
	loop := outbox.Loop[projections.ChannelMessage]{Name: "messages of channels", Log: h.Channels.Log,
		Model: h.Model, Logger: h.Logger, Pauses: h.RetryAfter, Open: h.open,
		Plan: outbox.InOrder[projections.ChannelMessage], Try: h.deliver, Most: maxOpen, Drop: h.drop}
	return loop.Run(ctx)
}

func (h *Hub) every(ctx context.Context, pause time.Duration, fn func(context.Context) error) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if err := fn(ctx); err != nil && ctx.Err() == nil {
			h.Logger.Warn("channels", "err", err)
		}
	}
}

// open connects the channels that changed, queues what is pending, and lists the messages to send.
func (h *Hub) open(ctx context.Context) (open []outbox.Effect[projections.ChannelMessage], next time.Duration,
	err error) {
	if err := h.connect(ctx); err != nil {
		return nil, 0, err
	}
	next = lookAgain
	if err := h.queue(ctx); err != nil && ctx.Err() == nil { // what is queued already is sent
		h.Logger.Error("queue messages of channels", "again", queueWait, "err", err)
		next = queueWait
	}
	all, err := h.Model.OpenChannelMessages(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, m := range all {
		if h.platform(m.Channel) != nil || m.State == projections.ChannelMessageSending {
			open = append(open, outbox.Effect[projections.ChannelMessage]{Key: m.ID, Target: m.Channel + "/" + m.Place, Of: m})
		}
	}
	return open, next, nil
}

// connect starts and stops connections, so that exactly the enabled channels run, with their current settings.
func (h *Hub) connect(ctx context.Context) error {
	all, err := h.Channels.List(ctx)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := map[string]bool{}
	for _, c := range all {
		wanted[c.ID] = c.Enabled
		now := h.running[c.ID]
		if !c.Enabled || now != nil && now.channel.Seq == c.Seq {
			continue
		}
		token, err := h.Channels.Records.Secret(ctx, channel.Collection, c.ID)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // it is read again soon; the other channels do not wait
			h.Logger.Error("read the token of a channel", "channel", c.Name, "err", err)
			continue
		}
		if now != nil {
			now.stop()
			delete(h.running, c.ID)
		}
		if token == "" {
			continue
		}
		platform, err := h.Connect(c, token, h.Logger)
		if err != nil {
			h.Logger.Error("connect channel", "channel", c.Name, "err", err)
			continue
		}
		running, stop := context.WithCancel(ctx)
		h.running[c.ID] = &connection{platform, c, stop}
		h.busy.Go(func() { h.receive(running, platform, c) })
	}
	for id, now := range h.running {
		if !wanted[id] {
			now.stop()
			delete(h.running, id)
		}
	}
	return nil
}

func (h *Hub) receive(ctx context.Context, p Platform, c channel.Channel) {
	for {
		err := p.Run(ctx, h.Channels)
		if ctx.Err() != nil {
			return
		}
		pause := connectWait
		if again := (RetryError{}); errors.As(err, &again) && again.After > 0 {
			pause = again.After
		}
		h.Logger.Error("channel", "channel", c.Name, "again", pause, "err", err)
		if sleep.For(ctx, pause) != nil {
			return
		}
	}
}

// connected reports whether any channel runs.
func (h *Hub) connected() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.running) > 0
}

func (h *Hub) platform(id string) Platform {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.running[id]; c != nil {
		return c.Platform
	}
	return nil
}

// showTyping shows in the conversations with a running turn that the assistant is at work.
func (h *Hub) showTyping(ctx context.Context) error {
	if !h.connected() {
		return nil
	}
	all, err := h.Model.BusyConversations(ctx, events.FormatTime(time.Now()))
	for _, at := range all {
		if p := h.platform(at.Channel); p != nil {
			err = errors.Join(err, p.Typing(ctx, at.Place))
		}
	}
	return err
}
