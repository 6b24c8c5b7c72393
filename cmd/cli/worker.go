package cli

import (
	"context"
	"errors"
	"flag"
	"time"

	"pocketcoder/cmd/app"
	"pocketcoder/cmd/datadir"
	"pocketcoder/sandbox/isolation"
)

// limitFlags adds the flags of the limits. Each has an environment variable. An error names the invalid variable.
func limitFlags(fs *flag.FlagSet, env Environment) (*app.WorkerLimits, error) {
	l := app.DefaultWorkerLimits()
	fs.Var(&l.Memory, "memory", "maximum memory of a command, a `size` such as 512MiB; 0 is no limit (POCKETCODER_MEMORY)")
	fs.Int64Var(&l.Processes, "processes", l.Processes,
		"maximum number of processes and threads of a command; 0 is no limit (POCKETCODER_PROCESSES)")
	fs.Var(&l.FileSize, "file-size", "maximum `size` of a file that a command writes, such as 512MiB; 0 is no limit (POCKETCODER_FILE_SIZE)")
	fs.DurationVar(&l.CPUTime, "cpu-time", l.CPUTime,
		"maximum processor time of a command, on all processors together; 0 is no limit (POCKETCODER_CPU_TIME)")
	fs.Int64Var(&l.OpenFiles, "open-files", l.OpenFiles,
		"maximum number of open files of one process of a command; 0 is no limit (POCKETCODER_OPEN_FILES)")
	fs.DurationVar(&l.Timeout, "timeout", l.Timeout,
		"time limit of foreground commands; 0 disables it (POCKETCODER_TIMEOUT)")
	return l, setFromEnvironment(fs, env, "memory", "processes", "file-size", "cpu-time", "open-files", "timeout")
}

const workerUsage = `pocketcoder worker: run commands for a system on another machine.

  pocketcoder worker --nats nats://10.0.0.5:4222 --key worker.nk --workspace /srv/project

A worker receives approved commands over NATS, on exec.run.<pool>, and runs them in its workspace. It needs only the worker's
key, which has no other right. "pocketcoder up" starts a worker of its own. Others can join from machines that see the same
workspace. After the first SIGTERM a worker accepts no more commands, and ends when its commands have ended. The second
SIGTERM ends the commands.
`

// sandboxCapacity is the default number of concurrent commands. The worker was measured with it.
const sandboxCapacity = 64

// sandboxDrain is slightly longer than OpenCode's default time limit of a command.
const sandboxDrain = 3 * time.Minute

// exposeFlag adds the flag --expose, which may be given several times.
func exposeFlag(fs *flag.FlagSet, expose *[]string) {
	const help = "further `directory` that can be read in the sandbox, besides the workspace and the system's programs; may be repeated"
	fs.Func("expose", help, func(s string) error {
		*expose = append(*expose, datadir.Absolute(s))
		return nil
	})
}

func Worker(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "worker", workerUsage)
	url := fs.String("nats", env.Getenv("POCKETCODER_NATS"), "`URL` of NATS (POCKETCODER_NATS)")
	key := fs.String("key", env.Getenv("POCKETCODER_KEY"), "`file` with the worker's nkey seed (POCKETCODER_KEY)")
	inPool := fs.String("pool", Variable(env, "POCKETCODER_POOL", app.Pool),
		"`pool` of workers to join (POCKETCODER_POOL)")
	workspace := fs.String("workspace", Variable(env, "POCKETCODER_WORKSPACE", "."),
		"`directory` commands run in (POCKETCODER_WORKSPACE)")
	home := fs.String("home", "", "HOME `directory` of all commands; default pocketcoder/home in your cache directory")
	quarantine := fs.String("quarantine", "",
		"`directory` for protected names that commands create; default pocketcoder/quarantine in your state directory")
	limits, err := limitFlags(fs, env)
	if err != nil {
		return WrongUsage(env, "worker: %v", err)
	}
	level := fs.String("isolation", Variable(env, "POCKETCODER_ISOLATION", isolation.Auto), IsolationHelp)
	var expose []string
	exposeFlag(fs, &expose)
	capacity := fs.Int("capacity", sandboxCapacity,
		"maximum number of commands at once; further commands go to other workers, or wait")
	drain := fs.Duration("drain", sandboxDrain, "time that running commands have to end after the first SIGTERM or SIGINT")
	lifeline := fs.Bool("lifeline", false, internalFlag+"end at once when stdin ends")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	if *url == "" || *key == "" {
		return WrongUsage(env, "worker: --nats and --key are required; see pocketcoder worker -h")
	}
	if *capacity < 1 || *drain < 0 {
		return WrongUsage(env, "worker: --capacity must be at least 1, and --drain must not be negative")
	}
	if err := limits.Check(); err != nil {
		return WrongUsage(env, "worker: %v", err)
	}
	o := app.WorkerOptions{
		NATS: *url, Key: *key, Pool: *inPool, Workspace: datadir.Absolute(*workspace), Home: *home, Quarantine: *quarantine, Isolation: *level, Expose: expose, Limits: limits,
		Capacity: *capacity, Drain: *drain, Stdout: env.Stdout, Stderr: env.Stderr,
	}
	if *lifeline {
		o.Lifeline = env.Stdin
	}
	err = app.RunWorker(ctx, o)
	if errors.Is(err, isolation.ErrUnknownLevel) {
		return WrongUsage(env, "worker: --isolation: %v", err)
	}
	if *lifeline && errors.Is(err, app.ErrWorkerUnusable) {
		return ExitCode(1) // the program that started the worker reports the reason
	}
	return err
}

const IsolationHelp = "isolation `level`: auto (the strongest that works), bwrap, landlock, container or none (POCKETCODER_ISOLATION)"
