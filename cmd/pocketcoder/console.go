package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"pocketcoder/events"
	"pocketcoder/projections"
)

// What happens to requests for permission: a person decides each, all are approved, or all are denied.
const (
	approveAsk  = "ask"
	approveAll  = "all"
	approveNone = "none"
)

// consoleOptions says what a conversation is about, and with whom.
type consoleOptions struct {
	chat    string // empty for a new one
	message string
	once    bool // one turn with message
	approve string
	title   string // of a new chat; empty for the beginning of the first message
	history string // path of the file with the lines that were typed at a terminal

	in          io.Reader
	out, err    io.Writer
	interactive bool // in and out are a terminal
	colours     bool
}

// runConversation holds a conversation until it is over, and returns how its last turn ended. An interrupt stops the turn, and a
// second one ends the conversation.
func runConversation(ctx context.Context, s *system, o consoleOptions, interrupts <-chan os.Signal) (turnEnd, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := newConversation(s, o, interrupts)
	c.show.email = s.emailOf(ctx)
	after, err := c.join(ctx)
	if err != nil {
		return 0, err
	}
	c.follow(ctx, after)
	if err := c.sit(ctx); err != nil {
		return 0, err
	}
	defer c.leave()
	if o.once {
		if err := c.submit(ctx, o.message); err != nil {
			return 0, err
		}
	}
	code, err := c.run(ctx)
	if err == nil && code == exitPending && len(c.waiting) == 0 {
		code, err = c.heldExit(ctx)
	}
	c.show.finish()
	c.leave()
	if err == nil {
		c.farewell(code)
	}
	return code, errors.Join(err, c.screen().err)
}

// heldExit is the exit status when messages are held and nothing waits here: more than the budget allows may have been
// denied before, in another chat too.
func (c *conversation) heldExit(ctx context.Context) (turnEnd, error) {
	for _, request := range c.turn.held {
		var row projections.Permission
		if err := c.query(ctx, "permission", map[string]any{"permission": request}, &row); err != nil {
			return 0, err
		}
		if row.Status == projections.PermissionDenied {
			return exitDenied, nil
		}
	}
	return exitPending, nil
}

// join finds the chat, or names a new one, and returns the sequence after which to read. Of a chat that exists the last
// turn is shown again, and what waits for a person.
func (c *conversation) join(ctx context.Context) (after uint64, err error) {
	last, err := c.log.Last(ctx)
	if err != nil {
		return 0, err
	}
	c.joined = last
	if c.exists = c.chat != ""; !c.exists {
		c.chat = events.NewID()
		return last, nil
	}
	var row projections.Chat
	if err := c.query(ctx, "chat", map[string]any{"chat": c.chat, "after": last}, &row); err != nil {
		return 0, err
	}
	c.turn.root = row.Session
	c.working = row.Turn == projections.TurnAssistant
	if err := c.joinPending(ctx, last); err != nil {
		return 0, err
	}
	after = last
	if c.working || !c.once {
		_, err = c.log.Fold(ctx, events.ChatSubject(c.chat, events.MessageSubmitted{}.Kind()), 0, func(e events.Event) error {
			after = e.Seq - 1
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return after, c.joinSessions(ctx, after)
}

// joinSessions learns where the chat's own session works and which are its subagents, as far as it is not shown.
func (c *conversation) joinSessions(ctx context.Context, until uint64) error {
	w := c.show.w
	c.show.w = io.Discard
	defer func() { c.show.w = w }()
	learn := func(e events.Event) error {
		if e.Seq <= until || e.Subject.Kind == (events.SessionBound{}).Kind() {
			c.show.event(e)
		}
		return nil
	}
	for _, subject := range []string{events.ChatSubject(c.chat, events.SessionBound{}.Kind()), events.ChatOpenCodeSubject(c.chat, "session.created")} {
		if _, err := c.log.Fold(ctx, subject, 0, learn); err != nil {
			return err
		}
	}
	return nil
}

// sit begins to read stdin: at a terminal with a line that can be edited.
func (c *conversation) sit(ctx context.Context) error {
	h, err := loadHistory(c.history)
	if err != nil {
		return fmt.Errorf("read the history of what was typed: %w", err)
	}
	if c.terminal = newTerminal(ctx, c.in, c.out, c.interactive, h); c.terminal == nil {
		c.input = readLines(ctx, c.in)
		return nil
	}
	c.show.w, c.show.columns, c.show.fold = c.terminal, c.terminal.columns, shownOutput
	c.input = c.terminal.lines()
	return nil
}

// shownOutput is how many lines of a command's output are shown at a terminal before it is folded.
const shownOutput = 20

// leave restores the terminal.
func (c *conversation) leave() {
	if c.terminal != nil {
		c.terminal.close()
		c.terminal = nil
	}
}

// lines are what stdin has: whole lines, and its end.
type lines <-chan typedLine

// readLines reads lines until stdin ends; one that ends with a backslash goes on in the next.
func readLines(ctx context.Context, r io.Reader) lines {
	out := make(chan typedLine)
	go func() {
		defer close(out)
		in, whole := bufio.NewReader(r), ""
		for {
			line, err := in.ReadString('\n')
			line = strings.TrimRight(line, "\r\n")
			if more, ok := strings.CutSuffix(line, `\`); ok && err == nil {
				whole += more + "\n"
				continue
			}
			if whole += line; whole != "" || err == nil {
				select {
				case out <- typedLine{text: whole}:
				case <-ctx.Done():
					return
				}
			}
			if whole = ""; err != nil {
				return
			}
		}
	}()
	return out
}

// farewell says on stderr what a script or a person should know of an end that is not the usual one.
func (c *conversation) farewell(code turnEnd) {
	w := c.err
	again := "pocketcoder chat " + c.chat
	switch code {
	case exitFailed:
		fmt.Fprintln(w, "the turn failed:", oneLine(c.turn.failure, 500))
	case exitDenied:
		fmt.Fprintln(w, "it was denied, and the turn stopped; go on with:", again)
	case exitAborted:
		fmt.Fprintln(w, "the turn was aborted; go on with:", again)
	case exitLost:
		fmt.Fprintln(w, "the turn was lost: OpenCode went away in the middle of it; go on with:", again)
	case exitPending:
		fmt.Fprintln(w, "a request is still pending; answer it with:", again)
	default:
		if c.exists && !c.once {
			fmt.Fprintln(w, "go on with:", again)
		}
	}
}
