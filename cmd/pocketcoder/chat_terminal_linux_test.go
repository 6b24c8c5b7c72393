package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/turn"
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

func conversationContinuesTheNewestChat(t *testing.T, p *process) {
	is := is.New(t)
	newer := p.chat(t, "@@say newer")
	p.turnEnds(t, newer)
	last := p.chat(t, "@@say last") // the last activity counts
	p.turnEnds(t, last)
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
	p := sharedSystem(t)
	chat := p.chat(t, twoCommands("printf first >/dev/null", "printf second >/dev/null"))
	requests := []events.PermissionAsk{p.awaitRequest(t, chat, 0), p.awaitRequest(t, chat, 1)}
	s := p.startConversation(t, chat)
	s.awaitText("allow it?")
	shown, other := requests[0], requests[1]
	if !strings.Contains(s.seen.String(), shown.Command()) {
		shown, other = other, shown
	}
	s.typeText("y")
	s.awaitText("\x1b[0my") // it is on the screen
	p.decide(t, chat, shown, events.Authorized, "")
	s.awaitText(other.Command())
	s.typeText("\r")
	s.awaitText(`"y" was not used`)
	for _, row := range rows[projections.Permission](t, p, "permissions", chat) {
		if row.EnginePermission == other.ID {
			is.Equal(row.Status, events.Draft) // the second was not decided
		}
	}
	s.typeText("y\r") // now it is shown
	p.turnEnds(t, chat)
	for _, row := range rows[projections.Permission](t, p, "permissions", chat) {
		if row.EnginePermission == other.ID {
			is.Equal([]string{row.Status, row.DecidedBy}, []string{events.Authorized, "user:operator"})
		}
	}
	s.typeText("\x04")
	s.awaitExit()
}

// The conversation begins without a chat, and chooses a model and an agent before the first message.
func TestSlashCommandsAreNotSentAsMessages(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	p.admin(t).create(t, "ai_agents", record{"name": "Chooser"})
	expect.Eventually(t, "the models are known", func() bool {
		m, err := p.Models(t.Context(), "")
		return err == nil && len(m.Models) > 0
	})
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
	const first = "@@say the model and the agent were chosen first"
	s.typeText(first + "\r")
	var chat string
	expect.Eventually(t, "the first message begins the chat", func() bool {
		_, err := p.Log.Fold(t.Context(), events.ChatSubject("*", "message.submitted"), 0, func(e events.Event) error {
			if strings.Contains(string(e.Data), first) {
				chat = e.Subject.ID
			}
			return nil
		})
		is.NoErr(err)
		return chat != ""
	})
	p.turnEnds(t, chat)
	is.Equal(rows[projections.ShownMessage](t, p, "messages", chat)[1].Agent, "Chooser")
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
	expect.Eventually(t, "it was sent", func() bool { return len(submitted(t, p, chat)) == 2 })
	p.denyNext(t, chat) // the demo's tour needs an approval
	p.turnEnds(t, chat)
	last := rows[projections.ShownMessage](t, p, "messages", chat)
	expect.Contains(t, fmt.Sprint(last), "/x is a message")
	expect.Lacks(t, fmt.Sprint(last), "//x")

	tries := 0
	expect.Eventually(t, "it is undone once the turn has ended here too", func() bool {
		if seen := s.seen.String(); strings.Count(seen, "stop it first with /stop") == tries &&
			!strings.Contains(seen, "Undone") {
			tries++
			s.typeText("/undo\r")
		}
		return strings.Contains(s.seen.String(), "Undone: /x is a message")
	})
	s.typeText("/undo\r")
	s.awaitText("Undone: " + first)
	s.typeText("/undo\r")
	s.awaitText("there is no turn to undo")
	s.typeText("/redo\r")
	s.awaitText("The undone turns are back.")
	s.typeText("/quit\r")
	s.awaitExit()
	body, err := os.ReadFile(p.data.Path("history"))
	is.NoErr(err)
	expect.Contains(t, string(body), `"//x is a message"`)
}

func undoInTheTerminalAsks(t *testing.T, p *process) {
	is := is.New(t)
	path := filepath.Join(p.workspace, "terminal.txt")
	chat := p.chat(t, call("write", map[string]any{"filePath": path, "content": "of the turn\n"})+"\n@@next\n@@say wrote")
	p.approve(t, chat, 0)
	p.turnEnds(t, chat)
	expect.WriteFile(t, path, "of a person\n")
	s := p.startConversation(t, chat)
	s.awaitText("› ")
	s.typeText("/undo\r")
	s.awaitText("These files were changed later, or cannot be compared:")
	s.awaitText(path)
	s.awaitText("/undo keep leaves them as they are")
	is.Equal(expect.ReadFile(t, path), "of a person\n")
	s.typeText("/undo keep\r")
	s.awaitText("kept as they are, because they were changed later: " + path)
	is.Equal(expect.ReadFile(t, path), "of a person\n")
	s.typeText("/redo\r")
	s.awaitText("The undone turns are back.")
	s.typeText("/undo overwrite\r")
	expect.Eventually(t, "the file that the turn made is gone", func() bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
	s.typeText("/quit\r")
	s.awaitExit()
}

// denyNext denies the next request that waits in a chat.
func (p *process) denyNext(t *testing.T, chat string) {
	t.Helper()
	expect.Eventually(t, "a request waits", func() bool {
		for _, row := range rows[projections.Permission](t, p, "permissions", chat) {
			if row.Status == events.Draft && row.Referred {
				p.decide(t, chat, events.PermissionAsk{ID: row.EnginePermission}, events.Denied, "")
				return true
			}
		}
		return false
	})
}

func TestPendingRequestIsListedAndAnsweredLater(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.chat(t, bash("echo nee''ded"))
	request := p.awaitRequest(t, chat, 0)
	p.event(t, chat, events.PermissionReferred{}.Kind(), nil)
	list, _, code := p.cli(t, "", "chats")
	is.Equal(code, 0)
	is.True(slices.ContainsFunc(strings.Split(list, "\n"), func(line string) bool {
		return strings.HasPrefix(line, chat) && strings.Contains(line, "you: 1 request")
	}))
	text, _, code := p.cli(t, "", "requests")
	is.Equal(code, 0)
	is.True(strings.Contains(text, store.RecordID(request.ID)) && strings.Contains(text, request.Command()))
	var pending []client.Request
	body, _, _ := p.cli(t, "", "requests", "--json")
	decode(t, body, &pending)
	is.True(slices.ContainsFunc(pending, func(r client.Request) bool {
		return r.Chat == chat && r.ID == store.RecordID(request.ID) && r.Type == "bash" && r.What == request.Command() &&
			r.Why != ""
	}))
	why, _, code := p.cli(t, "", "why", chat) // the chat's last
	is.Equal(code, 0)
	is.True(strings.Contains(why, request.Command()) && strings.Contains(why, "It is not decided yet."))
	stdout, _, code := p.cli(t, "y\n", "chat", chat)
	is.Equal(code, turn.Completed)
	expect.Contains(t, stdout, "needed\n")
	expect.Contains(t, stdout, "done")
	body, _, _ = p.cli(t, "", "requests", "--json")
	decode(t, body, &pending)
	is.True(!slices.ContainsFunc(pending, func(r client.Request) bool { return r.Chat == chat }))
	body, _, code = p.cli(t, "", "chats", "--json", "--limit", "100")
	is.Equal(code, 0)
	var chats []projections.Chat
	decode(t, body, &chats)
	i := slices.IndexFunc(chats, func(c projections.Chat) bool { return c.ID == chat })
	is.True(i >= 0)
	is.Equal([]string{chats[i].Preview, chats[i].Turn, chats[i].Title}, []string{"done", projections.TurnUser, t.Name()})
}
