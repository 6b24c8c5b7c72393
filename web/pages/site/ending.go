package site

import (
	"fmt"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/web/pages/visible"
)

// EndMark is the sign of the state of a command.
func EndMark(x projections.CommandEnd) string {
	switch x.Status {
	case events.ExecutionRunning:
		return "●"
	case events.ExecutionCompleted:
		return "✓"
	}
	return "✗"
}

// EndText says in a few words how a command ended.
func EndText(x projections.CommandEnd) string {
	switch {
	case x.Status == events.ExecutionRunning:
		return "running"
	case ends[x.Status] != "":
		return ends[x.Status]
	case x.Signal != "":
		return fmt.Sprintf("exit code %d (%s)", x.ExitCode, visible.Line(x.Signal))
	case x.Error != "" && x.ExitCode == 0:
		return visible.Line(x.Error)
	}
	return fmt.Sprintf("exit code %d", x.ExitCode)
}

// ends describe why a command did not end by itself.
var ends = map[string]string{
	"refused":     "refused",
	"cancelled":   "cancelled",
	"lost":        "lost: nothing is known about its end",
	"timeout":     "stopped: it took longer than allowed",
	"memory":      "stopped: more memory than allowed",
	"processes":   "stopped: more processes than allowed",
	"file-size":   "stopped: a file larger than allowed",
	"cpu-time":    "stopped: more CPU time than allowed",
	"open-files":  "stopped: more open files than allowed",
	"output-size": "stopped: more output than allowed",

	"protected-name": "stopped: it created or changed protected files again and again",
}
