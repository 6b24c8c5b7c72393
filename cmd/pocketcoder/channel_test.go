package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/channel/telegramtest"
	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers/channel"
	"pocketcoder/projections/outgoing"
)

// person is a person in Telegram, and the private conversation of the bot with this person.
const person = int64(4711)

// command runs a command, which must succeed.
func (p *process) command(t testing.TB, stdin string, args ...string) (stdout string) {
	t.Helper()
	stdout, stderr, code := p.cli(t, stdin, args...)
	if code != 0 {
		t.Fatalf("%v: %d %s", args, code, stderr)
	}
	return stdout
}

// pair adds a bot and pairs a person with the administrator. It returns the chat of their conversation.
func (p *process) pair(t testing.TB, bot *telegramtest.Server) (chat string) {
	t.Helper()
	p.command(t, telegramtest.Token+"\n", "channel", "add", "phone", "--server", bot.URL)
	var code channel.Code
	if err := json.Unmarshal([]byte(p.command(t, "", "pair", "phone", "--json")), &code); err != nil {
		t.Fatal(err)
	}
	bot.Say(person, person, "/start "+code.Code)
	bot.AwaitText(t, "You are paired")
	var sent []outgoing.Message
	if err := json.Unmarshal([]byte(p.command(t, "", "channel", "messages", "--json")), &sent); err != nil {
		t.Fatal(err)
	}
	return sent[0].Chat
}

// TestAConversationInAMessengerSurvivesCrashes kills the system between all steps of a conversation.
func TestAConversationInAMessengerSurvivesCrashes(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	bot := telegramtest.New(t)
	p := start(t, "--push-allow-private")
	chat := p.pair(t, bot)
	expect.Contains(t, p.command(t, "", "pair", "list"), "4711")
	expect.Contains(t, p.command(t, "", "channel", "list"), "enabled")

	bot.Say(person, person, bash("echo hello >>greeting"))
	p.kill() // the message may be in the log, or not
	p.restart()
	asked := bot.AwaitText(t, "echo hello >>greeting")
	is.Equal(len(asked.Buttons), 2)
	p.kill()
	bot.Press(asked, person, "Approve") // while nothing runs
	p.restart()
	bot.AwaitText(t, "done")
	p.kill()
	bot.Say(person, person, "@@say and then")
	p.restart()
	bot.AwaitText(t, "and then")
	p.turnEnds(t, chat)
	bot.Press(asked, person, "Approve")
	bot.Press(asked, person, "Deny")
	said := bot.AwaitSaid(t, 3)
	is.Equal(said[:2], []string{"Approved.", "This button was used already."})
	p.kill()
	p.restart()
	bot.Say(person, person, "@@say last words")
	bot.AwaitText(t, "last words")

	written, err := os.ReadFile(filepath.Join(p.workspace, "greeting"))
	is.NoErr(err)
	is.Equal(string(written), "hello\n")
	var texts []string
	for _, m := range bot.Messages() {
		texts = append(texts, m.Text)
	}
	for _, once := range []string{"echo hello >>greeting", "done", "and then", "last words"} {
		n := len(slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return !strings.Contains(s, once) }))
		if n != 1 {
			t.Errorf("%q was sent %d times", once, n)
		}
	}
	submitted := 0
	for _, e := range p.history(t, chat) {
		if e.Subject.Kind == (events.MessageSubmitted{}).Kind() && strings.Contains(string(e.Data), `"origin"`) {
			submitted++
		}
	}
	is.Equal(submitted, 3)
	var all strings.Builder
	for _, e := range p.history(t, chat) {
		all.Write(e.Data)
	}
	expect.Contains(t, all.String(), `channel=\"phone\" speaker=\"Person 4711\"`)
	expect.Lacks(t, all.String(), telegramtest.Token)
}
