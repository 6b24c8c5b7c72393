package app

import (
	"cmp"
	"context"
	"encoding/json"
	"path/filepath"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections"
)

// findCall returns the function with which the gate looks up a tool call. OpenCode reports the call after the
// permission request, so the function can wait for it.
func findCall(model *projections.Model) func(ctx context.Context, session string, tool events.Call,
	wait time.Duration) (permission.Call, bool) {
	return func(ctx context.Context, session string, tool events.Call, wait time.Duration) (permission.Call, bool) {
		found, ok, err := model.ToolCall(ctx, session, tool.MessageID, tool.CallID)
		if wait > 0 && (!ok || found.Input == "") {
			ctx, cancel := context.WithTimeout(ctx, wait)
			defer cancel()
			found, err = model.AwaitToolCall(ctx, session, tool.MessageID, tool.CallID)
		}
		var input struct {
			Command  string `json:"command"`  // of the bash tool
			Workdir  string `json:"workdir"`  // of the bash tool: absolute, or relative to the session's directory
			FilePath string `json:"filePath"` // of read, edit, write, lsp: likewise
		}
		if err != nil || found.Input == "" || json.Unmarshal([]byte(found.Input), &input) != nil {
			return permission.Call{Tool: found.Tool, Agent: found.Agent, Chosen: found.Chosen, Several: found.Several}, false
		}
		cwd := cmp.Or(input.Workdir, found.Directory)
		if !filepath.IsAbs(cwd) {
			cwd = filepath.Join(found.Directory, cwd)
		}
		file := input.FilePath
		if file != "" && !filepath.IsAbs(file) {
			file = filepath.Join(found.Directory, file)
		}
		return permission.Call{Tool: found.Tool, Command: input.Command, Cwd: cwd, Path: file, Agent: found.Agent,
			Chosen: found.Chosen, Several: found.Several}, true
	}
}
