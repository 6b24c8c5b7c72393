package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/store"
)

// startConversation runs "pocketcoder chat" in a terminal.
func (p *process) startConversation(t *testing.T, args ...string) *terminalSession {
	t.Helper()
	cmd := exec.Command(pocketcoder(t), append([]string{"chat", "--data", string(p.data)}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	return startTerminal(t, cmd)
}

func TestConversationContinuesTheNewestChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	_, stderr, code := p.cli(t, "", "chat", "--continue")
	is.Equal(code, 1)
	expect.Contains(t, stderr, "there is no chat to continue")
	newer, last := p.create(t, "newer"), p.create(t, "last")
	p.turn(t, newer, "what is new?", "newer")
	p.turn(t, last, "what is last?", "last") // the last activity counts
	stdout, stderr, code := p.cli(t, "", "chat", "--continue")
	is.Equal(code, 0)
	expect.Contains(t, stdout, "last")
	expect.Contains(t, stderr, "go on with: pocketcoder chat "+last)
	expect.Lacks(t, stdout, "/help lists the commands") // a script needs no greeting
	p.admin(t).must(t, "PATCH", recordPath("chats", last), record{"archived": true}, nil)
	_, stderr, code = p.cli(t, "", "chat", "--continue")
	is.Equal(code, 0)
	expect.Contains(t, stderr, "go on with: pocketcoder chat "+newer)

	s := p.startConversation(t)
	s.awaitText("Write what should be done, and press Enter. /help lists the commands.")
	s.typeText("/quit\r")
	s.awaitExit()
}

// twoCommands returns a script that requests two commands at once.
func twoCommands(first, second string) string {
	return call("bash", map[string]any{"command": first, "description": "first"}) + "\n" +
		call("bash", map[string]any{"command": second, "description": "second"}) + "\n@@next\n@@say done"
}

func TestTypedAnswerAppliesOnlyToTheShownRequest(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	chat := p.create(t, "typed")
	p.begin(t, chat, "do both")
	shown := p.ask(t, chat, "per_1", "printf first")
	s := p.startConversation(t, chat)
	s.awaitText("allow it?")
	s.typeText("y")
	s.awaitText("\x1b[0my") // it is on the screen
	p.ask(t, chat, "per_2", "printf second")
	p.decide(t, chat, shown, events.Authorized, "")
	s.awaitText("printf second")
	s.typeText("\r")
	s.awaitText(`"y" was not used`)
	second := func() projections.Permission {
		all := rows[projections.Permission](t, p.process, "permissions", chat)
		return all[slices.IndexFunc(all, func(r projections.Permission) bool { return r.EnginePermission == "per_2" })]
	}
	is.Equal(second().Status, events.Draft) // it was not decided
	s.typeText("y\r")                       // now it is shown
	expect.Eventually(t, "it is decided", func() bool { return second().Status == events.Authorized })
	is.Equal(second().DecidedBy, "user:operator")
}

// The conversation begins without a chat, and chooses a model and an agent before the first message.
func TestSlashCommandsAreNotSentAsMessages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	chooser := p.admin(t).create(t, "ai_agents", record{"name": "Chooser"})
	p.api.Provider(t, "demo", "demo")
	s := p.startConversation(t)
	s.awaitText("› ")
	for _, c := range []struct{ types, sees string }{
		{"/model nosuch", `there is no model "nosuch"`},
		{"/model demo/demo", "this chat uses demo/demo"},
		{"/agent nosuch", `there is no agent "nosuch"; available: `},
		{"/agent Chooser", "agent of the next messages: Chooser"},
		{"/agent", "* Chooser"},
	} {
		s.typeText(c.types + "\r")
		s.awaitText(c.sees)
	}
	s.typeText("the model and the agent were chosen first\r")
	var chat projections.Chat
	expect.Eventually(t, "the first message begins the chat", func() bool {
		all := rows[projections.Chat](t, p.process, "chats", "")
		if len(all) == 1 {
			chat = all[0]
		}
		return len(all) == 1 && len(submitted(t, p.process, chat.ID)) == 1
	})
	is.Equal(chat.Agent, chooser)
	for _, c := range []struct{ types, sees string }{
		{"/etc/hosts", "There is no command /etc/hosts. /help lists the commands"},
		{"/help", "undo the last turn and its changes"},
		{"/stop the server", "Nothing follows /stop. Write it alone."},
		{"/chats", "LAST ACTIVE"},
		{"/requests", "request"},
		{"/why", "has no request yet"},
		{"/model 99999", "choose 1 to "},
		{"/redo", "nothing was undone"},
		{"/omit", "The last message was neither refused by the provider nor stopped"},
	} {
		s.typeText(c.types + "\r")
		s.awaitText(c.sees)
	}
	s.typeText("//x is a message\r")
	expect.Eventually(t, "it was sent", func() bool { return len(submitted(t, p.process, chat.ID)) == 2 })
	last := fmt.Sprint(rows[projections.ShownMessage](t, p.process, "messages", chat.ID))
	expect.Contains(t, last, "/x is a message")
	expect.Lacks(t, last, "//x")
	s.typeText("/quit\r")
	s.awaitExit()
	body, err := os.ReadFile(p.data.Path("history"))
	is.NoErr(err)
	expect.Contains(t, string(body), `"//x is a message"`)
}

// bridge/opencode tests what an undo does with the files.
func TestUndoInTheTerminalAsksAboutAChangedFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	path := filepath.Join(p.workspace, "terminal.txt")
	chat := p.create(t, "undone")
	p.turn(t, chat, "write a file", "wrote")
	p.api.ChangedFiles = []string{path}
	reverted := 0
	carryOut := func(kept ...string) (revert string) { // as OpenCode does
		t.Helper()
		n := reverted
		e := p.event(t, chat, events.RevertRequested{}.Kind(), func(events.Event) bool { n--; return n < 0 })
		reverted++
		p.api.Append(t, chat, events.EffectDone{Effect: e.ID, Kept: kept})
		return string(e.Data)
	}
	s := p.startConversation(t, chat)
	s.awaitText("› ")
	s.typeText("/undo\r")
	s.awaitText("These files were changed later, or cannot be compared:")
	s.awaitText(path)
	s.awaitText("/undo keep leaves them as they are")
	expect.Lacks(t, fmt.Sprint(p.kinds(t.Context(), chat)), events.RevertRequested{}.Kind())
	s.typeText("/undo keep\r")
	expect.Lacks(t, carryOut(path), "overwrite")
	s.awaitText("kept as they are, because they were changed later: " + path)
	p.api.ChangedFiles = nil
	s.typeText("/redo\r")
	is.Equal(carryOut(), "{}")
	s.awaitText("The undone turns are back.")
	p.api.ChangedFiles = []string{path}
	s.typeText("/undo overwrite\r")
	expect.Contains(t, carryOut(), `"overwrite":true`)
	s.awaitText("Undone: write a file")
	s.typeText("/quit\r")
	s.awaitExit()
}

func TestPendingRequestIsListedUntilItIsApproved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	chat := p.create(t, "a chat")
	p.begin(t, chat, "run it")
	request := p.ask(t, chat, "per_1", "echo needed")
	list, _, code := p.cli(t, "", "chats")
	is.Equal(code, 0)
	is.True(slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool {
		return strings.HasPrefix(line, chat) && strings.Contains(line, "you: 1 request")
	}))
	id := store.RecordID(request.ID)
	text, _, code := p.cli(t, "", "requests")
	is.Equal(code, 0)
	is.True(strings.Contains(text, id) && strings.Contains(text, request.Command()))
	pending := func() (all []client.Request) {
		body, _, _ := p.cli(t, "", "requests", "--json")
		decode(t, body, &all)
		return all
	}
	is.Equal(len(pending()), 1)
	one := pending()[0]
	is.Equal([]any{one.Chat, one.ID, one.Type, one.What, one.Why != ""}, []any{chat, id, "bash", request.Command(), true})
	why, _, code := p.cli(t, "", "why", chat) // the chat's last
	is.Equal(code, 0)
	is.True(strings.Contains(why, request.Command()) && strings.Contains(why, "It is not decided yet."))
	_, _, code = p.cli(t, "", "approve", id)
	is.Equal(code, 0)
	is.Equal(len(pending()), 0)
	body, _, code := p.cli(t, "", "chats", "--json", "--limit", "100")
	is.Equal(code, 0)
	var chats []projections.Chat
	decode(t, body, &chats)
	is.Equal([]string{chats[0].Preview, chats[0].Turn, chats[0].Title},
		[]string{"run it", projections.TurnAssistant, "a chat"})
}
