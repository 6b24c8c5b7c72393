// Command pocketcoder starts the system, and has the commands to use a running one. Everything but the shell of
// OpenCode is in it. This package holds the table of its commands, their usage text and the exit codes.
//
// It must not know what a command does.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"

	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/cli/admin"
	"pocketcoder/cmd/program"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/netrelay"
)

const usage = `PocketCoder: a self-hosted, permission-gated AI coding assistant.

  pocketcoder up             start everything on this machine
  pocketcoder serve          run one node of several that share a NATS cluster
  pocketcoder chat [CHAT]    talk to the assistant, and decide what it may do
  pocketcoder chats          list the chats, and which of them wait for you
  pocketcoder requests       list the requests and questions that wait for a person
  pocketcoder approve ID     approve a request; deny ID [REASON] denies it
  pocketcoder login URL      act for your account at a server elsewhere; then use --server URL
  pocketcoder delegates      chats to which assistants delegate work: list, check, stop
  pocketcoder user           accounts: add, list, passwd, role, disable, enable, sessions, revoke
  pocketcoder ports          print the address of a web server that a command of a chat runs
  pocketcoder replay CHAT    show a chat from the log, as it was after any event; export it
  pocketcoder attach [CHAT]  watch the commands of a chat in tmux, and open a shell in the sandbox
  pocketcoder sandbox        inspect running commands: ps, logs, kill, shell, workers
  pocketcoder worker         run commands for a system on another machine
  pocketcoder backup DIR     copy the log to a directory, also while the system runs
  pocketcoder restore DIR    make a data directory from a backup
  pocketcoder admin          maintain an installation: rebuild, erase, nats-context, nats-config
  pocketcoder doctor         check what this machine provides, and say how to install what is missing
  pocketcoder version        print the versions of this program and of its parts

These list, show, set, enable, disable and delete what is configured:

%s
Every command explains itself with -h. All data is in one directory: --data, POCKETCODER_DATA,
or pocketcoder in $XDG_DATA_HOME (~/.local/share).
`

// groups are the commands on configuration records that have more than the verbs of every type.
var groups = []cli.Group{cli.Policies, cli.Projects, admin.Budget, admin.Agent, cli.Notes, cli.Procedures,
	cli.Schedules, admin.MCP, admin.Model, admin.Device, admin.Key, cli.Channels, cli.Pairings, cli.Targets}

// usageText is the usage with a line for each command on configuration records.
func usageText() string {
	var lines strings.Builder
	for _, g := range cli.GroupsOf(recordtype.All(recordtype.Machine{}), groups...) {
		fmt.Fprintf(&lines, "  pocketcoder %-18s %s\n", g.Name, g.Line())
	}
	return fmt.Sprintf(usage, lines.String())
}

// startMemory is the age at which a process gives back the memory of its start. Few commands of a person live so long.
const startMemory = 10 * time.Second

func main() {
	if ownFiles(os.Args[1:]) {
		program.MaskFiles()
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	// A process that stays gives back what its start took.
	time.AfterFunc(startMemory, debug.FreeOSMemory)
	env := cli.Environment{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Interactive: term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd())),
	}
	if code := exitCode(ctx, env, run(ctx, env, os.Args[1:])); code != 0 {
		os.Exit(code)
	}
}

// exitCode returns the exit code of a command that has returned err. It prints an error that the command has not
// printed.
func exitCode(ctx context.Context, env cli.Environment, err error) int {
	var code cli.ExitCode
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &code):
		return int(code)
	case errors.Is(err, cli.ErrUsage):
		return 2
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return 128 + int(syscall.SIGTERM) // the sender of the signal knows the reason
	default:
		fmt.Fprintln(env.Stderr, "pocketcoder:", err)
		return 1
	}
}

// ownFiles reports whether a command writes files of the system. A worker writes nothing but the person's files.
func ownFiles(args []string) bool {
	return len(args) == 0 || !slices.Contains([]string{"worker", "sandbox", netrelay.Name, isolation.GuardCommand},
		args[0])
}

// run is main with its surroundings as arguments.
func run(ctx context.Context, env cli.Environment, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(env.Stderr, usageText())
		return cli.ErrUsage
	}
	switch args[0] { // programs of the sandbox, which no person calls
	case netrelay.Name:
		return cli.ExitCode(netrelay.Run(args[1:], env.Stderr))
	case isolation.GuardCommand:
		return cli.ExitCode(isolation.RunGuard(ctx, args[1:], env.Stderr))
	}
	if now, ok := formerNames[args[0]]; ok {
		args = append(slices.Clone(now), args[1:]...)
	}
	command, ok := cli.RecordCommands(recordtype.All(recordtype.Machine{}), groups...)[args[0]]
	if own := map[string]cli.Command{
		"up":        cli.Up,
		"serve":     cli.Serve,
		"sandbox":   cli.Sandbox,
		"chat":      cli.Chat,
		"chats":     cli.Chats,
		"delegates": cli.Delegates,
		"user":      admin.User,
		"ports":     cli.Ports,
		"requests":  cli.Requests,
		"approve":   cli.Approve,
		"deny":      cli.Deny,
		"login":     cli.Login,
		"replay":    cli.Replay,
		"attach":    cli.Attach,
		"worker":    cli.Worker,
		"backup":    admin.Backup,
		"restore":   admin.Restore,
		"admin":     admin.Run,
		"doctor":    admin.Doctor,
		"version":   cli.Version,
	}[args[0]]; own != nil {
		command, ok = own, true
	}
	if !ok {
		switch args[0] {
		case "help", "-h", "-help", "--help":
			if args[0] == "help" && len(args) > 1 {
				return run(ctx, env, append(args[1:], "-h"))
			}
			fmt.Fprint(env.Stdout, usageText())
			return nil
		case "-version", "--version":
			return cli.Version(ctx, env, args[1:])
		}
		return cli.WrongUsage(env, "there is no command %q; see pocketcoder -h", args[0])
	}
	return command(ctx, env, args[1:])
}

// formerNames are names by which commands were called before. Scripts may still use them.
var formerNames = map[string][]string{
	"why":          {"policy", "why"},
	"transcript":   {"replay", "--follow"},
	"workers":      {"delegates"},
	"rebuild":      {"admin", "rebuild"},
	"nats-context": {"admin", "nats-context"},
	"nats-config":  {"admin", "nats-config"},
}
