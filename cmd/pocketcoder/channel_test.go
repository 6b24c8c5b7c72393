package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/channel/channeltest"
	"pocketcoder/events"
	"pocketcoder/handlers/channel"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
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
func (p *process) pair(t testing.TB, bot *channeltest.Telegram) (chat string) {
	t.Helper()
	p.command(t, channeltest.BotToken+"\n", "channel", "add", "phone", "--server", bot.URL)
	bot.Say(person, person, "/start "+p.pairingCode(t, "phone"))
	bot.AwaitText(t, "You are paired")
	return p.chatOfMessage(t, "You are paired")
}

// pairingCode returns a code that pairs a person with the administrator.
func (p *process) pairingCode(t testing.TB, name string) string {
	t.Helper()
	var code channel.Code
	if err := json.Unmarshal([]byte(p.command(t, "", "pair", name, "--user", adminEmail, "--json")), &code); err != nil {
		t.Fatal(err)
	}
	return code.Code
}

// chatOfMessage returns the chat of the newest message with a text that has left, or is to leave, through a channel.
func (p *process) chatOfMessage(t testing.TB, text string) string {
	t.Helper()
	var sent []projections.ChannelMessage
	if err := json.Unmarshal([]byte(p.command(t, "", "channel", "messages", "--json")), &sent); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(sent, func(m projections.ChannelMessage) bool { return strings.Contains(m.Text, text) })
	if i < 0 {
		t.Fatalf("no message has %q: %+v", text, sent)
	}
	return sent[i].Chat
}

// phoneTalk is a conversation in Telegram.
type phoneTalk struct {
	*process
	bot   *channeltest.Telegram
	chat  string
	asked channeltest.TelegramMessage // the request to approve a command
}

// surviveIncident begins the conversation. A person presses a button while the system is down.
func (p *phoneTalk) surviveIncident(t *testing.T, system *process) (check func(*testing.T, *process)) {
	bot := channeltest.NewTelegram(t)
	*p = phoneTalk{process: system, bot: bot, chat: system.pair(t, bot)}
	expect.Contains(t, p.command(t, "", "pair", "list"), "4711")
	bot.Say(person, person, bash("echo hello >>greeting"))
	p.asked = bot.AwaitText(t, "echo hello >>greeting")
	is.New(t).Equal(len(p.asked.Buttons), 2)
	return p.goesOn
}

func (p *phoneTalk) pressApprove(t *testing.T) {
	t.Helper()
	p.bot.Press(p.asked, person, "Approve")
}

// goesOn checks that nothing was lost or repeated.
func (p *phoneTalk) goesOn(t *testing.T, _ *process) {
	is := is.New(t)
	p.bot.AwaitText(t, "done")
	p.pressApprove(t)
	is.Equal(p.bot.AwaitSaid(t, 2), []string{"Approved.", "This button was used already."})
	p.bot.Say(person, person, "@@say last words")
	p.bot.AwaitText(t, "last words")
	p.turnEnds(t, p.chat)
	is.Equal(expect.ReadFile(t, filepath.Join(p.workspace, "greeting")), "hello\n")
	var texts []string
	for _, m := range p.bot.Messages() {
		texts = append(texts, m.Text)
	}
	eachOnce(t, texts, "echo hello >>greeting", "done", "last words")
	var all strings.Builder
	submitted := 0
	for _, e := range p.history(t, p.chat) {
		all.Write(e.Data)
		if e.Subject.Kind == (events.MessageSubmitted{}).Kind() && strings.Contains(string(e.Data), `"origin"`) {
			submitted++
		}
	}
	is.Equal(submitted, 2)
	expect.Contains(t, all.String(), `channel=\"phone\" speaker=\"Person 4711\"`)
	expect.Lacks(t, all.String(), channeltest.BotToken)
	p.command(t, "", "channel", "remove", "phone")
}

// eachOnce fails the test unless each part is in exactly one of some texts.
func eachOnce(t testing.TB, texts []string, parts ...string) {
	t.Helper()
	for _, once := range parts {
		n := len(slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return !strings.Contains(s, once) }))
		if n != 1 {
			t.Errorf("%q was sent %d times", once, n)
		}
	}
}

func TestFilesComeAndLeaveByMail(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const carl = "Carl <carl@example.org>"
	server := channeltest.NewMailServer(t)
	p := openSystem.system(t)
	p.command(t, channeltest.MailPassword+"\n", "channel", "add", "mailbox for files",
		"--address", channeltest.MailAddress, "--imap", server.IMAP, "--smtp", server.SMTP, "--authserv-id", channeltest.Authserv)
	defer p.command(t, "", "channel", "remove", "mailbox for files")
	server.Say(t, carl, p.pairingCode(t, "mailbox for files"), "")
	server.AwaitText(t, "You are paired")
	content := strings.Repeat("\x00\xff\r\n.\r\n", 1000)
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, "bill.bin"), []byte(content), 0o644))
	script := call("pocketcoder_send_file", map[string]any{"path": "bill.bin", "caption": "the bill for Carl"}) +
		"\n@@next\n@@say I sent Carl the bill"
	server.Deliver(t, server.Compose(carl, "Subject: My order\nContent-Type: multipart/mixed; boundary=b\n",
		"--b\n\n"+script+"\n--b\nContent-Type: text/plain\nContent-Disposition: attachment; filename=order.txt\n"+
			"Content-Transfer-Encoding: base64\n\ndGhyZWUgYXBwbGVz\n--b--"))
	bill := server.AwaitText(t, "the bill for Carl")
	is.Equal(bill.File, "bill.bin")
	is.Equal(bill.Content, content)
	is.Equal(bill.Header.Get("Subject"), "Re: My order")
	server.AwaitText(t, "I sent Carl the bill")
	p.event(t, p.chatOfMessage(t, "I sent Carl the bill"), "opencode.message.part.updated", func(e events.Event) bool {
		return strings.Contains(string(e.Data), "three apples") // OpenCode shows it to the model
	})
}

func TestTheCommandPrintsANewTokenOfAWebhook(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	var hook, target record
	p.admin(t).must(t, "POST", "/api/collections/webhooks/records", record{"name": "ci"}, &hook)
	p.admin(t).must(t, "POST", "/api/collections/webhook_targets/records", record{"name": "of the command",
		"url": "https://example.org/", "types": "turn.lost"}, &target)
	for made, name := range map[any]string{hook["token"]: hook["id"].(string), target["token"]: "of the command"} {
		renewed := strings.TrimSpace(p.command(t, "", "webhook", "token", name))
		is.True(len(renewed) == 43 && renewed != made)
	}
	_, stderr, code := p.cli(t, "", "webhook", "token", "none")
	is.Equal(code, 1)
	expect.Contains(t, stderr, `there is no webhook with the id "none"`)
}
