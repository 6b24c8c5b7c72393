package worker

import (
	"fmt"
	"time"

	"pocketcoder/sandbox/limit"
)

// Limits are what one command may take. The system hands them to its worker.
type Limits struct {
	limit.Limits
	Timeout time.Duration
}

// DefaultLimits are the limits that nobody has changed.
func DefaultLimits() *Limits { return &Limits{limit.Default(), sandboxTimeout} }

// Check names the flag that is wrong.
func (l *Limits) Check() error {
	if l.Timeout < 0 {
		return fmt.Errorf("--timeout %s: want a duration, or 0 for no limit", l.Timeout)
	}
	return l.Validate()
}

// Args are the flags again, for a worker.
func (l *Limits) Args() []string {
	return []string{
		"--memory=" + l.Memory.String(), fmt.Sprint("--processes=", l.Processes), "--file-size=" + l.FileSize.String(),
		"--cpu-time=" + l.CPUTime.String(), fmt.Sprint("--open-files=", l.OpenFiles), "--timeout=" + l.Timeout.String(),
	}
}

// sandboxTimeout ends a command that nobody ended. OpenCode gives up on one after two minutes unless told otherwise.
const sandboxTimeout = time.Hour
