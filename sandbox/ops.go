package sandbox

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"pocketcoder/sandbox/files"
	"pocketcoder/sandbox/wire"
)

// Handle does what a request asks for: it is the handler for wire.Serve.
func (w *Worker) Handle(ctx context.Context, r wire.Request, stdout, stderr io.Writer) wire.Result {
	if r.Op == wire.Run {
		return w.Exec(ctx, r, stdout, stderr)
	}
	began := time.Now()
	result := wire.Result{}
	if err := w.other(ctx, r, stdout, stderr); err != nil {
		result = wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: err.Error()}
		if ctx.Err() != nil {
			result.Reason = wire.Cancelled
		}
	}
	result.DurationMS = time.Since(began).Milliseconds()
	return result
}

func (w *Worker) other(ctx context.Context, r wire.Request, stdout, stderr io.Writer) error {
	if r.Workspace != "" && !w.Serves(r.Workspace) {
		return fmt.Errorf("workspace %s is not this worker's, which is %s", r.Workspace, w.config.Workspace)
	}
	switch r.Op {
	case wire.Changes:
		return files.Changes(ctx, w.workspace, r.Since, stdout)
	case wire.Read:
		return files.Read(w.workspace, r.Path, stdout)
	case wire.Dial:
		return w.dial(ctx, r, stdout, stderr)
	}
	return fmt.Errorf("op %q is unknown", r.Op)
}

// Serves says whether commands of a workspace run here: it may be named as it was given to Open or by its real path.
func (w *Worker) Serves(workspace string) bool {
	return filepath.Clean(workspace) == filepath.Clean(w.config.Workspace) || workspace == w.workspace
}

// Info is what the worker says of itself to wire.Workers; how many commands it takes is for its caller to add.
func (w *Worker) Info() wire.WorkerInfo {
	host, _ := os.Hostname()
	return wire.WorkerInfo{
		Name: fmt.Sprintf("%s-%d", host, os.Getpid()), Workspace: w.workspace,
		Isolation: string(w.config.Isolation.Level), Reason: w.config.Isolation.Reason,
	}
}
