package app

import (
	"fmt"
	"time"

	"pocketcoder/sandbox/limit"
)

// WorkerLimits are the limits of one command. The system passes them to its worker.
type WorkerLimits struct {
	limit.Limits
	Timeout time.Duration
}

// DefaultWorkerLimits returns the limits of a worker that is started without flags.
func DefaultWorkerLimits() *WorkerLimits { return &WorkerLimits{limit.Default(), sandboxTimeout} }

// Check returns an error that names the first invalid flag.
func (l *WorkerLimits) Check() error {
	if l.Timeout < 0 {
		return fmt.Errorf("--timeout %s: want a duration, or 0 for no limit", l.Timeout)
	}
	return l.Validate()
}

// Args returns the limits as flags of the worker command.
func (l *WorkerLimits) Args() []string {
	return []string{
		"--memory=" + l.Memory.String(), fmt.Sprint("--processes=", l.Processes), "--file-size=" + l.FileSize.String(),
		"--cpu-time=" + l.CPUTime.String(), fmt.Sprint("--open-files=", l.OpenFiles), "--timeout=" + l.Timeout.String(),
	}
}

// sandboxTimeout is the default time limit of a command. OpenCode itself stops waiting after two minutes by default.
const sandboxTimeout = time.Hour
