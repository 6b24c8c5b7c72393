package cli

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/cmd/printable"
	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/worker"
	"pocketcoder/money"
	"pocketcoder/projections"
)

const workersUsage = `pocketcoder workers: list the workers to which the assistants of chats delegate work, print the result of one, stop one.

  pocketcoder workers                          list the newest workers of all chats
  pocketcoder workers h2k0x9c3v7m1q5z          list the workers of a chat, and those below them
  pocketcoder workers check 8f3kq0z2m4c6x1a    print the state of one worker, and its result
  pocketcoder workers stop 8f3kq0z2m4c6x1a     stop a worker, its commands, and the workers below it

A worker is a chat of its own: "pocketcoder chat ID" talks to it, "pocketcoder attach ID" watches its
commands. STATE is queued, running, waiting (for a person), completed, failed, aborted, lost or deleted. A deleted worker
is listed if its git worktree or its branch was kept: "check" says where, and why. The parent is the chat that delegated
the work. It gets each result once. "pocketcoder sandbox workers" lists the programs that run commands.

Exit status: 0; 1 when it failed, 2 for wrong usage.
`

func Workers(ctx context.Context, env Environment, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "check":
			return checkWorker(ctx, env, args[1:])
		case "stop":
			return stopWorker(ctx, env, args[1:])
		}
	}
	return listWorkers(ctx, env, args)
}

func listWorkers(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "workers", workersUsage)
	data := DataFlag(fs, env)
	limit := fs.Int("limit", 50, "list at most this `number` of workers")
	asJSON := fs.Bool("json", false, "print a JSON list")
	rest, err := Parse(fs, args, 1)
	if err != nil {
		return err
	}
	chat := strings.Join(rest, "")
	if _, err := events.ParseID(chat); chat != "" && err != nil {
		return WrongUsage(env, "workers: %v", err)
	}
	if *limit < 1 || *limit > 1000 {
		return WrongUsage(env, "workers: --limit must be 1 to 1000, got %d", *limit)
	}
	var all []projections.Worker
	if err := queryNow(ctx, *data, "workers", map[string]any{"chat": chat, "limit": *limit}, &all); err != nil {
		return err
	}
	return PrintList(env, *asJSON, all, "no assistant has delegated work",
		"WORKER\tSTATE\tAGENT\tCOST\tREQUESTS\tACTIVE\tBRANCH\tTITLE\tLAST LINE", workerRow)
}

func workerRow(w projections.Worker) []string {
	return []string{w.ID, w.State, cmp.Or(printable.OneLine(w.Agent, 20), "-"), money.Text(w.Cost),
		strconv.FormatInt(w.Pending, 10), printable.LocalTime(w.Active), cmp.Or(w.Branch, "-"),
		strings.Repeat("  ", int(max(0, w.Depth-1))) + printable.OneLine(w.Title, 40),
		printable.OneLine(cmp.Or(w.Remains(), w.Line), 60)}
}

// whichWorker is the error if the id of the worker is missing.
const whichWorker = `which worker? "pocketcoder workers" lists them`

func checkWorker(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "workers check", workersUsage)
	data := DataFlag(fs, env)
	asJSON := fs.Bool("json", false, "print JSON")
	id, err := ParseID(fs, args, whichWorker)
	if err != nil {
		return err
	}
	var w projections.WorkerDetail
	if err := queryNow(ctx, *data, "worker", map[string]any{"chat": id}, &w); err != nil {
		return err
	}
	if *asJSON {
		return PrintJSON(env.Stdout, w)
	}
	fmt.Fprintf(env.Stdout, "%s  %s  %s\n", w.ID, w.State, printable.OneLine(w.Title, 80))
	if w.Directory != "" {
		fmt.Fprintln(env.Stdout, "directory:", printable.OneLine(w.Directory, 200))
	}
	if w.Branch != "" {
		fmt.Fprintln(env.Stdout, "branch:", w.Branch)
	}
	if remains := w.Remains(); remains != "" {
		fmt.Fprintln(env.Stdout, printable.OneLine(remains, 1000))
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

func stopWorker(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "workers stop", workersUsage)
	data := DataFlag(fs, env)
	id, err := ParseID(fs, args, whichWorker)
	if err != nil {
		return err
	}
	s, err := client.Connect(ctx, datadir.Dir(*data))
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Do(ctx, "worker.stop", worker.Stop{Worker: id}); err != nil {
		return err
	}
	fmt.Fprintln(env.Stderr, "stopped:", id)
	return nil
}

// queryNow queries the running system, and includes all events of the log.
func queryNow(ctx context.Context, data, name string, args map[string]any, out any) error {
	s, err := client.Connect(ctx, datadir.Dir(data))
	if err != nil {
		return err
	}
	defer s.Close()
	return s.QueryNow(ctx, name, args, out)
}
