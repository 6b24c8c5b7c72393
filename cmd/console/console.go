// Package console is the terminal client of a chat, for a person or a script. It shows the events of the chat, reads
// decisions and answers, and sends messages. It reports how the last turn ended as an exit status (End). The read model
// says whose turn it is.
//
// Promises: one goroutine handles everything, so events, input and output keep their order. An answer applies only to
// the request that was shown when the person began to type it. The terminal is restored however the conversation ends.
//
// It must not know flags, environment variables or the data directory.
package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/cmd/console/terminal"
	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
	"pocketcoder/projections/turnstate"
)

// How permission requests are answered: the person decides each one, all are approved, or all are denied.
const (
	ApproveAsk  = "ask"
	ApproveAll  = "all"
	ApproveNone = "none"
)

// Options are the settings of a conversation.
type Options struct {
	Chat     string // empty for a new one
	Continue bool   // the newest chat that is not archived instead of a new one
	Message  string
	Once     bool // one turn with message
	Approve  string
	Title    string // of a new chat; empty to have one generated
	Project  string // of a new chat; empty to have the server choose one
	History  string // path of the file with the lines that were typed at a terminal

	In          io.Reader
	Out, Err    io.Writer
	Interactive bool // in and out are a terminal
	Colours     bool
}

// Run holds a conversation until it is over, and returns how its last turn ended. An interrupt stops the turn, and a
// second one ends the conversation.
func Run(ctx context.Context, s *client.System, o Options, interrupts <-chan os.Signal) (End, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := newConversation(s, o, interrupts)
	c.show.Email = s.EmailOf(ctx)
	if o.Continue {
		if err := c.chooseNewest(ctx); err != nil {
			return 0, err
		}
	}
	after, err := c.join(ctx)
	if err != nil {
		return 0, err
	}
	if c.exists {
		c.follow(ctx, after)
	}
	if err := c.openInput(ctx); err != nil {
		return 0, err
	}
	defer c.leave()
	if c.terminal != nil && !o.Once {
		c.show.Note("", render.Dim, greeting)
	}
	if err := c.joinDelegates(ctx); err != nil {
		return 0, err
	}
	if o.Once {
		if err := c.submit(ctx, o.Message); err != nil {
			return 0, err
		}
	}
	code, err := c.run(ctx)
	if err == nil && code == Pending && len(c.pending) == 0 {
		_, err = c.readHeld(ctx) // more budget may have been denied in another chat
		code = c.turn.end()
	}
	c.show.Finish()
	c.leave()
	if err == nil {
		err = c.printEnd(ctx, code)
	}
	return code, errors.Join(err, c.show.Err)
}

// greeting is the first line at a terminal.
const greeting = "Write what should be done, and press Enter. /help lists the commands."

// chooseNewest makes the chat with the newest activity that is not archived the chat of the conversation.
func (c *conversation) chooseNewest(ctx context.Context) error {
	newest, err := c.NewestChat(ctx, "")
	if err != nil {
		return err
	}
	if newest.ID == "" {
		return errors.New("there is no chat to continue; start one with: pocketcoder chat")
	}
	c.Chat = newest.ID
	return nil
}

// join finds the chat, or names a new one, and returns the sequence after which to read. Of an existing chat it shows
// the last turn and the pending requests again.
func (c *conversation) join(ctx context.Context) (after uint64, err error) {
	if c.exists = c.Chat != ""; !c.exists {
		c.Chat, c.caughtUp = events.NewID(), true
		return 0, nil
	}
	row, err := c.FindChat(ctx, c.Chat)
	if err != nil {
		return 0, err
	}
	c.turn.Session, c.working = row.Session, row.Turn == projections.TurnAssistant
	if err := c.joinPending(ctx); err != nil {
		return 0, err
	}
	var sessions []events.Event // that say the directory of the chat's own session, and which are its subagents
	submitted := uint64(0)      // sequence of the last message
	c.joined, err = c.Fold(ctx, c.Chat, 0, func(e events.Event, _ []byte) error {
		switch typ, _ := e.Subject.OpenCodeType(); {
		case e.Subject.Kind == (events.MessageSubmitted{}).Kind():
			submitted = e.Seq
		case e.Subject.Kind == (events.SessionBound{}).Kind() || typ == "session.created":
			sessions = append(sessions, e)
		}
		return nil
	})
	if after = c.joined; submitted > 0 && (c.working || !c.Once) {
		after = submitted - 1
	}
	c.shown = after
	w := c.show.Out
	c.show.Out = io.Discard // these events are not shown
	for _, e := range sessions {
		if e.Seq <= after || e.Subject.Kind == (events.SessionBound{}).Kind() {
			c.show.Event(e)
		}
	}
	c.show.Out = w
	return after, err
}

// openInput begins to read stdin, at a terminal with an editable line.
func (c *conversation) openInput(ctx context.Context) error {
	h, err := terminal.LoadHistory(c.History)
	if err != nil {
		return fmt.Errorf("read the history of what was typed: %w", err)
	}
	if c.terminal = terminal.Open(ctx, c.In, c.Out, c.Interactive, h); c.terminal == nil {
		c.input, c.scriptAborts = readLines(ctx, c.In)
		return nil
	}
	c.show.Out, c.show.Columns, c.show.Fold = c.terminal, c.terminal.Columns, shownOutput
	c.input = c.terminal.Lines()
	return nil
}

// shownOutput is how many lines of a command's output are shown at a terminal before it is folded.
const shownOutput = 20

func (c *conversation) leave() {
	if c.terminal != nil {
		c.terminal.Close()
		c.terminal = nil
	}
}

// lines delivers the lines of stdin and its end.
type lines <-chan terminal.Line

// readLines reads lines until stdin ends. A line that ends with a backslash continues in the next. If the next line is
// /stop, aborts can be received instead of it, also during a turn, when out is not read.
func readLines(ctx context.Context, r io.Reader) (out chan terminal.Line, aborts chan bool) {
	out, aborts = make(chan terminal.Line), make(chan bool)
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
				var stop chan bool
				if isStop(whole) {
					stop = aborts
				}
				select {
				case out <- terminal.Line{Text: whole}:
				case stop <- true:
				case <-ctx.Done():
					return
				}
			}
			if whole = ""; err != nil {
				return
			}
		}
	}()
	return out, aborts
}

// printEnd reports on stderr an end that is not the usual one.
func (c *conversation) printEnd(ctx context.Context, code End) error {
	w := c.Err
	command := "pocketcoder chat " + c.Chat
	switch code {
	case Failed:
		text, err := c.failure(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintln(w, "the turn failed:", display.OneLine(text, 500))
	case Denied:
		fmt.Fprintln(w, "it was denied, and the turn stopped; go on with:", command)
	case Aborted:
		fmt.Fprintln(w, "the turn was aborted; go on with:", command)
	case Lost:
		fmt.Fprintln(w, turnstate.EndLost.Sentence(), "Go on with:", command)
	case Incomplete:
		fmt.Fprintln(w, c.turn.Ending.Sentence(), "Go on with:", command)
	case Pending:
		fmt.Fprintln(w, "a request is still pending; answer it with:", command)
	default:
		if c.exists && !c.Once {
			fmt.Fprintln(w, "go on with:", command)
		}
	}
	return nil
}
