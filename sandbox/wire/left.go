package wire

import (
	"errors"
	"slices"
)

// Left are the processes that still ran when the shell of a command had exited by itself.
type Left struct {
	Processes int      `json:"processes"`
	Programs  []string `json:"programs"`          // their names, each once, at most maxPrograms
	More      int      `json:"more,omitempty"`    // names that Programs does not hold
	Running   bool     `json:"running,omitempty"` // the processes continue to run. Otherwise they ended with the command
}

const (
	maxPrograms    = 4
	maxProgramName = 64 // bytes
)

// NewLeft returns the processes with the names of their programs, or nil if there are none.
func NewLeft(programs []string, running bool) *Left {
	if len(programs) == 0 {
		return nil
	}
	names := slices.Compact(slices.Sorted(slices.Values(programs)))
	shown := names[:min(len(names), maxPrograms)]
	left := &Left{Processes: len(programs), Programs: shown, More: len(names) - len(shown), Running: running}
	left.shorten()
	return left
}

// shorten makes each name one short line, because a command chooses the names.
func (l *Left) shorten() {
	for i, name := range l.Programs {
		l.Programs[i] = OneLine(name[:min(len(name), maxProgramName)])
	}
}

func (l *Left) validate() error {
	switch {
	case l == nil:
		return nil
	case len(l.Programs) < 1 || len(l.Programs) > maxPrograms || l.More < 0 ||
		l.Processes < len(l.Programs) || l.Processes-len(l.Programs) < l.More:
		return errors.New("the number of processes that the command left is out of range")
	}
	l.shorten()
	return nil
}
