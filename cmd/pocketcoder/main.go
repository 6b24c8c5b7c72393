// Command pocketcoder is the whole of PocketCoder but the shell that OpenCode runs: it starts the system, and talks to
// one that runs.
//
// Only this package wires: it opens the foundations (NATS, the log, the read model, listeners) in order, hands them to
// the actors, and closes them in reverse when the first actor ends. One file for each subcommand.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/term"

	"pocketcoder/sandbox/inside"
	"pocketcoder/sandbox/isolation"
)

const usage = `PocketCoder: a self-hosted, permission-gated AI coding assistant.

  pocketcoder up             start everything on this machine
  pocketcoder chat           talk to the assistant, approve what it may do
  pocketcoder chats          list chats, and mark those that wait for a person
  pocketcoder requests       list the requests and questions that wait for a person
  pocketcoder user           accounts: add, list, passwd, role, disable, enable, sessions, revoke
  pocketcoder policy         rules: allow, ask, deny, test, replay, list, pause, resume, revoke; why explains a request
  pocketcoder budget         limits on what may be spent: list, set, clear
  pocketcoder device         phones that get notifications: add, list, test, remove
  pocketcoder key            SSH keys: add, list, remove
  pocketcoder ports CHAT PORT  print the address of a web server that a chat's command runs
  pocketcoder replay CHAT    show a chat again, from the log; --follow what its commands print
  pocketcoder attach [CHAT]  look into the sandbox while commands run, and open a shell there
  pocketcoder sandbox        inspect running commands: ps, logs, kill, shell, workers
  pocketcoder worker         run commands for a system elsewhere
  pocketcoder admin          maintain an installation: rebuild, nats-context, nats-config
  pocketcoder doctor         check what this machine has, and say how to get the rest
  pocketcoder version

Every command explains itself with -h. Everything is kept in one data directory: --data, POCKETCODER_DATA,
or pocketcoder in $XDG_DATA_HOME (~/.local/share).
`

// environment is what surrounds a run of the program.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	interactive    bool // stdin and stdout are a terminal
}

// exitCode ends the program with that status and no message: what there was to say was said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// launcher starts a program with the file mode mask that this process was started with: what it writes is the person's.
// It is empty in tests that call app.
var launcher []string

// maskFiles makes each file of this process one for its owner alone. A worker writes nothing but the person's files.
func maskFiles(args []string) {
	if len(args) > 0 && (args[0] == "worker" || args[0] == "sandbox" || args[0] == inside.Name || args[0] == isolation.LinksName) {
		return
	}
	launcher = []string{"/bin/sh", "-c", `umask "$0" && exec "$@"`, fmt.Sprintf("%04o", syscall.Umask(0o077))}
}

func main() {
	maskFiles(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	env := environment{os.Stdin, os.Stdout, os.Stderr, os.Getenv, term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stdout.Fd()))}
	err := app(ctx, env, os.Args[1:])
	var code exitCode
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &code):
		os.Exit(int(code))
	case errors.Is(err, errUsage):
		os.Exit(2)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		os.Exit(128 + int(syscall.SIGTERM)) // whoever sent it knows why
	default:
		fmt.Fprintln(os.Stderr, "pocketcoder:", err)
		os.Exit(1)
	}
}

// errUsage is what wrong arguments end with; the flag set has said what was wrong.
var errUsage = errors.New("wrong usage")

// app is main with its surroundings as arguments.
func app(ctx context.Context, env environment, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(env.stderr, usage)
		return errUsage
	}
	switch args[0] { // programs of the sandbox, which no person calls
	case inside.Name:
		return exitCode(inside.Run(args[1:], env.stderr))
	case isolation.LinksName:
		return exitCode(isolation.RunLinks(args[1:], env.stderr))
	}
	if now, ok := formerNames[args[0]]; ok {
		args = append(slices.Clone(now), args[1:]...)
	}
	run, ok := map[string]func(context.Context, environment, []string) error{
		"up":       runUp,
		"sandbox":  runSandboxCommand,
		"chat":     runChat,
		"chats":    runChats,
		"user":     runUser,
		"budget":   runBudget,
		"policy":   runPolicy,
		"device":   runDevice,
		"key":      runKey,
		"ports":    runPorts,
		"requests": runRequests,
		"replay":   runReplay,
		"attach":   runAttach,
		"worker":   runWorker,
		"admin":    runAdmin,
		"doctor":   runDoctor,
		"version":  runVersion,
	}[args[0]]
	if !ok {
		switch args[0] {
		case "help", "-h", "-help", "--help":
			if args[0] == "help" && len(args) > 1 {
				return app(ctx, env, append(args[1:], "-h"))
			}
			fmt.Fprint(env.stdout, usage)
			return nil
		}
		fmt.Fprintf(env.stderr, "pocketcoder: there is no command %q\n\n%s", args[0], usage)
		return errUsage
	}
	return run(ctx, env, args[1:])
}

// parse reads the arguments; flags may stand before, between and behind the others, which are returned.
func parse(fs *flag.FlagSet, args []string, most int) ([]string, error) {
	var rest []string
	for {
		if err := fs.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return nil, err
			}
			return nil, errUsage
		}
		if fs.NArg() == 0 {
			break
		}
		rest, args = append(rest, fs.Arg(0)), fs.Args()[1:]
	}
	if data := fs.Lookup("data"); data != nil && data.Value.String() == "" {
		fmt.Fprintf(fs.Output(), "%s: HOME is not set; name the data directory with --data or POCKETCODER_DATA\n", fs.Name())
		return nil, errUsage
	}
	if len(rest) > most {
		fmt.Fprintf(fs.Output(), "%s: unexpected argument %q\n", fs.Name(), rest[most])
		return nil, errUsage
	}
	return rest, nil
}

// or gives the value of an environment variable, or a default.
func or(env environment, name, otherwise string) string {
	if v := env.getenv(name); v != "" {
		return v
	}
	return otherwise
}

// dataFlag is --data, which every subcommand takes.
func dataFlag(fs *flag.FlagSet, env environment) *string {
	standard := ""
	switch data, home := env.getenv("XDG_DATA_HOME"), env.getenv("HOME"); {
	case data != "":
		standard = filepath.Join(data, "pocketcoder")
	case home != "":
		standard = filepath.Join(home, ".local", "share", "pocketcoder")
	}
	return fs.String("data", or(env, "POCKETCODER_DATA", standard), "data `directory` (POCKETCODER_DATA)")
}
