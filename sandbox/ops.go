package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/quarantine"
	"pocketcoder/sandbox/wire"
)

// Handle carries out a request. It is the handler for wire.Serve.
func (w *Worker) Handle(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	if r.Op == wire.Run {
		return w.Exec(ctx, r, stdout, stderr)
	}
	began := time.Now()
	result := wire.Result{}
	if err := w.handleOther(ctx, r, stdout, stderr, &result); err != nil {
		result = wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: err.Error()}
		if ctx.Err() != nil {
			result.Reason = wire.Cancelled
		}
	}
	result.DurationMS = time.Since(began).Milliseconds()
	return result
}

func (w *Worker) handleOther(ctx context.Context, r wire.Request, stdout, stderr io.Writer, result *wire.Result) error {
	if r.Workspace != "" && !w.Serves(r.Workspace) {
		return fmt.Errorf("workspace %s is not this worker's, which is %s", r.Workspace, w.config.Workspace)
	}
	switch r.Op {
	case wire.Changes:
		return listChanges(ctx, w.workspace, r.Since, stdout)
	case wire.Read:
		return readFile(w.workspace, r.Path, stdout)
	case wire.Dial:
		return w.dial(ctx, r, stdout, stderr)
	case wire.Keep:
		return w.quarantine.Keep(r.Item)
	case wire.Dismiss:
		return w.quarantine.Dismiss(r.Item)
	case wire.Report:
		result.Quarantined = w.sessionOf(r.Exec).Report()
		return nil
	case wire.Expect:
		return w.quarantine.Expect(r.Path)
	}
	return fmt.Errorf("op %q is unknown", r.Op)
}

// sessionOf returns the session of a command, nil if none of its processes is left.
func (w *Worker) sessionOf(exec string) *quarantine.Session {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.trees {
		if t.exec == exec {
			return t.session
		}
	}
	return nil
}

// Serves reports whether commands of a workspace run here. The workspace may be named by the path given to Open or by
// its real path.
func (w *Worker) Serves(workspace string) bool {
	return filepath.Clean(workspace) == filepath.Clean(w.config.Workspace) || workspace == w.workspace
}

// Holds reports whether a quarantined item is here.
func (w *Worker) Holds(item string) bool { return w.quarantine.Holds(item) }

// Info describes the worker for wire.Workers. The caller adds its capacity.
func (w *Worker) Info() wire.WorkerInfo {
	host, _ := os.Hostname()
	return wire.WorkerInfo{
		Name: fmt.Sprintf("%s-%d", host, os.Getpid()), Workspace: w.workspace,
		Isolation: string(w.config.Isolation.Level), Reason: w.config.Isolation.Reason,
		Apart: w.config.Isolation.Level == isolation.Bwrap && !w.config.Isolation.SharesLoopback,
	}
}
