package exec

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/sandbox/wire"
)

// ownLimit bounds a script of PocketCoder's own.
const ownLimit = 2 * time.Minute

// RunOwn runs a script of PocketCoder's own in a directory of the workspace, in the sandbox and without network. It
// returns the output. The script belongs to no chat and runs without a permission decision, so it must run nothing that
// a model chooses. If the script fails or takes too long, RunOwn returns a refusal with the reason.
func (x *Executions) RunOwn(ctx context.Context, directory, script string) (string, error) {
	var stdout, stderr bytes.Buffer
	result, err := wire.Call(ctx, x.Conn, wire.RunSubject(x.Pool), wire.Request{Exec: events.NewID(), Command: script,
		Cwd: directory, Workspace: x.Workspace, TimeoutMS: ownLimit.Milliseconds(), ManagesWorktrees: true}, &stdout, &stderr)
	switch {
	case err != nil:
		return "", fmt.Errorf("run a script in the sandbox: %w", err)
	case result.Reason == wire.TimedOut:
		return "", handlers.Refuse(handlers.Conflict, "it took longer than %s", ownLimit)
	case result.Reason != wire.Exited:
		return "", fmt.Errorf("run a script in the sandbox: %s %s", result.Reason, result.Error)
	case result.ExitCode != 0:
		text := strings.ToValidUTF8(strings.Join(strings.Fields(stderr.String()), " "), "?")
		return "", handlers.Refuse(handlers.Conflict, "%s", cmp.Or(text, "the script failed"))
	}
	return stdout.String(), nil
}
