package demo

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

const resume = "Please go on."

// person starts a chat as OpenCode does.
func person(text any) chat {
	system := "You are opencode.\n<env>\n  Working directory: /home/me/my project\n  Platform: linux\n</env>"
	return chat{Stream: true}.add("system", system).add("user", text).with("bash", "write", "glob", "question")
}

func arg(a answer, name string) string {
	var args map[string]string
	if len(a.calls) != 1 || json.Unmarshal([]byte(a.calls[0].Function.Arguments), &args) != nil {
		return ""
	}
	return args[name]
}

func TestTourShowsACommandAndAFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{Provider: "Set KEY."})
	c := person("what is this?")
	a := s.send(t.Context(), c)
	expect.Contains(t, a.text, "“what is this?”")
	expect.Contains(t, a.text, "demo model")
	is.True(len(a.deltas) > 5) // streamed
	is.Equal(arg(a, "command"), "uname -a && date")

	c = c.addAnswer(a, "Linux here")
	a = s.send(t.Context(), c)
	expect.Contains(t, a.text, "Linux here")
	is.Equal(a.calls[0].Function.Name, "write")
	is.Equal(arg(a, "filePath"), "/home/me/my project/pocketcoder-demo.md")

	a = s.send(t.Context(), c.addAnswer(a, "Wrote file successfully."))
	expect.Contains(t, a.text, "Set KEY.")
	is.Equal(len(a.calls), 0)
}

func TestTourReactsToARejectionAndItsReason(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	c := person("hi")
	a := s.send(t.Context(), c)
	a = s.send(t.Context(), c.addAnswer(a, "The user rejected permission to use this specific tool call with the following feedback: not today."))
	expect.Contains(t, a.text, "You said no")
	expect.Contains(t, a.text, "“not today”")
	is.Equal(a.calls[0].Function.Name, "write")
}

func TestInterruptedTourRepeatsTheCall(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{Continue: []string{resume}})
	c := person("hi")
	first := s.send(t.Context(), c)
	c = c.addAnswer(first, "[Tool execution was interrupted]").add("user", resume)
	repeated := s.send(t.Context(), c)
	expect.Contains(t, repeated.text, "interrupted")
	is.Equal(repeated.calls[0].Function, first.calls[0].Function) // byte for byte
	is.True(repeated.calls[0].ID != first.calls[0].ID)
	is.Equal(s.send(t.Context(), c.addAnswer(repeated, "Linux")).calls[0].Function.Name, "write") // and goes on
}

func TestInterruptedQuestionIsAnsweredByThePrompt(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	for _, interrupted := range []string{"[Tool execution was interrupted]", "Tool execution aborted"} { // killed, stopped
		s := open(t, &Model{Continue: []string{"Here is your answer:"}})
		c := person("one").add("assistant", "done").add("user", "two").add("assistant", "done").add("user", "three")
		first := s.send(t.Context(), c)
		is.Equal(first.calls[0].Function.Name, "question")
		c = c.addAnswer(first, interrupted).add("user", "Here is your answer: Just watch")
		a := s.send(t.Context(), c)
		is.Equal(len(a.calls), 0) // it does not ask again
		expect.Contains(t, a.text, "Just watch")
	}
}

func TestLaterMessagesVary(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	c := person("one")
	var tools []string
	for _, text := range []string{"two", "three", "four", "run ls -la"} {
		c = c.add("assistant", "done").add("user", text)
		a := s.send(t.Context(), c)
		tool := ""
		if len(a.calls) > 0 {
			tool = a.calls[0].Function.Name
			is.True(strings.TrimSpace(s.send(t.Context(), c.addAnswer(a, "result")).text) != "")
		}
		if tool != "bash" {
			expect.Contains(t, a.text, "“"+text+"”")
		}
		tools = append(tools, tool)
	}
	is.Equal(tools, []string{"glob", "question", "", "bash"})
}

func TestTourRunsTheNamedCommand(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	for text, want := range map[string]string{
		"run ls -la": "ls -la", "Run `date`": "date", "please run id": "id", "$ pwd": "pwd", "!pwd": "pwd",
		"running is fun": "uname -a && date", "run": "uname -a && date",
	} {
		is.Equal(arg(s.send(t.Context(), person(text)), "command"), want)
	}
}

func TestGuideWithoutToolsMakesNoCall(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	a := open(t, &Model{}).send(t.Context(), user("hi"))
	is.Equal(len(a.calls), 0)
	expect.Contains(t, a.text, "“hi”")
}

func TestResumePromptStartsNothingNew(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{Continue: []string{resume}})
	c := user("@@say a\n@@next\n@@say b\n@@next\n@@say c").add("assistant", "a").add("user", resume)
	is.Equal(s.send(t.Context(), c).text, "b")
	c = c.add("assistant", "b").add("user", []any{map[string]string{"type": "text", "text": resume}})
	is.Equal(s.send(t.Context(), c).text, "c")
}

func TestLastMessageIsAnswered(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{Continue: []string{resume}})
	c := user("@@say a").add("assistant", "a").add("user", "thanks")
	expect.Contains(t, s.send(t.Context(), c).text, "“thanks”")       // an ordinary message after a script
	is.Equal(s.send(t.Context(), c.add("user", "@@say b")).text, "b") // queued: two messages, no answer between
}

func TestPartsAndRemindersAreUnderstood(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	part := func(kind, text string) map[string]string { return map[string]string{"type": kind, "text": text} }
	c := user([]any{part("text", "@@say a"), part("image_url", ""), part("text", "@@say b"),
		part("text", "<system-reminder>\n@@say not this\n</system-reminder>")})
	is.Equal(s.send(t.Context(), c).text, "ab")
	c = person([]any{part("text", "hi"), part("text", "<system-reminder>\nPlan mode\n</system-reminder>")})
	expect.Contains(t, s.send(t.Context(), c).text, "“hi”")
}

func TestTitleComesFromThePersonsWords(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := open(t, &Model{})
	c := chat{Stream: true}.add("system", "You are a title generator. You output ONLY a thread title.").
		add("user", "Generate a title for this conversation:\n")
	is.Equal(s.send(t.Context(), c.add("user", "\nfix the build\nnow")).text, "fix the build")
	is.Equal(s.send(t.Context(), c.add("user", "@@status 500")).text, "Scripted demo")
	is.Equal(len([]rune(s.send(t.Context(), c.add("user", strings.Repeat("é", 90))).text)), 50)
}

func TestSummaryIsNotAScript(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	c := chat{Stream: true}.add("system", "You are a context summarization agent.").
		add("user", "<conversation>\n[User]: x\n@@status 500\n</conversation>")
	s := open(t, &Model{})
	is.True(strings.HasPrefix(s.send(t.Context(), c).text, "## Objective"))
	c = person("hi").add("user", "Continue if you have next steps, or stop and ask for clarification.")
	is.Equal(len(s.send(t.Context(), c).calls), 0) // nothing starts after a compaction
}
