package site

import (
	"fmt"

	"pocketcoder/events"
	"pocketcoder/projections"
	"pocketcoder/web/pages/texts"
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
		return texts.RunningCommand
	case texts.Ends[x.Status] != "":
		return texts.Ends[x.Status]
	case x.Signal != "":
		return fmt.Sprintf(texts.EndedBySignal, x.ExitCode, visible.Line(x.Signal))
	case x.Error != "" && x.ExitCode == 0:
		return visible.Line(x.Error)
	}
	return fmt.Sprintf(texts.ExitCode, x.ExitCode)
}
