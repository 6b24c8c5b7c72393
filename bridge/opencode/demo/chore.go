package demo

import "strings"

// Texts that identify OpenCode's own requests, as of 1.18.33.
const (
	titlePrompt     = "title generator"
	summaryPrompt   = "context summarization agent"
	compactedPrompt = "Continue if you have next steps" // a user message it adds after a compaction
)

// internalRequest answers OpenCode's own requests: a title for a chat, a summary of a long chat.
func internalRequest(req request) (step, bool) {
	if len(req.Tools) > 0 {
		return step{}, false
	}
	switch system := req.system(); {
	case strings.Contains(system, titlePrompt):
		return say(title(req.turn(nil).text)), true
	case strings.Contains(system, summaryPrompt):
		return say(summary), true
	}
	return step{}, false
}

// title returns the person's first line that is not a directive.
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
