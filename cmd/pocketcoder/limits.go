package main

import (
	"fmt"
	"time"

	"pocketcoder/sandbox/limit"
)

// commandLimits are what one command may take. The system hands them to its worker.
type commandLimits struct {
	limit.Limits
	timeout time.Duration
}

// defaultLimits are the limits that nobody has changed.
func defaultLimits() *commandLimits { return &commandLimits{limit.Default(), sandboxTimeout} }

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

// sandboxTimeout ends a command that nobody ended. OpenCode gives up on one after two minutes unless told otherwise.
const sandboxTimeout = time.Hour
