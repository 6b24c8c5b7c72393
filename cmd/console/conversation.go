package console

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/cmd/console/terminal"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/handlers"
	"pocketcoder/handlers/chat"
	"pocketcoder/projections"
)

// conversation is the state of a person (or a script) at a chat. One goroutine handles everything.
type conversation struct {
	*client.System
	Options
	show        *render.Renderer
	terminal    *terminal.Terminal // nil when stdin is none
	suggestion  string             // text that is put into the line below the next prompt
	turn        turn
	exists      bool            // the chat
	joined      uint64          // the log's last sequence when the conversation began
	shown       uint64          // sequence of the last event that is shown
	caughtUp    bool            // with joined
	working     bool            // it is the assistant's turn, as far as the read model has said
	stopping    bool            // an abort was asked for
	pending     []pendingItem   // for a person, oldest first
	prompted    bool            // the first of pending is on the screen
	promptedFor string          // name of the item that the terminal's prompt shows
	covered     bool            // output was printed below the first item, so it is shown again
	ended       bool            // stdin
	since       time.Time       // when the assistant began to work; zero when it does not
	agent       string          // record; for the chat that the first message creates
	model       string          // to select when the first message creates the chat
	listedQueue []queuedMessage // as /queue listed them last
	undone      string          // the message with which the undone turns begin, by OpenCode's id

	input        lines
	scriptAborts <-chan bool // /abort of a script while a turn runs
	interrupts   <-chan os.Signal
	arrived      chan log.Batch
	fragments    chan log.Delta
	failed       chan error
	connected    <-chan bool // whether there is a connection, as it changes

	waitingDelegates chan projections.Delegate // that begin to wait for a person
}

func newConversation(s *client.System, o Options, interrupts <-chan os.Signal) *conversation {
	return &conversation{
		System: s, Options: o, interrupts: interrupts,
		show: render.New(render.NewScreen(o.Out, o.Interactive, o.Colours)), turn: turn{stoppedBy: map[string]bool{}},
		arrived: make(chan log.Batch), fragments: make(chan log.Delta, 256), failed: make(chan error, 3),
		waitingDelegates: make(chan projections.Delegate),
	}
}

// follow brings the chat's events after a sequence, its fragments, and the state of the connection to run.
func (c *conversation) follow(ctx context.Context, after uint64) {
	go func() {
		c.failed <- c.ReadDeltas(ctx, c.Chat, time.Time{}, func(d log.Delta) {
			_ = client.Send(ctx, c.fragments, d)
		})
	}()
	go func() {
		c.failed <- c.Read(ctx, c.Chat, after, func(b log.Batch) error {
			return client.Send(ctx, c.arrived, b)
		})
	}()
	go func(chat string) { c.failed <- c.followDelegates(ctx, chat) }(c.Chat)
	c.connected = c.Connected()
}

// run handles events and input until the conversation is over, and returns its end.
func (c *conversation) run(ctx context.Context) (End, error) {
	var lost <-chan time.Time
	tick, aborts, stop := c.atTerminal()
	defer stop()
	for {
		if err := c.next(ctx); err != nil {
			return 0, err
		}
		if code, over := c.isOver(); over {
			return code, nil
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case err := <-c.failed:
			return 0, err
		case b := <-c.arrived:
			c.showFragments()
			if err := c.applyBatch(ctx, b); err != nil {
				return 0, err
			}
		case w := <-c.waitingDelegates:
			c.showFragments()
			c.noteDelegate(w)
		case d := <-c.fragments:
			c.show.Fragment(d)
		case line, ok := <-c.lines():
			if code, leave, err := c.line(ctx, line, ok); leave || err != nil {
				return code, err
			}
		case <-c.interrupts:
			if code, leave, err := c.interrupt(ctx); leave || err != nil {
				return code, err
			}
		case <-c.abortsOfScript():
			if err := c.abort(ctx); err != nil {
				return 0, err
			}
		case cleared := <-aborts:
			if cleared && !c.working {
				break // Ctrl-C cleared the line
			}
			if code, leave, err := c.interrupt(ctx); leave || err != nil {
				return code, err
			}
		case now := <-tick:
			c.terminal.SetStatus(c.status(now))
		case up := <-c.connected:
			if lost = nil; !up {
				if c.terminal != nil {
					c.covered = c.terminal.Release() || c.covered
				}
				c.show.Note("", render.Yellow, "(the connection to the system is lost; waiting for it to come back)")
				lost = time.After(client.ReconnectTime)
			}
		case <-lost:
			return 0, fmt.Errorf("the system has been away for %s; the conversation is stored; continue it with: pocketcoder chat %s",
				client.ReconnectTime, c.Chat)
		}
	}
}

// atTerminal returns the channels of a terminal: a tick for the status, and Ctrl-C as a key.
func (c *conversation) atTerminal() (tick <-chan time.Time, aborts <-chan bool, stop func()) {
	if c.terminal == nil {
		return nil, nil, func() {}
	}
	t := time.NewTicker(time.Second)
	return t.C, c.terminal.Aborts, t.Stop
}

// status returns the status line for the time in which nothing is printed.
func (c *conversation) status(now time.Time) string {
	if !c.working {
		c.since = time.Time{}
		return ""
	}
	if c.since.IsZero() {
		c.since = now
	}
	if n := c.terminal.HeldLines(); n > 0 {
		return c.show.Paint(render.Dim, fmt.Sprintf("%d more lines are shown once you have answered", n))
	}
	if len(c.pending) > 0 || now.Sub(c.terminal.PrintedAt()) < time.Second {
		return ""
	}
	text := fmt.Sprintf("working %s", now.Sub(c.since).Round(time.Second))
	if x := c.show.Running(); x != nil {
		text = fmt.Sprintf("running %s", max(0, now.Sub(x.Since)).Round(time.Second))
		if n := x.OutputLines(); n > 0 {
			text += fmt.Sprintf(", %d lines", n)
		}
	}
	return c.show.Paint(render.Dim, text+"  (Ctrl-C stops)")
}

// showFragments shows the fragments that have arrived. They precede the events that have arrived.
func (c *conversation) showFragments() {
	for {
		select {
		case d := <-c.fragments:
			c.show.Fragment(d)
		default:
			return
		}
	}
}

// lines returns the channel of stdin if a line may be read: always for a person at a terminal; for a script only when
// an answer or a message is needed, so that these keep their order.
func (c *conversation) lines() lines {
	if c.caughtUp && !c.ended && (c.Interactive || len(c.pending) > 0 || !c.Once && !c.working) {
		return c.input
	}
	return nil
}

// abortsOfScript returns the channel of a script's /abort while a turn runs.
func (c *conversation) abortsOfScript() <-chan bool {
	if c.caughtUp && c.working {
		return c.scriptAborts
	}
	return nil
}

// isOver reports whether the conversation has ended, and how.
func (c *conversation) isOver() (End, bool) {
	switch {
	case c.ended && len(c.pending) > 0 && !c.stopping && !c.worksOn():
		return c.turn.endWaiting(), true
	case c.working || len(c.pending) > 0 || !c.caughtUp:
		return 0, false
	}
	return c.turn.end(), c.Once || c.ended
}

// worksOn reports whether the turn runs on although requests wait: no request to keep a name holds it up.
func (c *conversation) worksOn() bool {
	return c.working && !slices.ContainsFunc(c.pending, func(a pendingItem) bool {
		return a.permission == nil || !a.permission.Keeps()
	})
}

// applyBatch shows events, and checks whether the turn has ended.
func (c *conversation) applyBatch(ctx context.Context, b log.Batch) error {
	wasCaughtUp, mayEnd := c.caughtUp, false
	for _, e := range b.Events {
		c.show.Live = e.Seq > c.joined
		wentOn := c.willGoOn()
		c.show.Event(e)
		d, _ := events.Decode(e) // the renderer shows the error
		if isEnd := c.turn.apply(e, d); c.show.Live && e.Seq >= c.turn.Position {
			mayEnd = mayEnd || isEnd || c.shown < c.turn.Position || wentOn && !c.willGoOn()
		}
		c.shown = e.Seq
		c.removeDecided(e)
		if err := c.addQuestions(e); err != nil {
			return err
		}
		switch d := d.(type) {
		case events.MessageSubmitted, events.MessageSending: // a message that is sent may have been held
			c.working = c.working || c.show.Live
		case events.PermissionDecided: // more budget may resume the turn, or release a message
			isMore := d.Type == events.KindBudget && d.Decision == events.Authorized
			c.working = c.working || c.show.Live && isMore
		case events.Deleted:
			return errors.New("the chat was deleted")
		case events.AbortRequested:
			if d.HoldsQueue(e) && c.show.Live {
				if err := c.noteHeld(ctx); err != nil {
					return err
				}
			}
		}
	}
	if c.show.Live, c.caughtUp = true, c.caughtUp || b.Behind == 0; c.caughtUp {
		c.addReferred()
	}
	if c.caughtUp && !wasCaughtUp { // the turn may have ended before joined
		c.shown = max(c.shown, c.joined)
		return c.check(ctx)
	}
	if !mayEnd || !c.working {
		return nil
	}
	return c.check(ctx)
}

// submit sends a message; the first one of a new chat opens it.
func (c *conversation) submit(ctx context.Context, text string) error {
	if !c.exists {
		if err := c.open(ctx); err != nil {
			return err
		}
	}
	if model := c.model; model != "" {
		c.model = ""
		if err := c.SelectModel(ctx, c.Chat, "", model); err != nil {
			return err
		}
	}
	c.undone = ""
	message := events.NewID()
	c.show.Quiet[message] = true
	if _, err := c.Create(ctx, "messages", map[string]any{"id": message, "chat": c.Chat, "role": "user",
		"parts": []events.Part{{Type: "text", Text: text}}}); err != nil {
		return err
	}
	switch {
	case c.working && c.terminal != nil:
		c.show.Note("", render.Dim, "(it is answered after the current turn; /queue lists what waits)")
	case c.working:
		c.show.Note("", render.Dim, "(it is answered after the current turn)")
	}
	c.working = true
	return nil
}

// open creates the chat, and begins to follow it. Unless Options has a title, one is generated.
func (c *conversation) open(ctx context.Context) error {
	_, err := c.Create(ctx, "chats", map[string]any{"id": c.Chat, "title": c.Title, "agent": c.agent,
		"project": c.Project})
	if err == nil {
		c.exists = true
		c.follow(ctx, 0)
	}
	return err
}

// line handles a line of stdin; ok is false at the end of stdin.
func (c *conversation) line(ctx context.Context, line terminal.Line, ok bool) (code End, leave bool, err error) {
	if c.terminal != nil || c.Interactive && c.show.Writing == promptWriter {
		c.show.Writing = "" // the terminal has ended the line
	}
	if c.terminal != nil {
		c.covered = c.terminal.Release() || c.covered
		if ok {
			c.terminal.Handled()
		}
	}
	words := strings.TrimSpace(line.Text)
	switch {
	case !ok:
		c.ended = true
	case words == chat.SlashQuit:
		if len(c.pending) > 0 {
			return c.turn.endWaiting(), true, nil
		}
		return c.turn.end(), true, nil
	case isStop(words):
		return 0, false, c.abort(ctx)
	case line.Typed && c.isSlash(words):
		c.remember(words)
		return 0, false, c.slash(ctx, words)
	case line.Typed && line.Shown != "" && line.Shown != c.answerPrompt():
		c.refuseStale(words)
	case len(c.pending) > 0 && (!line.Typed || line.Shown != ""):
		return 0, false, c.answer(ctx, removeSlashEscape(line, words))
	case words == "":
	case c.Once, c.working && (words == "y" || words == "n"):
		if len(c.pending) > 0 {
			c.prompted = false
			c.show.Note("", render.Yellow, "%q was not used: you began this line before the request came. Please answer again.",
				words)
		} else {
			c.show.Note("", render.Dim, "(nothing waits for an answer)")
		}
	default:
		text := removeSlashEscape(line, line.Text)
		c.remember(line.Text)
		err = c.submit(ctx, text)
		if r := (handlers.Refused{}); c.Interactive && errors.As(err, &r) { // a script must notice
			c.show.Note("", render.Red, "%s", r.Text)
			err = nil
		}
	}
	return 0, false, err
}

// isStop reports whether a line stops the turn.
func isStop(words string) bool {
	c, argument, _ := chat.FindSlashCommand(chat.Terminal, words)
	return c.Name == chat.SlashStop && argument == ""
}

// answerPrompt returns the name of the request or question that the first prompt shows, "" if none waits. An answer
// applies only to it.
func (c *conversation) answerPrompt() string {
	if len(c.pending) == 0 {
		return ""
	}
	return c.pending[0].name()
}

// refuseStale reports that an answer was not used, because its request was decided meanwhile.
func (c *conversation) refuseStale(words string) {
	c.prompted = false
	if words == "" {
		return
	}
	c.show.Note("", render.Yellow, "%q was not used: the request it answers was decided before you pressed Enter.", words)
	if len(c.pending) > 0 {
		c.show.Note("", render.Yellow, "Now this waits: %s", c.pending[0].summary())
	}
}

// remember adds a line to the history of a terminal.
func (c *conversation) remember(line string) {
	if c.terminal == nil {
		return
	}
	if err := c.terminal.History.Remember(line); err != nil {
		c.show.Note("", render.Dim, "(the line is not in the history: %v)", err)
	}
}

// interrupt handles Ctrl-C: it stops the turn. Without a running turn, or the second time, it ends the conversation.
func (c *conversation) interrupt(ctx context.Context) (code End, leave bool, err error) {
	if c.terminal != nil {
		c.covered = c.terminal.Release() || c.covered
	}
	switch {
	case !c.working:
		return c.turn.end(), true, nil
	case c.stopping:
		return Aborted, true, nil
	}
	return 0, false, c.abort(ctx)
}

func (c *conversation) abort(ctx context.Context) error {
	if !c.working {
		c.show.Note("", render.Dim, "(nothing runs)")
		return nil
	}
	c.stopping = true
	return c.Abort(ctx, c.Chat)
}
