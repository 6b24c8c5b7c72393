package demo

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// guidedRequest is a request from a person whose message is not a script. Each of its steps makes at most one
// call.
type guidedRequest struct {
	request
	turn
	provider string
	last     result // of the turn's last call
}

// guide answers depending on how many messages the person wrote before: first the tour, then what runs without a
// question, then a question, then short answers.
func (m *Model) guide(req request, t turn) step {
	if strings.HasPrefix(t.text, compactedPrompt) {
		return prose("The conversation was shortened. Nothing is left to do.")
	}
	g := guidedRequest{request: req, turn: t, provider: m.Provider}
	g.step = 0
	for _, g.last = range req.results(t.index, m.Continue) {
		if !g.last.interrupted() {
			g.step++
		}
	}
	command, named := g.command()
	switch n := req.earlierMessages(t.index, m.Continue); {
	case n == 0:
		return g.tour(command)
	case named && g.has("bash"):
		return g.run(command)
	case n == 1 && g.has("glob") && g.directory() != "":
		return g.look()
	case n == 2 && g.has("question"):
		return g.ask()
	}
	return prose(fill(textSmall, g.text) + g.ending())
}

func (g guidedRequest) tour(command string) step {
	path := g.directory()
	switch {
	case g.step == 0 && g.has("bash"):
		return prose(fill(textHello, g.text)).and("bash", arguments(
			"command", command, "description", "Run the first command of the tour"))
	case g.step == 1 && g.has("write") && path != "":
		return prose(g.last.report()+"\n\n"+textWrite).and("write", arguments(
			"filePath", filepath.Join(path, fileName), "content", fileText))
	case g.step == 0:
		return prose(fill(textNoTools, g.text) + g.ending())
	}
	return prose(g.last.report() + "\n\n" + textTourEnd + g.ending())
}

func (g guidedRequest) run(command string) step {
	if g.step > 0 {
		return prose(g.last.report())
	}
	return prose("I ask for that command. It runs if a rule allows it, or if you do.").and("bash", arguments(
		"command", command, "description", "Run the command you named"))
}

func (g guidedRequest) look() step {
	if g.step > 0 {
		return prose(g.last.report() + "\n\n" + textLookEnd)
	}
	return prose(fill(textLook, g.text)).and("glob", arguments("pattern", "*", "path", g.directory()))
}

func (g guidedRequest) ask() step {
	if g.step > 0 {
		return prose(g.last.report() + "\n\n" + textAskEnd + g.ending())
	}
	return prose(fill(textAsk, g.text)).and("question", question)
}

// commandPattern matches a message that names a command.
var commandPattern = regexp.MustCompile("^(?:(?i:(?:please )?run) |[$!] ?)`?([^`\n]+)`?$")

// command returns the command that the person named, or a harmless one.
func (g guidedRequest) command() (string, bool) {
	if found := commandPattern.FindStringSubmatch(g.text); found != nil {
		return found[1], true
	}
	return "uname -a && date", false
}

func (g guidedRequest) ending() string {
	if g.provider == "" {
		return ""
	}
	return "\n\n**A real model.** " + g.provider
}

var directory = regexp.MustCompile(`(?m)^\s*Working directory: (/.*)$`)

// directory returns where the session works according to OpenCode's system prompt, or "".
func (r request) directory() string {
	if found := directory.FindStringSubmatch(r.system()); found != nil {
		return strings.TrimSpace(found[1])
	}
	return ""
}

// prose returns a step that streams text as a model would, some words at a time.
func prose(text string) step {
	const words, delay = 3, 15 * time.Millisecond
	a := action{delay: delay}
	pieces := strings.SplitAfter(text, " ")
	for len(pieces) > 0 {
		n := min(words, len(pieces))
		a.deltas = append(a.deltas, strings.Join(pieces[:n], ""))
		pieces = pieces[n:]
	}
	return step{acts: []action{a}}
}

// and adds a tool call.
func (s step) and(tool, args string) step {
	s.acts = append(s.acts, action{tool: tool, args: args})
	return s
}

// arguments returns a JSON object of strings, from keys and values.
func arguments(pairs ...string) string {
	object := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		object[pairs[i]] = pairs[i+1]
	}
	data, _ := json.Marshal(object) // strings always encode
	return string(data)
}

// fill puts the person's message into a text.
func fill(text, words string) string { return strings.Replace(text, "YOURS", quote(words), 1) }

// quote returns the person's message on one line.
func quote(words string) string {
	return "“" + shorten(strings.Join(strings.Fields(words), " "), 120) + "”"
}

func shorten(s string, n int) string {
	if runes := []rune(s); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return s
}

// Texts of the guided tour. YOURS stands for the person's message.
const (
	textHello = "Hello! I am the **demo model** of PocketCoder. There is no AI behind me: I follow a small script, so that " +
		"you can see how everything works before you connect a real model. (You wrote: YOURS.)\n\n" +
		"PocketCoder is a coding assistant you host yourself. It **asks before it acts**, runs commands in a sandbox, " +
		"and keeps every step in a log you can replay.\n\n" +
		"Let me start with a command. If no rule allows it, it waits for you: approve it, or deny it and say why."

	textNoTools = "Hello! I am the **demo model** of PocketCoder, a coding assistant you host yourself. There is no AI " +
		"behind me, and I was given no tools here, so I can only say that your message arrived: YOURS."

	textWrite = "Next I write a small file, `" + fileName + "`. You see its text before you decide."

	textTourEnd = "That was the whole circle: you wrote, I asked, you decided, the sandbox did it, and the log has every " +
		"step of it.\n\n" +
		"**Try next**\n\n" +
		"- Write `run ls -la`, or `run` and any other command: I ask for exactly that.\n" +
		"- Choose *Deny and explain*: your reason reaches the model.\n" +
		"- Write anything else, and I show you another part."

	textLook = "You wrote: YOURS. A real model would start on that now; I only know my script. Let me show you how an " +
		"assistant looks around: I list the files of the workspace. Rules decide which calls run without a question."

	textLookEnd = "Reading and listing inside the workspace is usually allowed by a rule; commands and changes ask. " +
		"Write once more, and I ask **you** something."

	textAsk = "You wrote: YOURS. Sometimes an assistant needs an answer before it can go on. Then it asks, like this."

	textAskEnd = "A real model would now go on with your answer."

	textSmall = "You wrote: YOURS. That is beyond a script. I can still run a command for you, if a rule or you allow it: write " +
		"`run` and the command."

	fileName = "pocketcoder-demo.md"
	fileText = "# Written by the PocketCoder demo model\n\n" +
		"You approved this file before it was written. Delete it whenever you like.\n"

	question = `{"questions":[{"question":"What would you like to do with PocketCoder first?","header":"First step",` +
		`"options":[{"label":"Write code","description":"Let it work on a project"},` +
		`{"label":"Look around","description":"Let it explain a project"},` +
		`{"label":"Just watch","description":"See what it asks for"}]}]}`
)
