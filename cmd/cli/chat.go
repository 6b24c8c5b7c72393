package cli

import (
	"context"
	"flag"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console"
	"pocketcoder/events"
	"pocketcoder/handlers/chat"
)

const chatUsage = `pocketcoder chat [CHAT]: talk to the assistant, approve what it may do, and watch what it does.

  pocketcoder chat                                  a new chat
  pocketcoder chat h2k0x9c3v7m1q5z                  continue a chat of "pocketcoder chats"
  pocketcoder chat --continue                       continue the newest chat that is not archived
  pocketcoder chat --project web                    a chat in a project; "pocketcoder project list" lists them
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
The model sees that a command was edited. Answer a question with a number, several numbers, or your own words if it
allows them; - dismisses it. An answer counts only for the request that was shown when you began to type it.

At a terminal:
  Up, Down    earlier messages (kept in the data directory, without answers)
  /help       list the slash commands: /model, /chats, /requests, /why, /undo, /redo, /omit, /stop, /quit; Tab completes them
  //x         send a message that begins with a slash
  \           at the end of a line: the message goes on in the next line; pasted lines are one message
  Ctrl-C      stop the turn; again: leave. After /quit the turn continues.
              Messages that wait in the queue are held then. Your next message, or /queue now N, sends them.
The chat shows the first and last lines of a long output. "pocketcoder sandbox logs ID" prints all of it. NO_COLOR turns styles
off. If the input is a file or a pipe, only /stop (or /abort) and /quit are commands. /stop as the next
line stops a running turn. Any other line waits until the turn ends, or until a request or a question waits.

Exit status:
  0  the turn was completed        4  it was aborted
  1  it failed: see stderr         5  it was lost: OpenCode or the answer of the model ended in the middle of it
  2  wrong usage                   6  the input ended while a request or a question waits
  3  a request was denied without a reason (n) or a question dismissed, which stops the turn, even if another request
     waits; also if more budget was denied. With a reason (n REASON) the turn goes on, and its end counts
  7  the answer is not complete: it was cut at the model's limit of output, is empty, or a filter blocked it
`

func chatFlags(env Environment, args []string) (o console.Options, at client.Address, err error) {
	fs := NewFlags(env, "chat", chatUsage)
	address := ServerFlags(fs, env)
	fs.StringVar(&o.Message, "m", "", "send this `text`, see the turn through, and exit")
	fs.StringVar(&o.Approve, "approve", "", "`decision` about requests: ask (you decide, the default), all (approve everything except files that a command created) or none (deny everything except these); POCKETCODER_APPROVE says it for scripts and with -m")
	fs.StringVar(&o.Title, "title", "", "`title` of a new chat; if empty, OpenCode generates one from the first message")
	fs.StringVar(&o.Project, "project", "", "`name` or id of the project of a new chat; without it, the project of the current directory")
	fs.BoolVar(&o.Continue, "continue", false, "continue the newest chat that is not archived")
	rest, err := Parse(fs, args, 1)
	if err != nil {
		return o, at, err
	}
	at = *address
	o.History = at.State().Path("history")
	o.In, o.Out, o.Err, o.Interactive, o.Colours = env.Stdin, env.Stdout, env.Stderr, env.Interactive, hasColours(env)
	fs.Visit(func(f *flag.Flag) { o.Once = o.Once || f.Name == "m" })
	if o.Approve == "" {
		o.Approve = console.ApproveAsk
		if o.Once || !env.Interactive { // a forgotten variable must not approve requests in an interactive chat
			o.Approve = Variable(env, "POCKETCODER_APPROVE", console.ApproveAsk)
		}
	}
	if len(rest) == 1 {
		if o.Chat, err = events.ParseID(rest[0]); err != nil {
			return o, at, WrongUsage(env, "chat: %v", err)
		}
	}
	switch {
	case o.Approve != console.ApproveAsk && o.Approve != console.ApproveAll && o.Approve != console.ApproveNone:
		return o, at, WrongUsage(env, "chat: --approve must be ask, all or none, got %q", o.Approve)
	case o.Once && strings.TrimSpace(o.Message) == "":
		return o, at, WrongUsage(env, "chat: the message is empty")
	case len(o.Message) > chat.MaxMessage:
		return o, at, WrongUsage(env, "chat: the message is %d bytes; the limit is %d", len(o.Message), chat.MaxMessage)
	case o.Continue && (o.Chat != "" || o.Title != ""):
		return o, at, WrongUsage(env, "chat: --continue takes the newest chat; it needs no CHAT and no --title")
	case o.Project != "" && (o.Chat != "" || o.Continue):
		return o, at, WrongUsage(env, "chat: --project is for a new chat")
	case o.Title != "" && o.Chat != "":
		return o, at, WrongUsage(env, "chat: --title is for a new chat, and %s exists", o.Chat)
	}
	return o, at, nil
}

func Chat(ctx context.Context, env Environment, args []string) error {
	o, at, err := chatFlags(env, args)
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, at)
	if err != nil {
		return err
	}
	defer s.Close()
	if o.Chat == "" && !o.Continue {
		if o.Project, err = projectOf(ctx, s, at, o.Project); err != nil {
			return err
		}
	}
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, syscall.SIGINT)
	defer signal.Stop(interrupts)
	end, err := console.Run(ctx, s, o, interrupts)
	if err == nil && end != console.Completed {
		return ExitCode(end)
	}
	return invalidUsage(env, "chat", err)
}
