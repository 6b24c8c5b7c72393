package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/ingest"
	"pocketcoder/events"
	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/projections/pending"
	"pocketcoder/projections/turns"
)

// Deliver sends submitted messages to OpenCode until ctx ends. Each chat runs one turn at a time, in order. At most
// MaxTurns run across all chats, and one account gets at most three quarters of them. Deliver reads pending messages from
// the read model and keeps no state of its own, so a crash loses none. It appends the ids of a message before it sends the
// message, so OpenCode recognizes a message that is sent again after a crash.
func (o *Outbox) Deliver(ctx context.Context) error {
	d := &deliveries{Outbox: o, done: make(chan string), busy: map[string]string{}}
	return o.watch(ctx, d.done, func(chat string) { delete(d.busy, chat) }, d.start)
}

// watch calls work whenever the read model has changed or a key arrives on done, while OpenCode is connected.
func (o *Outbox) watch(ctx context.Context, done chan string, ended func(string), work func(context.Context) error) error {
	for {
		seq := o.Model.Seq()
		if err := o.WaitConnected(ctx); err != nil {
			return err
		}
		if err := work(ctx); err != nil {
			return err
		}
		moved := make(chan error, 1)
		waiting, cancel := context.WithCancel(ctx)
		go func() { moved <- o.Model.Wait(waiting, seq+1) }()
		select {
		case id := <-done:
			ended(id)
		case <-moved:
		case <-time.After(untilTomorrow()): // what waits for a new day
		}
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

type deliveries struct {
	*Outbox
	done chan string       // chats whose delivery ended
	busy map[string]string // chats with a delivery under way, and their owners
}

func (d *deliveries) start(ctx context.Context) error {
	waiting, err := pending.Messages(ctx, d.Model)
	if err != nil {
		return err
	}
	running, err := turns.Running(ctx, d.Model, d.Engine)
	if err != nil {
		return err
	}
	held := map[string]bool{} // chats: later messages wait too, even if no budget holds them
	for _, m := range waiting {
		if _, busy := d.busy[m.Chat]; m.Engine != d.Engine || busy || !m.Free {
			continue
		}
		if m.EngineMessage == "" && d.isHeld(ctx, m) {
			held[m.Chat] = true
		}
		if held[m.Chat] {
			continue
		}
		if !d.mayRun(m.ChatUser, running) {
			continue
		}
		d.busy[m.Chat] = m.ChatUser
		go func() {
			if err := d.deliver(ctx, m); err != nil && ctx.Err() == nil {
				d.Logger.Error("deliver message", "chat", m.Chat, "message", m.ID, "err", err)
			}
			select {
			case d.done <- m.Chat:
			case <-ctx.Done():
			}
		}()
	}
	return nil
}

// mayRun reports whether a chat of an account may begin a turn. One account never takes the last quarter of the turns: it is for
// others.
func (d *deliveries) mayRun(user string, running map[string]int) bool {
	if d.MaxTurns <= 0 {
		return true
	}
	all, own := len(d.busy), running[user]
	for _, n := range running {
		all += n
	}
	for _, owner := range d.busy {
		if owner == user {
			own++
		}
	}
	share := max(1, d.MaxTurns-d.MaxTurns/4)
	return all < d.MaxTurns && (user == "" || own < share)
}

// deliver sends one message, retries while that may help, and records the result. It skips deleted chats.
func (d *deliveries) deliver(ctx context.Context, m pending.Message) error {
	if err := d.waitForEarlierEffects(ctx, m); err != nil {
		return err
	}
	sending, err := earlierSending(m)
	for try := 0; err == nil; try++ {
		chat, _, unread := d.Model.Chat(ctx, m.Chat)
		if unread != nil || chat.Removed {
			return unread
		}
		m.Bound = chat.Session
		reconnected := d.Reconnected()
		if sending.EngineMessage == "" {
			sending, err = d.sending(ctx, m)
		}
		if err == nil {
			err = d.send(ctx, m, sending)
		}
		if err == nil {
			return d.delivered(ctx, m, sending)
		}
		gone := errors.Is(err, client.ErrGone)
		if gone {
			sending = events.MessageSending{} // the next try is made in another session
		}
		if !gone && !client.Retryable(err) || try == len(d.RetryAfter) || ctx.Err() != nil {
			break
		}
		d.Logger.Warn("deliver message", "chat", m.Chat, "message", m.ID, "try", try+1, "err", err)
		select {
		case <-time.After(d.RetryAfter[try]):
		case <-reconnected: // a new OpenCode may take it at once
		case <-ctx.Done():
		}
		err = d.WaitConnected(ctx) // to try without OpenCode would only use up the tries
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, d.record(ctx, m.Chat, events.MessageFailed{Message: m.ID, Domain: "infrastructure", Error: err.Error()}))
}

// delivered records it. The chat may have been deleted meanwhile, and its turn aborted before there was one.
func (d *deliveries) delivered(ctx context.Context, m pending.Message, s events.MessageSending) error {
	if err := d.record(ctx, m.Chat, events.MessageDelivered{Message: m.ID, EngineMessage: s.EngineMessage}); err != nil {
		return err
	}
	chat, _, err := d.Model.Chat(ctx, m.Chat)
	if err != nil || !chat.Removed {
		return err
	}
	return d.stop(ctx, s.Session)
}

// effectPoll is the pause between two looks at how far a worker is.
const effectPoll = 20 * time.Millisecond

// waitForEarlierEffects blocks until all aborts, reverts and forks requested before m in the same chat are done. The request for the fork
// that a chat begins with is an event of another chat.
func (d *deliveries) waitForEarlierEffects(ctx context.Context, m pending.Message) error {
	anywhere := m.Chat
	if m.Bound == "" {
		anywhere = "*"
	}
	for worker, filter := range map[string]string{
		AbortWorker:  events.ChatSubject(m.Chat, events.AbortRequested{}.Kind()),
		revertWorker: events.ChatSubject(m.Chat, events.RevertRequested{}.Kind()),
		forkWorker:   events.ChatSubject(anywhere, events.ForkRequested{}.Kind()),
	} {
		var last uint64
		_, err := d.Log.Fold(ctx, filter, 0, func(e events.Event) error {
			fork, _ := events.Decode(e)
			if f, _ := fork.(events.ForkRequested); e.Seq < uint64(m.Position) && (e.Subject.ID == m.Chat || f.Chat == m.Chat) {
				last = e.Seq
			}
			return nil
		})
		for done := uint64(0); err == nil && done < last; {
			if done, err = d.Log.Worked(ctx, worker); err == nil && done < last {
				err = ingest.Sleep(ctx, effectPoll)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sending makes the ids under which OpenCode shall know the message, and appends them.
func (d *deliveries) sending(ctx context.Context, m pending.Message) (events.MessageSending, error) {
	s := events.MessageSending{Message: m.ID}
	parts, err := submitted(m)
	if err != nil {
		return s, err
	}
	if s.Session, err = d.session(ctx, m); err != nil {
		return s, err
	}
	s.EngineMessage = client.NewID("msg", time.Now())
	for range parts {
		s.EngineParts = append(s.EngineParts, client.NewID("prt", time.Now()))
	}
	return s, d.record(ctx, m.Chat, s)
}

// earlierSending returns the ids under which a message was sent before, or none.
func earlierSending(m pending.Message) (events.MessageSending, error) {
	s := events.MessageSending{Message: m.ID, Session: m.Session, EngineMessage: m.EngineMessage}
	if err := json.Unmarshal([]byte(m.EngineParts), &s.EngineParts); err != nil {
		return s, fmt.Errorf("read the part ids of message %s: %w", m.ID, err)
	}
	return s, nil
}

func submitted(m pending.Message) (parts []events.Part, err error) {
	if err := json.Unmarshal([]byte(m.Submitted), &parts); err != nil {
		return nil, fmt.Errorf("read the parts of message %s: %w", m.ID, err)
	}
	return parts, nil
}

// session gives the chat's live session, making one when it has none or OpenCode has lost it. Ingest binds it to the
// chat, by the metadata, when OpenCode reports it.
func (d *deliveries) session(ctx context.Context, m pending.Message) (string, error) {
	if m.Bound != "" {
		_, err := d.Current().Session(ctx, m.Bound)
		if err == nil || !errors.Is(err, client.ErrGone) {
			return m.Bound, err
		}
	}
	s, err := d.Current().CreateSession(ctx, client.NewSession{
		Directory: d.Directory, Title: m.ChatTitle, Agent: m.ChatAgent, Metadata: map[string]any{ingest.MetadataChat: m.Chat},
	})
	if err != nil {
		return "", err
	}
	chat, err := d.waitForChat(ctx, s.ID)
	if err == nil && chat != m.Chat { // an earlier try made one, whose answer was lost
		err = &client.Error{Op: "create session for chat " + m.Chat, Err: errors.New("it has one already")}
	}
	return s.ID, err
}

// bindTimeout bounds how long the first event of a new session may take.
const bindTimeout = 30 * time.Second

// waitForChat waits until ingest has bound a new session to a chat: until then the chat's next message would get another one.
func (o *Outbox) waitForChat(ctx context.Context, session string) (chat string, err error) {
	ctx, cancel := context.WithTimeout(ctx, bindTimeout)
	defer cancel()
	for {
		seq := o.Model.Seq()
		if s, known, err := o.Model.Session(ctx, session); known || err != nil {
			return s.Chat, err
		}
		if err := o.Model.Wait(ctx, seq+1); err != nil {
			return "", &client.Error{Op: "place session " + session, Err: fmt.Errorf("no event of it arrived within %s: %w", bindTimeout, err)}
		}
	}
}

func (o *Outbox) send(ctx context.Context, m pending.Message, s events.MessageSending) error {
	parts, err := submitted(m)
	if err != nil {
		return err
	}
	model, err := o.modelFor(ctx, m)
	if err != nil {
		return err
	}
	session, err := o.Current().Session(ctx, s.Session)
	if err != nil {
		return err
	}
	if !within(session.Directory, o.Directory) {
		return fmt.Errorf("this chat works in %s, and PocketCoder was started in %s; start it with --workspace %[1]s, or begin a new chat", session.Directory, o.Directory)
	}
	p := client.Prompt{MessageID: s.EngineMessage, Model: model}
	for i, part := range parts {
		p.Parts = append(p.Parts, client.PromptPart{ID: s.EngineParts[i], Type: part.Type, Text: part.Text, Mime: part.Mime, URL: part.URL, Filename: part.Filename})
	}
	return o.Current().Prompt(ctx, s.Session, p)
}

// within reports whether a session's directory is in the workspace. In another one commands cannot run, and a turn does not end if
// OpenCode cannot see the directory.
func within(directory, root string) bool {
	if real, ok := workspace.RealPath(directory); ok {
		directory = real
	}
	if real, ok := workspace.RealPath(root); ok {
		root = real
	}
	return directory == root || strings.HasPrefix(directory, root+"/")
}

// Resend sends again a message that OpenCode has accepted and nothing has answered. To OpenCode it is the same message, which
// it runs once. Resend reports whether OpenCode has accepted it again. After an error another attempt may help.
func (o *Outbox) Resend(ctx context.Context, m pending.Message) (accepted bool, err error) {
	ids, err := earlierSending(m)
	if err != nil {
		return false, err
	}
	err = o.send(ctx, m, ids)
	if client.Retryable(err) {
		return false, err
	}
	return err == nil, nil
}
