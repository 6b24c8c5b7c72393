package channel

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/record"
)

// Incoming is a message that a person wrote in a messenger.
type Incoming struct {
	Channel   Channel
	Update    string // the platform's id of the message or event
	Address   string // the platform's id of the sender
	Place     string // the platform's id of the conversation
	Sender    string // name of the sender
	Group     bool   // several people read the conversation
	Addressed bool   // in a group: the message is to the bot
	Text      string
	Thread    Thread // of a mail
	verb      string // before the code of a button that is written; empty for a button

	// Read completes Text and Files. It is called for a paired sender only. Before, Text is the beginning of the text, in
	// which a code is searched. nil if nothing is missing.
	Read func(context.Context, *Incoming) error

	// Files returns the files of the message. Its error is a sentence for the sender, unless ctx has ended. It is
	// called for a paired sender only.
	Files func(context.Context) ([]events.Part, error)
}

// Thread is what a mail refers to. The zero value is that of a messenger in which a sender has one conversation.
type Thread struct {
	Message string // id of the mail
	Root    string // id of the first mail of the thread
	Subject string

	// Conversations are the ids of conversations that the mail refers to, the newest first. They may be forged: only one
	// of the same sender counts.
	Conversations []string
}

// maxWaiting is the number of messages of a conversation that may wait. Further ones are refused. Those that a stop of
// the turn holds do not count, because only the next message releases them.
const maxWaiting = 20

// Receive handles a message. It returns an error only if another try may succeed. A second call with the same update
// has no further effect.
func (h *Channels) Receive(ctx context.Context, in Incoming) error {
	for _, text := range []string{in.Text, in.Thread.Subject} {
		if code, found := codeIn(text); found {
			if right, err := h.redeem(ctx, in, code); right || err != nil {
				return err
			}
		}
	}
	p, who, paired, err := h.pairing(ctx, in)
	if err != nil || !paired {
		return err
	}
	if in.Group && !in.takeTrigger() {
		return nil
	}
	if tooMany, err := h.tooManyThreads(ctx, in); tooMany || err != nil {
		return err
	}
	if in.Read != nil {
		if err := in.Read(ctx, &in); err != nil {
			return err
		}
	}
	id, allowed, err := h.chatOf(ctx, in, who)
	if err != nil || !allowed {
		return err
	}
	if done, err := h.pressed(ctx, &in, id); done || err != nil {
		return err
	}
	err = h.handle(ctx, in, p, id)
	if r := handlers.CodeOf(err); r != "" && r != handlers.Unavailable {
		return h.notify(ctx, id, in, "refused", err.Error())
	}
	return err
}

// takeTrigger removes the trigger word of a message in a group. It reports whether the message is to the assistant.
func (in *Incoming) takeTrigger() bool {
	text := strings.TrimSpace(in.Text)
	first := text
	if end := strings.IndexAny(text, " \n\t"); end > 0 {
		first = text[:end]
	}
	rest := text[len(first):]
	if in.Channel.Trigger != "" && strings.EqualFold(strings.TrimRight(first, ",:"), in.Channel.Trigger) {
		in.Text = strings.TrimSpace(rest)
		return true
	}
	return in.Addressed
}

// handle executes a slash command of a paired sender, or submits the message in the conversation's chat.
func (h *Channels) handle(ctx context.Context, in Incoming, p Pairing, id string) error {
	by := handlers.Command{ID: updateID(in, "command"), Actor: events.UserActor(p.User)}
	switch commandIn(in.Text) {
	case chat.SlashNew:
		return h.begin(ctx, in, id)
	case chat.SlashStop:
		seq, err := h.Chats.AbortTurn(ctx, chat.AbortTurn{Command: by, Chat: id})
		if err == nil {
			err = h.AwaitReadModels(ctx, seq)
		}
		if err != nil {
			return err
		}
		_, held, err := h.CountWaiting(ctx, id)
		if err != nil {
			return err
		}
		said := "The turn is stopped."
		if held > 0 {
			said += " The messages that wait are sent when you send the next one."
		}
		return h.notify(ctx, id, in, "stopped", said)
	case chat.SlashHelp:
		return h.notify(ctx, id, in, "help", pairedNotice())
	}
	message := updateID(in, "message") // of the chat that the conversation had when the update came first
	if done, err := h.IsSubmitted(ctx, message); err != nil || done {
		return err
	}
	if waiting, _, err := h.CountWaiting(ctx, id); err != nil || waiting >= maxWaiting {
		if err == nil {
			err = handlers.Refuse(handlers.Conflict, "%d messages wait already, so this one was refused. Send it again later.", waiting)
		}
		return err
	}
	parts, err := in.parts(ctx)
	if err != nil {
		return err
	}
	_, seq, err := h.Chats.SubmitMessage(ctx, chat.SubmitMessage{
		Command: by, Chat: id, Message: message, Parts: parts,
		Origin: &events.Origin{Channel: in.Channel.ID, Name: in.Channel.Name, Sender: shorten(in.Sender, maxNameOfPeer),
			Message: in.Thread.Message},
	})
	if err != nil {
		return err
	}
	return h.AwaitReadModels(ctx, seq) // so that the next one counts it
}

// parts returns the content of a message.
func (in Incoming) parts(ctx context.Context) (parts []events.Part, err error) {
	if in.Files != nil {
		if parts, err = in.Files(ctx); ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			return nil, handlers.Refuse(handlers.Invalid, "The message was refused: %v.", err)
		}
	}
	if strings.TrimSpace(in.Text) != "" {
		parts = slices.Insert(parts, 0, events.Part{Type: "text", Text: strings.ToValidUTF8(in.Text, "\uFFFD")})
	}
	return parts, nil
}

// updateID returns the id of what an update makes. The same update makes it once.
func updateID(in Incoming, what string) string {
	return events.ChannelID(in.Channel.ID, in.Update, what)
}

// chatOf returns the chat of a conversation. It begins one if there is none, or if the chat was deleted. allowed is
// false if the account may not write there: another account owns the chat, and it is no administrator.
func (h *Channels) chatOf(ctx context.Context, in Incoming, who account.Account) (id string, allowed bool, err error) {
	c, _, found, err := h.conversation(ctx, in)
	if err != nil {
		return "", false, err
	}
	if found {
		state, err := h.state(ctx, c.Chat)
		if err != nil {
			return "", false, err
		}
		if state.Missing(c.Chat) == nil {
			return c.Chat, state.Owner == who.ID || who.Role == account.Admin, nil
		}
		if c.User != who.ID && who.Role != account.Admin {
			return c.Chat, false, nil
		}
	}
	id, err = h.create(ctx, in, who.ID)
	return id, true, err
}

// tooManyThreads reports whether a mail begins a thread after its sender began as many as may be begun in an hour. The
// newest thread says so to the sender.
func (h *Channels) tooManyThreads(ctx context.Context, in Incoming) (bool, error) {
	_, _, found, err := h.conversation(ctx, in)
	if err != nil || found || in.Thread.Root == "" {
		return false, err
	}
	since, err := h.Log.At(ctx, time.Now().Add(-newChatsWithin))
	if err != nil {
		return false, err
	}
	all, err := record.All[conversation](ctx, h.Records, Conversations)
	begun := slices.DeleteFunc(all, func(r record.StoredRecord[conversation]) bool {
		return r.Seq <= since || r.Value.Channel != in.Channel.ID || r.Value.Place != in.Place
	})
	if err != nil || len(begun) < maxNewChats {
		return false, err
	}
	newest := begun[len(begun)-1].Value
	return true, h.notify(ctx, newest.Chat, in, "refused", fmt.Sprintf("The mail %q was refused, because you began "+
		"%d threads within an hour, which is the limit. Answer in one of them.", in.Thread.Subject, maxNewChats))
}

func (h *Channels) state(ctx context.Context, id string) (state handlers.ChatState, err error) {
	err = handlers.NewFold(&state, handlers.ChatFilter(id)).Read(ctx, h.Log,
		func(*handlers.ChatState) error { return nil })
	return state, err
}

// begin begins a new chat for a conversation, in place of the one with an id.
func (h *Channels) begin(ctx context.Context, in Incoming, id string) error {
	state, err := h.state(ctx, id)
	if err != nil {
		return err
	}
	if id, err = h.create(ctx, in, state.Owner); err != nil {
		return err
	}
	return h.notify(ctx, id, in, "new", "This is a new chat.")
}

// create creates the chat of a conversation, and stores the record of the conversation.
func (h *Channels) create(ctx context.Context, in Incoming, owner string) (id string, err error) {
	by := handlers.Command{Actor: events.UserActor(owner)}
	id = updateID(in, "chat")
	about := in.Sender
	if _, code := codeIn(in.Thread.Subject); !code {
		about = cmp.Or(in.Thread.Subject, about)
	}
	if _, _, err = h.Chats.Create(ctx, chat.Create{Command: by, Chat: id, User: owner,
		Title: fmt.Sprintf("%s: %s", in.Channel.Name, shorten(about, maxNameOfPeer))}); err != nil {
		return "", err
	}
	_, of, found, err := h.conversation(ctx, in)
	if err != nil {
		return "", err
	}
	set := record.Fields(map[string]any{"channel": in.Channel.ID, "place": in.Place, "chat": id, "user": owner})
	if !found && in.Thread.Root != "" {
		set = record.Fields(map[string]any{"channel": in.Channel.ID, "place": in.Place, "chat": id, "user": owner,
			"thread": in.Thread.Root, "subject": in.Thread.Subject})
	}
	_, seq, err := h.Records.Save(ctx, record.Save{Command: by, Collection: Conversations, Record: of, New: !found,
		Set: set, Trusted: true})
	if err != nil {
		return "", err
	}
	return id, h.AwaitReadModels(ctx, seq)
}

// Move changes the place of a conversation and of its pairings, because the platform has changed the id.
func (h *Channels) Move(ctx context.Context, in Incoming, place string) error {
	c, old, found, err := h.conversation(ctx, in)
	if err != nil || !found {
		return err
	}
	by, to := handlers.Command{Actor: events.UserActor(c.User)}, in
	to.Place = place
	_, id, exists, err := h.conversation(ctx, to)
	if err == nil && !exists {
		_, _, err = h.Records.Save(ctx, record.Save{Command: by, Collection: Conversations, Record: id, New: true,
			Trusted: true, Set: record.Fields(map[string]any{"channel": c.Channel, "place": place, "chat": c.Chat, "user": c.User})})
	}
	if err != nil {
		return err
	}
	all, err := h.Pairings(ctx)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Channel != in.Channel.ID || p.Place != in.Place {
			continue
		}
		if _, _, err := h.Records.Save(ctx, record.Save{Command: by, Collection: Pairings, Record: p.ID, Trusted: true,
			Set: record.Fields(map[string]any{"place": place})}); err != nil {
			return err
		}
	}
	seq, err := h.Records.Delete(ctx, record.Delete{Command: by, Collection: Conversations, Record: old,
		Trusted: true})
	if err != nil {
		return err
	}
	return h.AwaitReadModels(ctx, seq)
}

// conversation returns the record of a conversation and its id. The conversations of a thread are those of the sender,
// so what a mail refers to leads to no other sender's chat.
func (h *Channels) conversation(ctx context.Context, in Incoming) (c conversation, id string, found bool, err error) {
	id = events.ChannelID(in.Channel.ID, in.Place)
	if in.Thread.Root != "" {
		id = events.ChannelID(in.Channel.ID, in.Place, in.Thread.Root)
	}
	all, err := record.All[conversation](ctx, h.Records, Conversations)
	for _, known := range append(slices.Clone(in.Thread.Conversations), id) {
		for _, r := range all {
			if r.ID == known && r.Value.Channel == in.Channel.ID && r.Value.Place == in.Place {
				return r.Value, r.ID, true, err
			}
		}
	}
	return c, id, false, err
}

// notify queues a message of PocketCoder's own to the conversation of a message.
func (h *Channels) notify(ctx context.Context, chat string, in Incoming, what, text string) error {
	return h.Queue(ctx, chat, events.ChannelQueued{Message: updateID(in, what), Channel: in.Channel.ID, Place: in.Place,
		Type: events.OutgoingNotice, Text: text})
}
