package sandbox

import (
	"sync/atomic"
	"syscall"
	"time"

	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/quarantine"
	"pocketcoder/sandbox/wire"
)

// tree is the process group of one command. macOS has no means to find other processes of a command.
type tree struct {
	label
	exec       string
	limits     limit.Limits // without effect
	shell      int
	hasMonitor bool
	exceeded   chan wire.Reason // never written
	release    func()           // frees what the isolation of the shell uses
	started    atomic.Bool
	ended      atomic.Bool
	session    *quarantine.Session // of the watch for protected names
}

func (w *Worker) addTree(exec string, l label, limits limit.Limits) (*tree, error) {
	return &tree{label: l, exec: exec, limits: limits}, nil
}

func (t *tree) attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func (t *tree) alive() []int { return nil }

func (t *tree) signal(s syscall.Signal) {
	syscall.Kill(-t.shell, s)
	if needsWake(s) {
		syscall.Kill(-t.shell, syscall.SIGCONT)
	}
}

func (t *tree) isEmpty() bool { return true }

func (t *tree) kill() {}

// listLeft returns nil, because other processes of the command cannot be found.
func (t *tree) listLeft() *wire.Left { return nil }

func (t *tree) exceededLimit(int, time.Duration) wire.Reason { return wire.Exited }

func (w *Worker) watch() {}

func (w *Worker) stopTree(*tree, wire.Reason) {}

// groups do nothing: cgroups exist on Linux only.
type groups struct{}

func (w *Worker) openGroups() (*groups, string) { return nil, "nothing but the timeout on macOS" }

func (g *groups) Close() {}
