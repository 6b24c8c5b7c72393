package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

const chatUsage = `pocketcoder chat [CHAT]: talk to the assistant, approve what it may do, and watch what it does.

  pocketcoder chat                                  a new chat
  pocketcoder chat h2k0x9c3v7m1q5z                  go on with one that "pocketcoder chats" lists
  pocketcoder chat -m "why does the build fail?"    one turn, then exit
  pocketcoder chat -m "fix it" --approve all        approve everything: for scripts
  printf 'y\nn use make instead\n' | pocketcoder chat -m "build it"    answers from a file or pipe, one per line

The chat shows what a request is for, and why no rule decided it:
  ? bash  npm test
    why: no rule allows "npm" · in /home/me/project · 8f3kq0z2m4c6x1a
Answers to a request:
  y           approve                      n           deny, and stop the turn
  e           edit the command first       n REASON    deny, and give the model the reason
  e COMMAND   approve this command instead of the requested one
  a           propose a rule that allows such requests in this chat, and show what it would have allowed so far;
              a all proposes it for every chat, a agent for this agent in every chat, a 1h for an hour
The model sees that a command was edited. Answer a question with a number, several numbers, or your own words where it
takes them; - dismisses it. An answer counts only for the request that was shown when you began to type it.

At a terminal:
  Up, Down    earlier messages (kept in the data directory, without answers)
  /help       list the slash commands: /model, /chats, /requests, /why, /undo, /redo, /abort, /quit
  //x         send a message that begins with a slash
  \           at the end of a line: the message goes on in the next line; pasted lines are one message
  Ctrl-C      stop the turn; again: leave. The turn of a chat that is left with /quit goes on.
A long output is shown with its first and last lines: "pocketcoder sandbox logs ID" prints all of it. NO_COLOR turns styles off.
In a file or pipe, only /abort and /quit are commands.

Exit status:
  0  the turn was completed        4  it was aborted
  1  it failed: see stderr         5  it was lost: OpenCode went away in the middle of it
  2  wrong usage                   6  the input ended while a request or a question waits
  3  something was denied and the turn stopped; also when more than a budget allows was denied
`

// What --approve may say.
const (
	approveAsk  = "ask"
	approveAll  = "all"
	approveNone = "none"
)

// chatOptions is what a person may choose.
type chatOptions struct {
	data    dataDir
	chat    string // empty for a new one
	message string
	once    bool // one turn with message
	approve string
	title   string
}

func chatFlags(env environment, args []string) (chatOptions, error) {
	fs := newFlags(env, "chat", chatUsage)
	data := dataFlag(fs, env)
	o := chatOptions{}
	fs.StringVar(&o.message, "m", "", "send this `text`, see the turn through, and exit")
	fs.StringVar(&o.approve, "approve", "", "`decision` about requests: ask (you decide, the default), all (approve everything) or none (deny everything); POCKETCODER_APPROVE says it for scripts and with -m")
	fs.StringVar(&o.title, "title", "", "`title` of a new chat; the beginning of the first message when empty")
	rest, err := parse(fs, args, 1)
	if err != nil {
		return o, err
	}
	o.data = dataDir(*data)
	fs.Visit(func(f *flag.Flag) { o.once = o.once || f.Name == "m" })
	if o.approve == "" {
		o.approve = approveAsk
		if o.once || !env.interactive { // a forgotten variable must not approve what a person came to decide
			o.approve = or(env, "POCKETCODER_APPROVE", approveAsk)
		}
	}
	if len(rest) == 1 {
		if o.chat, err = events.ParseID(rest[0]); err != nil {
			return o, wrongUsage(env, "chat: %v", err)
		}
	}
	switch {
	case o.approve != approveAsk && o.approve != approveAll && o.approve != approveNone:
		return o, wrongUsage(env, "chat: --approve must be ask, all or none, got %q", o.approve)
	case o.once && strings.TrimSpace(o.message) == "":
		return o, wrongUsage(env, "chat: the message is empty")
	case len(o.message) > handlers.MaxMessage:
		return o, wrongUsage(env, "chat: the message is %d bytes; the limit is %d", len(o.message), handlers.MaxMessage)
	case o.title != "" && o.chat != "":
		return o, wrongUsage(env, "chat: --title is for a new chat, and %s exists", o.chat)
	}
	return o, nil
}

func runChat(ctx context.Context, env environment, args []string) error {
	o, err := chatFlags(env, args)
	if err != nil {
		return err
	}
	s, err := connect(ctx, o.data)
	if err != nil {
		return err
	}
	defer s.close()
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT)
	defer signal.Stop(interrupts)
	code, err := chat(ctx, env, s, o, interrupts)
	if err == nil && code != exitCompleted {
		return code
	}
	return err
}

// chat is one run of the subcommand against a system.
func chat(ctx context.Context, env environment, s *system, o chatOptions, interrupts <-chan os.Signal) (exitCode, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := newConversation(env, s, o, interrupts)
	c.show.email = s.emailOf(ctx)
	after, err := c.join(ctx)
	if err != nil {
		return 0, err
	}
	c.follow(ctx, after)
	if err := c.sit(ctx, env); err != nil {
		return 0, err
	}
	defer c.leave()
	if o.once {
		if err := c.submit(ctx, o.message); err != nil {
			return 0, usageRefusal(env, err)
		}
	}
	code, err := c.run(ctx)
	if err == nil && code == exitPending && len(c.waiting) == 0 {
		code, err = c.heldExit(ctx)
	}
	c.show.finish()
	c.leave()
	if err == nil {
		c.farewell(env.stderr, code)
	}
	return code, errors.Join(usageRefusal(env, err), c.screen().err)
}

// heldExit is the exit status when messages are held and nothing waits here: more than the budget allows may have been
// denied before, in another chat too.
func (c *conversation) heldExit(ctx context.Context) (exitCode, error) {
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

// usageRefusal turns the refusal of a command that makes no sense into wrong usage.
func usageRefusal(env environment, err error) error {
	var r handlers.Refused
	if errors.As(err, &r) && r.Code == handlers.Invalid {
		return wrongUsage(env, "chat: %s", r.Text)
	}
	return err
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
func (c *conversation) sit(ctx context.Context, env environment) error {
	h, err := loadHistory(c.data.path("history"))
	if err != nil {
		return fmt.Errorf("read the history of what was typed: %w", err)
	}
	if c.terminal = newTerminal(ctx, env, h); c.terminal == nil {
		c.input = readLines(ctx, env.stdin)
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
func (c *conversation) farewell(w io.Writer, code exitCode) {
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
