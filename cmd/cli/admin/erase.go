package admin

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/datadir"
	"pocketcoder/cmd/erase"
	"pocketcoder/events"
)

const eraseUsage = `pocketcoder admin erase CHAT: permanently remove the text of a chat from the log. Stop "up" first.

  pocketcoder admin erase h2k0x9c3v7m1q5z              asks for the chat's id again
  pocketcoder admin erase h2k0x9c3v7m1q5z --yes        for scripts
  pocketcoder admin erase h2k0x9c3v7m1q5z --delegates    erase the delegates of the chat, too
  pocketcoder replay h2k0x9c3v7m1q5z                   afterwards: erased by an operator, SHA-256 …

It writes a new log. A mark with size and SHA-256 replaces the bodies of the chat's events, its streaming fragments, and the outputs,
artifacts and large bodies that no other chat names. Sequences, stored times, headers and all other chats stay. It reads the new log
back before it removes the old one. The disk needs room for both. If it is interrupted, run it again.

Also removed: the read models, which the next start computes again; the chat's sessions in OpenCode's database; OpenCode's log files.

Not removed:
  the workspace, and what commands wrote to their home directory
  the copy of a forked chat: erase that chat too
  delegates, unless you name --delegates: their ids are printed
  rules, prompts and other records that were made from the chat
  OpenCode's snapshots of workspace files and its files with long tool outputs (opencode/data/opencode/snapshot, tool-output)
  what was typed at a terminal (the file history in the data directory)
  notifications that phones received, and what the model provider stored
  backups that were made before: make a new one, then delete them
  the old bytes on the disk, which the file system may keep until it reuses their space

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func runErase(ctx context.Context, env cli.Environment, args []string) error {
	fs := cli.NewFlags(env, "admin erase", eraseUsage)
	data := cli.DataFlag(fs, env)
	yes := fs.Bool("yes", false, "do not ask")
	delegates := fs.Bool("delegates", false, "also erase the delegates of the chat")
	cli.FormerFlag(fs, "workers", "delegates")
	asJSON := fs.Bool("json", false, "print JSON")
	chat, err := cli.ParseID(fs, args, `which chat? "pocketcoder chats" lists them while the system runs`)
	if err != nil {
		return err
	}
	if !*yes {
		if err := confirm(env, chat); err != nil {
			return err
		}
	}
	e := eraser{env: env, data: datadir.Dir(datadir.Absolute(*data)), delegates: *delegates}
	if err := e.erase(ctx, chat); err != nil {
		return err
	}
	if !*asJSON {
		return e.print()
	}
	for _, r := range e.done {
		if err := cli.PrintJSON(env.Stdout, r); err != nil {
			return err
		}
	}
	return nil
}

// eraser erases a chat, and its delegates if delegates is set.
type eraser struct {
	env       cli.Environment
	data      datadir.Dir
	delegates bool
	done      []erase.Result
	took      []time.Duration
}

// erase erases a chat before its delegates, which name it: if it is interrupted, the next run finds them.
func (e *eraser) erase(ctx context.Context, chat string) error {
	steps := &steps{env: e.env}
	began := time.Now()
	result, err := erase.Run(ctx, erase.Options{
		Data: e.data, Chat: chat, Actor: events.UserActor("operator"), Progress: steps.show,
		Command: fmt.Sprintf("pocketcoder admin erase %s --yes --data %s", chat, e.data),
	})
	steps.end()
	if err != nil {
		return err
	}
	e.done, e.took = append(e.done, result), append(e.took, time.Since(began))
	if !e.delegates {
		return nil
	}
	for _, delegate := range result.Delegates {
		if err := e.erase(ctx, delegate); err != nil {
			return err
		}
	}
	return nil
}

func (e *eraser) print() error {
	var text strings.Builder
	for i, r := range e.done {
		fmt.Fprintf(&text, "erased chat %s: %d events, %d fragments, %d large contents, %d sessions of OpenCode, in %s\n",
			r.Chat, r.Events, r.Deltas, r.Blobs, r.Sessions, e.took[i].Round(time.Millisecond))
		if !e.delegates && len(r.Delegates) > 0 {
			fmt.Fprintf(&text, "its delegates still hold their text: %s\nerase them with: pocketcoder admin erase --delegates %s\n",
				strings.Join(r.Delegates, ", "), r.Chat)
		}
	}
	text.WriteString("backups that were made before still hold the text\n")
	_, err := fmt.Fprint(e.env.Stdout, text.String())
	return err
}

func confirm(env cli.Environment, chat string) error {
	if !env.Interactive {
		return cli.WrongUsage(env, "admin erase: an erasure cannot be undone; confirm with --yes")
	}
	fmt.Fprintf(env.Stderr, "This cannot be undone. Type the chat's id to erase its text: ")
	line, err := bufio.NewReader(env.Stdin).ReadString('\n')
	if err == nil && strings.TrimSpace(line) != chat {
		err = errors.New("that is not the chat's id; nothing was erased")
	}
	return err
}
