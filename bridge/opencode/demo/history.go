package demo

import (
	"fmt"
	"strings"
)

// result is the result of one tool call.
type result struct {
	tool, args string
	text       string
}

// Texts with which OpenCode tells a model the result of a call, as of 1.18.33.
const (
	rejectedText    = "The user rejected permission"
	feedbackText    = "with the following feedback: "
	dismissedText   = "The user dismissed this question"
	interruptedText = "[Tool execution was interrupted]"
	abortedText     = "Tool execution aborted" // also of a call that waited when OpenCode was stopped
)

// results are those of the calls made after message index, in order. A question that was interrupted has its answer in
// the prompt that resumed the turn.
func (r request) results(index int, resume []string) []result {
	var out []result
	calls := map[string]function{}
	for _, m := range r.Messages[index:] {
		for _, c := range m.Calls {
			calls[c.ID] = c.Function
		}
		if m.Role == "tool" {
			c := calls[m.CallID]
			out = append(out, result{tool: c.Name, args: c.Arguments, text: string(m.Content)})
		}
		if last := len(out) - 1; last >= 0 && resultFollows(out[last].tool) && out[last].interrupted() && m.Role == "user" &&
			resumes(resume, userText(m)) {
			out[last].text = userText(m)
		}
	}
	return out
}

// earlierMessages counts the messages before message index that a person wrote and that are not scripts.
func (r request) earlierMessages(index int, resume []string) int {
	n := 0
	for _, m := range r.Messages[:index] {
		if text := userText(m); m.Role == "user" && !resumes(resume, text) && !isScript(text) {
			n++
		}
	}
	return n
}

func (r result) interrupted() bool {
	return strings.Contains(r.text, interruptedText) || strings.Contains(r.text, abortedText)
}

// report returns a text about the result of the call.
func (r result) report() string {
	switch {
	case strings.Contains(r.text, dismissedText):
		return "You left the question open. That is fine."
	case strings.Contains(r.text, rejectedText):
		_, reason, given := strings.Cut(r.text, feedbackText)
		if !given {
			return "You said no, so nothing happened."
		}
		return fmt.Sprintf("You said no, so nothing happened. Your reason reached me: %s. A real model would act on it.",
			quote(strings.TrimSuffix(reason, ".")))
	}
	text := strings.ReplaceAll(shorten(strings.TrimSpace(r.text), 600), "```", "'''")
	return fmt.Sprintf("The `%s` tool answered:\n\n```text\n%s\n```", r.tool, text)
}

// resultFollows reports whether the result of a call comes after an interruption in the prompt that resumes the turn.
// Such a call is not repeated.
func resultFollows(tool string) bool {
	return tool == "question" || tool == "pocketcoder_ask_person" || tool == "pocketcoder_handoff"
}
