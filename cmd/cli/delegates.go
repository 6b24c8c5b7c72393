package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/handlers/budget"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/projections"
)

const delegatesUsage = `pocketcoder delegates: list the chats to which assistants delegate work, print the result of one, stop one.

  pocketcoder delegates                         list the newest delegates of all chats
  pocketcoder delegates h2k0x9c3v7m1q5z         list the delegates of a chat, and those below them
  pocketcoder delegates check 8f3kq0z2m4c6x1a   print the state of one delegate, and its result
  pocketcoder delegates stop 8f3kq0z2m4c6x1a    stop a delegate, its commands, and the delegates below it

A delegate is a chat of its own: "pocketcoder chat ID" talks to it, "pocketcoder attach ID" watches its
commands. STATE is queued, running, waiting (for a person), completed, failed, aborted, lost or deleted. A deleted delegate
is listed if its git worktree or its branch was kept: "check" says where, and why. The parent is the chat that delegated
the work. It gets each result once. "pocketcoder sandbox workers" lists the programs that run commands.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func Delegates(ctx context.Context, env Environment, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "check":
			return checkDelegate(ctx, env, args[1:])
		case "stop":
			return stopDelegate(ctx, env, args[1:])
		}
	}
	return listDelegates(ctx, env, args)
}

func listDelegates(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "delegates", delegatesUsage)
	at := ServerFlags(fs, env)
	limit := fs.Int("limit", 50, "list at most this `number` of delegates")
	asJSON := fs.Bool("json", false, "print a JSON list")
	rest, err := Parse(fs, args, 1)
	if err != nil {
		return err
	}
	chat := strings.Join(rest, "")
	if _, err := events.ParseID(chat); chat != "" && err != nil {
		return WrongUsage(env, "delegates: %v", err)
	}
	if *limit < 1 || *limit > 1000 {
		return WrongUsage(env, "delegates: --limit must be 1 to 1000, got %d", *limit)
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	all, err := s.Delegates(ctx, chat, *limit)
	if err != nil {
		return err
	}
	return PrintList(env, *asJSON, all, "no assistant has delegated work",
		"DELEGATE\tSTATE\tAGENT\tCOST\tREQUESTS\tACTIVE\tBRANCH\tTITLE\tLAST LINE", delegateRow)
}

func delegateRow(w projections.Delegate) []string {
	return []string{w.ID, w.State, cmp.Or(display.OneLine(w.Agent, 20), "-"), budget.Dollars(w.Cost),
		strconv.FormatInt(w.Pending, 10), display.LocalTime(w.Active), cmp.Or(w.Branch, "-"),
		strings.Repeat("  ", int(max(0, w.Depth-1))) + display.OneLine(w.Title, 40),
		display.OneLine(cmp.Or(w.Remains(), w.Line), 60)}
}

// whichDelegate is the error if the id of the delegate is missing.
const whichDelegate = `which delegate? "pocketcoder delegates" lists them`

func checkDelegate(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "delegates check", delegatesUsage)
	at := ServerFlags(fs, env)
	asJSON := fs.Bool("json", false, "print JSON")
	id, err := ParseID(fs, args, whichDelegate)
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	w, err := s.Delegate(ctx, id)
	if err != nil {
		return err
	}
	if *asJSON {
		return PrintJSON(env.Stdout, w)
	}
	fmt.Fprintf(env.Stdout, "%s  %s  %s\n", w.ID, w.State, display.OneLine(w.Title, 80))
	if w.Directory != "" {
		fmt.Fprintln(env.Stdout, "directory:", display.OneLine(w.Directory, 200))
	}
	if w.Branch != "" {
		fmt.Fprintln(env.Stdout, "branch:", w.Branch)
	}
	if remains := w.Remains(); remains != "" {
		fmt.Fprintln(env.Stdout, display.OneLine(remains, 1000))
	}
	if w.Silent != "" {
		fmt.Fprintln(env.Stdout, "silent since:", w.Silent)
	}
	if w.Pending > 0 {
		fmt.Fprintf(env.Stdout, "%d requests or questions wait for you; answer with: pocketcoder chat %s\n", w.Pending, w.ID)
	}
	if w.Text != "" {
		fmt.Fprintf(env.Stdout, "\n%s\n", display.Exact(w.Text))
	}
	return nil
}

func stopDelegate(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "delegates stop", delegatesUsage)
	at := ServerFlags(fs, env)
	id, err := ParseID(fs, args, whichDelegate)
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.StopDelegate(ctx, id); err != nil {
		return err
	}
	fmt.Fprintln(env.Stderr, "stopped:", id)
	return nil
}
