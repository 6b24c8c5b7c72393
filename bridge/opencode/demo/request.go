package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// maxRequest bounds one request; a full context of a real conversation is some MiB.
const maxRequest = 64 << 20

// request is a decoded chat request.
type request struct {
	Model    string    `json:"model"`
	Stream   bool      `json:"stream"`
	Messages []message `json:"messages"`
	Tools    []struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	} `json:"tools"`

	session string // OpenCode names its session in a header
	size    int    // bytes
}

type message struct {
	Role    string     `json:"role"`
	Content content    `json:"content"`
	Calls   []toolCall `json:"tool_calls"`
	CallID  string     `json:"tool_call_id"`
}

// content is the text of a message. In a request it is a string, a list of parts, or null. Only parts of type text
// count.
type content string

func (c *content) UnmarshalJSON(data []byte) error {
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if len(data) == 0 || data[0] != '[' {
		return json.Unmarshal(data, (*string)(c))
	}
	if err := json.Unmarshal(data, &parts); err != nil {
		return err
	}
	var texts []string
	for _, p := range parts {
		if p.Type == "text" {
			texts = append(texts, p.Text)
		}
	}
	*c = content(strings.Join(texts, "\n"))
	return nil
}

func readRequest(w http.ResponseWriter, r *http.Request) (request, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		return request{}, fmt.Errorf("read chat request: %w", err)
	}
	req := request{session: r.Header.Get("X-Session-Id"), size: len(body)}
	if err := json.Unmarshal(body, &req); err != nil {
		return request{}, fmt.Errorf("read chat request: %w", err)
	}
	return req, nil
}

func (r request) has(tool string) bool {
	for _, t := range r.Tools {
		if t.Function.Name == tool {
			return true
		}
	}
	return false
}

func (r request) system() string {
	var b strings.Builder
	for _, m := range r.Messages {
		if m.Role == "system" {
			b.WriteString(string(m.Content))
		}
	}
	return b.String()
}

// reminder matches text that OpenCode adds to a user's message for the model, such as the rules of its plan agent.
var reminder = regexp.MustCompile(`(?s)<system-reminder>.*?</system-reminder>`)

// userText returns the text of the person, or of the model that calls a subagent. Our plugin puts a backquote before
// each @ of a subagent's prompt.
func userText(m message) string {
	return strings.TrimSpace(strings.ReplaceAll(reminder.ReplaceAllString(string(m.Content), ""), "`@", "@"))
}

// turn is the user message that is being answered.
type turn struct {
	text  string
	index int // its place in the request
	step  int // assistant messages after it, without those whose calls were interrupted

	interrupted []function // calls of the last assistant message that must be made again
}

// resumes reports whether a text is one of the prompts, or begins as one.
func resumes(prompts []string, text string) bool {
	return slices.ContainsFunc(prompts, func(p string) bool { return strings.HasPrefix(text, p) })
}

// turn finds the last user message that is not a resume prompt.
func (r request) turn(resume []string) turn {
	var t turn
	results, last := map[string]result{}, true
	for i := len(r.Messages) - 1; i >= 0; i-- {
		switch m := r.Messages[i]; m.Role {
		case "tool":
			results[m.CallID] = result{text: string(m.Content)}
		case "assistant":
			var interrupted []function
			for _, c := range m.Calls { // the prompt that resumes a question holds its answer
				if !resultFollows(c.Function.Name) && results[c.ID].interrupted() {
					interrupted = append(interrupted, c.Function)
				}
			}
			if len(interrupted) == 0 {
				t.step++
			}
			if last {
				t.interrupted, last = interrupted, false
			}
		case "user":
			t.text, t.index = userText(m), i
			if !resumes(resume, t.text) {
				return t
			}
		}
	}
	return t
}

// repeat makes the interrupted calls again. The answer to a script has no other text.
func (t turn) repeat() (s step) {
	if !isScript(t.text) {
		s = prose("I was interrupted here, so I ask again.")
	}
	for _, c := range t.interrupted {
		s = s.and(c.Name, c.Arguments)
	}
	return s
}

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
