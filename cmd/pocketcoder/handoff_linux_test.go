package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/matryer/is"

	chats "pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// handoffResult is the output of a tool that delegates.
type handoffResult struct {
	Event        string `json:"_pocketcoder_sys_event"`
	Success      bool   `json:"success"`
	Message      string `json:"message"`
	Output       string `json:"output"`
	TerminalID   string `json:"terminal_id"`
	SubagentID   string `json:"subagent_id"`
	TmuxWindowID int    `json:"tmux_window_id"`
	Status       string `json:"status"`
}

// delegatesOf waits for the n delegates of a chat.
func (p *process) delegatesOf(t testing.TB, chat string, n int) (all []projections.Delegate) {
	t.Helper()
	expect.Eventually(t, fmt.Sprintf("chat %s has %d delegates", chat, n), func() bool {
		all = p.delegates(t, chat)
		return len(all) == n
	})
	return all
}

func handoffOf(t testing.TB, output string) (d handoffResult) {
	t.Helper()
	if err := json.Unmarshal([]byte(output), &d); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return d
}

// blocks returns the code blocks of a language in a page of the documentation.
func blocks(t testing.TB, page, language string) (all []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		all = append(all, m[1])
	}
	return all
}

// TestThreeAgentsOfTheDocumentation follows docs/agents.md. Its rule denies edits to one agent, and so to every request
// over the API. Tests of such requests need another system.
func TestThreeAgentsOfTheDocumentation(t *testing.T) {
	expect.Long(t, "has five turns")
	t.Parallel()
	is := is.New(t)
	p := openSystem.system(t)
	for i, name := range []string{"Builder", "Tester"} { // the page begins with another file
		path := filepath.Join(t.TempDir(), strings.ToLower(name)+".md")
		is.NoErr(os.WriteFile(path, []byte(blocks(t, "agents.md", "markdown")[i+1]), 0o600))
		stdout, stderr, _ := p.cli(t, "", "agent", "add", path)
		expect.Contains(t, stdout+stderr, "created agent "+name)
	}
	chat := p.chat(t, blocks(t, "agents.md", "text")[0])
	byAgent := map[string]string{}
	for _, w := range p.delegatesOf(t, chat, 2) {
		byAgent[w.Agent] = w.ID
	}
	p.approve(t, byAgent["Builder"], 0)
	expect.Eventually(t, "the chat goes on", func() bool {
		return p.text(t, chat) == "The builder is done. The tester still works."
	})
	p.approve(t, byAgent["Tester"], 0)
	expect.Eventually(t, "the chat was woken", func() bool {
		return strings.HasSuffix(p.text(t, chat), "|Both are done.")
	})
}

// callsThatWait are three calls that wait: a handoff to a delegate that waits for a person, ask_person, and a question
// of OpenCode. OpenCode loses them with a restart.
type callsThatWait struct {
	parent, delegate string
	asking           string // the chat of ask_person
	asked            projections.Question
	half             partlyAnswered
}

func (p *process) startCallsThatWait(t *testing.T) (c callsThatWait) {
	t.Helper()
	work := call("bash", map[string]any{"command": "touch of-a-delegate", "description": "test"}) +
		"\n@@next\n@@say the result"
	c.parent = p.chat(t, call("pocketcoder_handoff", map[string]any{"message": work})+"\n@@next\n@@say I have it")
	c.delegate = p.delegatesOf(t, c.parent, 1)[0].ID
	p.awaitRequest(t, c.delegate, 0)
	c.asking = p.chat(t, colourQuestion)
	c.asked = p.awaitPersonQuestion(t, c.asking)
	c.half = p.halfAnswered(t)
	return c
}

// checkSurvived checks that after a restart the calls are carried on. Another restart must resume nothing again: see
// checkNotResumedAgain.
func (c *callsThatWait) checkSurvived(t *testing.T, p *process) {
	t.Helper()
	p.handoffKeepsItsResult(t, c.parent, c.delegate)
	p.answerResumes(t, c.asking, c.asked)
	c.half.checkResumed(t, p)
}

// surviveIncident prepares calls that wait, for an incident that OpenCode does not survive.
func (c *callsThatWait) surviveIncident(t *testing.T, p *process) (check func(*testing.T, *process)) {
	*c = p.startCallsThatWait(t)
	return c.checkSurvived
}

// handoffKeepsItsResult checks that the parent gets the result of a delegate, once, after the delegate's request was
// interrupted.
func (p *process) handoffKeepsItsResult(t *testing.T, parent, delegate string) {
	t.Helper()
	is := is.New(t)
	defer func() {
		if t.Failed() {
			t.Log(p.describeChat(delegate), p.describeChat(parent))
		}
	}()
	p.event(t, delegate, "permission.interrupted", nil)
	p.approve(t, delegate, 0)
	expect.Eventually(t, "the parent has the result", func() bool { return p.text(t, parent) == "I have it" })
	p.turnEnds(t, parent)
	reports := p.delegateReports(t, parent)
	is.Equal(len(reports), 1)
	expect.Contains(t, reports[0].Parts[0].Text, "the result")
	is.Equal(len(p.delegates(t, parent)), 1)
}

// answerResumes checks that the answer to an interrupted question of ask_person resumes the turn once.
func (p *process) answerResumes(t *testing.T, chat string, q projections.Question) {
	t.Helper()
	is := is.New(t)
	p.awaitForgottenQuestions(t, chat)
	is.NoErr(p.answer(t, chats.AnswerQuestion{Chat: chat, Question: q.EngineQuestion, Answers: []string{"Red"}}))
	expect.Eventually(t, "the model goes on", func() bool { return p.text(t, chat) == "thanks" })
	p.turnEnds(t, chat)
	is.Equal(p.resumes(t, chat), map[string]int{q.EngineQuestion: 1})
}

// TestParentAndDelegatesSendMessages has a delegate report in the middle of its work, and the parent stop another
// delegate, which leaves no process.
func TestParentAndDelegatesSendMessages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	work := bash("sleep 0.1") // asks a person
	chat := p.chat(t, call("pocketcoder_assign", map[string]any{"message": strings.Replace(work, "@@say done",
		call("pocketcoder_send_message", map[string]any{"receiver": "parent", "message": "@@say heard"})+
			"\n@@next\n@@say finished", 1)})+"\n@@next\n@@say assigned")
	w := p.delegatesOf(t, chat, 1)[0]
	p.turnEnds(t, chat)
	p.approve(t, w.ID, 0)
	expect.Eventually(t, "the message and the result were read", func() bool {
		return strings.HasPrefix(p.text(t, chat), "assigned|heard") && len(p.delegateReports(t, chat)) == 1
	})
	p.turnEnds(t, chat)
	calls := len(p.tools(t, chat))
	p.submit(t, chat, ownTool("check_inbox", map[string]any{}))
	expect.Eventually(t, "the inbox was read", func() bool { return len(p.tools(t, chat)) == calls+1 })
	inbox := p.outputOf(t, chat, calls)
	expect.Contains(t, inbox, `"text":"@@say heard","state":"seen"`)

	p.submit(t, chat, ownTool("assign", map[string]any{"message": bash("trap '' TERM; sleep 3456 & wait")}))
	second := p.delegatesOf(t, chat, 2)[1]
	p.approve(t, second.ID, 0)
	p.turnEnds(t, chat)
	expect.Eventually(t, "the command runs", func() bool { return processRuns("sleep\x003456") })
	calls = len(p.tools(t, chat))
	p.submit(t, chat, ownTool("stop_worker", map[string]any{"worker": second.ID}))
	expect.Eventually(t, "the second result is reported", func() bool { return len(p.delegateReports(t, chat)) == 2 })
	expect.Contains(t, p.tools(t, chat)[calls].State.Output, "is being stopped")
	expect.Contains(t, p.delegateReports(t, chat)[1].Parts[0].Text, "The delegate was stopped.")
	is.Equal(p.delegates(t, chat)[1].State, "aborted")
	expect.Eventually(t, "no process of it is left", func() bool { return !processRuns("sleep\x003456") })
}

// A delegate commits in a worktree of its own. Its parent gets the branch, and finds the commit there.
func TestADelegateCommitsInAWorktreeOfItsOwn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	expect.Program(t, "git")
	p := sharedSystem(t)
	repository := filepath.Join(p.workspace, "repository")
	git := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", repository, "-c", "user.name=n",
			"-c", "user.email=n@example.org"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	expect.WriteFile(t, repository+"/a", "a\n")
	git("init", "-q", "-b", "main")
	git("add", ".")
	git("commit", "-q", "-m", "first")

	commit := "echo b >b && git add b && git -c user.name=n -c user.email=n@example.org commit -q -m second && pwd"
	chat := p.chat(t, ownTool("handoff", map[string]any{"working_directory": "repository", "worktree": true,
		"message": call("write", map[string]any{"filePath": "c", "content": "c"}) + "\n@@next\n" +
			call("bash", map[string]any{"command": commit, "description": "test"}) + "\n@@next\n@@say committed"}))
	w := p.delegatesOf(t, chat, 1)[0]
	is.Equal(w.Branch, "pocketcoder/"+w.ID)
	is.True(strings.HasSuffix(w.Directory, "/.worktrees/"+w.ID))
	edit := p.approve(t, w.ID, 0)
	is.Equal(edit.Permission, "edit") // and no request for a directory outside
	p.approve(t, w.ID, 1)
	d := handoffOf(t, p.outputOf(t, chat, 0))
	is.Equal([]string{d.Status, d.Output}, []string{"completed", "committed"})
	is.Equal(git("log", "-1", "--format=%s", w.Branch), "second")
	is.Equal(git("status", "--porcelain"), "")
	is.Equal(expect.ReadFile(t, w.Directory+"/c"), "c")
	out, _, _ := p.cli(t, "", "delegates", "check", w.ID)
	expect.Contains(t, out, "branch: "+w.Branch)

	is.NoErr(os.Remove(w.Directory + "/c")) // else it is kept
	p.admin(t).must(t, "DELETE", recordPath("chats", w.ID), nil, nil)
	closed := p.event(t, w.ID, "worktree.closed", nil)
	expect.Contains(t, string(closed.Data), w.Branch) // kept, because it is not merged
	_, err := os.Stat(w.Directory)
	is.True(os.IsNotExist(err))
	out, _, _ = p.cli(t, "", "replay", w.ID)
	expect.Contains(t, out, "its branch "+w.Branch+" is kept for its commits")
	out, _, _ = p.cli(t, "", "delegates", "check", w.ID)
	expect.Contains(t, out, "Its branch "+w.Branch+" is kept for its commits.")

	plain := p.chat(t, ownTool("assign", map[string]any{"worktree": true, "message": "@@say no"}))
	expect.Contains(t, p.outputOf(t, plain, 0), "No git worktree can be made of")
}
