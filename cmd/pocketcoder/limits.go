package main

import (
	"flag"
	"fmt"
	"strings"
	"time"

	"pocketcoder/sandbox/limit"
)

// commandLimits are what one command may take, as flags of the worker and of up, which hands them to its worker.
type commandLimits struct {
	limit.Limits
	timeout time.Duration
}

// limitFlags adds the flags. Each has a variable in the environment too, which the error names when it is wrong.
func limitFlags(fs *flag.FlagSet, env environment) (*commandLimits, error) {
	l := &commandLimits{limit.Default(), sandboxTimeout}
	fs.Var(&l.Memory, "memory", "most memory a command may take, such as `512MiB`; 0 is no limit (POCKETCODER_MEMORY)")
	fs.Int64Var(&l.Processes, "processes", l.Processes, "most processes and threads a command may have; 0 is no limit (POCKETCODER_PROCESSES)")
	fs.Var(&l.FileSize, "file-size", "most a command may write to one file, such as `512MiB`; 0 is no limit (POCKETCODER_FILE_SIZE)")
	fs.DurationVar(&l.CPUTime, "cpu-time", l.CPUTime, "most processor time a command may take, on all processors together; 0 is no limit (POCKETCODER_CPU_TIME)")
	fs.Int64Var(&l.OpenFiles, "open-files", l.OpenFiles, "most files a process of a command may have open; 0 is no limit (POCKETCODER_OPEN_FILES)")
	fs.DurationVar(&l.timeout, "timeout", l.timeout, "time limit of foreground commands; 0 disables it (POCKETCODER_TIMEOUT)")
	for _, name := range []string{"memory", "processes", "file-size", "cpu-time", "open-files", "timeout"} {
		variable := "POCKETCODER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if value := env.getenv(variable); value != "" {
			if err := fs.Set(name, value); err != nil {
				return nil, fmt.Errorf("%s: %w", variable, err)
			}
		}
	}
	return l, nil
}

// check names the flag that is wrong.
func (l *commandLimits) check() error {
	if l.timeout < 0 {
		return fmt.Errorf("--timeout %s: want a duration, or 0 for no limit", l.timeout)
	}
	return l.Validate()
}

// args are the flags again, for a worker.
func (l *commandLimits) args() []string {
	return []string{
		"--memory=" + l.Memory.String(), fmt.Sprint("--processes=", l.Processes), "--file-size=" + l.FileSize.String(),
		"--cpu-time=" + l.CPUTime.String(), fmt.Sprint("--open-files=", l.OpenFiles), "--timeout=" + l.timeout.String(),
	}
}
