package demo

import "strings"

// The words by which OpenCode's own requests are known, measured with 1.18.33.
const (
	saysTitle     = "title generator"
	saysSummary   = "context summarization agent"
	saysCompacted = "Continue if you have next steps" // a user message it adds after a compaction
)

// chore answers the requests OpenCode makes for itself: a title for a chat, a summary of a long one.
func chore(req request) (step, bool) {
	if len(req.Tools) > 0 {
		return step{}, false
	}
	switch system := req.system(); {
	case strings.Contains(system, saysTitle):
		return say(title(req.turn(nil).text)), true
	case strings.Contains(system, saysSummary):
		return say(summary), true
	}
	return step{}, false
}

// title is the first line the person wrote that is no directive.
func title(text string) string {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "@@") {
			return shorten(line, 50)
		}
	}
	return "Scripted demo"
}

const summary = `## Objective
- Try PocketCoder with its demo model

## Important Details
- The demo model follows a script; there is no AI behind it

## Work State
### Completed
- The conversation so far

### Active
- (none)

### Blocked
- (none)

## Next Move
1. (none)

## Relevant Files
- (none)`
