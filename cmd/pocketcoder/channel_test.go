package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/channel/emailtest"
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
	bot.Say(person, person, "/start "+p.pairingCode(t, "phone"))
	bot.AwaitText(t, "You are paired")
	return p.chatOfMessage(t, "You are paired")
}

// addMailbox adds a mailbox as a channel.
func (p *process) addMailbox(t testing.TB, name string, server *emailtest.Server) {
	t.Helper()
	p.command(t, emailtest.Password+"\n", "channel", "add", name, "--address", emailtest.Address, "--imap", server.IMAP,
		"--smtp", server.SMTP, "--authserv-id", emailtest.Authserv)
}

// pairingCode returns a code that pairs a person with the administrator.
func (p *process) pairingCode(t testing.TB, name string) string {
	t.Helper()
	var code channel.Code
	if err := json.Unmarshal([]byte(p.command(t, "", "pair", name, "--json")), &code); err != nil {
		t.Fatal(err)
	}
	return code.Code
}

// chatOfMessage returns the chat of the newest message with a text that has left, or is to leave, through a channel.
func (p *process) chatOfMessage(t testing.TB, text string) string {
	t.Helper()
	var sent []outgoing.Message
	if err := json.Unmarshal([]byte(p.command(t, "", "channel", "messages", "--json")), &sent); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(sent, func(m outgoing.Message) bool { return strings.Contains(m.Text, text) })
	if i < 0 {
		t.Fatalf("no message has %q: %+v", text, sent)
	}
	return sent[i].Chat
}

// TestKillLosesAndRepeatsNothingOfMessengersAndSchedules kills the system between the steps of a conversation in
// Telegram and of one by mail. The first two kills are right after a schedule has fired, mostly before OpenCode has its
// message.
func TestKillLosesAndRepeatsNothingOfMessengersAndSchedules(t *testing.T) {
	t.Parallel()
	p := start(t, "--push-allow-private")
	phone, mail := p.startPhoneTalk(t), p.startMailTalk(t)
	defer func() {
		if t.Failed() {
			t.Log(p.describeChat(phone.chat), p.describeChat(mail.chat))
		}
	}()
	added := strings.Fields(p.command(t, "", "schedule", "add", "Often", "--every", "10s", "--prompt", "@@say run",
		"--overlap", "queue", "--yes"))
	often := added[len(added)-1]
	awaitFired := func() {
		p.awaitRunsOver(t, often) // else the kill also ends the turn of an earlier run
		last, err := p.Log.Last(t.Context())
		is.New(t).NoErr(err)
		p.awaitFired(t, last)
	}

	awaitFired()
	phone.bot.Say(person, person, bash("echo hello >>greeting"))
	mail.server.Reply(t, mail.paired, annsMailbox, bash("echo hello >>mailed"))
	p.kill() // the messages may be in the log, or not
	p.restart()
	inPhone, byMail := phone.bot.AwaitText(t, "echo hello >>greeting"), mail.server.AwaitText(t, "echo hello >>mailed")
	is.New(t).Equal(len(inPhone.Buttons), 2)
	awaitFired()
	p.kill()
	phone.bot.Press(inPhone, person, "Approve") // while nothing runs
	mail.server.Reply(t, byMail, annsMailbox, "approve "+byMail.Code("approve"))
	p.restart()
	phone.bot.AwaitText(t, "done")
	done := mail.server.AwaitText(t, "done")
	mail.server.AwaitText(t, "Approved.")
	p.command(t, "", "schedule", "pause", "Often")
	phone.pressAgain(t, inPhone)
	mail.server.Reply(t, byMail, annsMailbox, "deny "+byMail.Code("deny"))
	mail.server.AwaitText(t, "decided already")
	p.sendsFileLater(t, phone.bot, phone.chat)
	p.kill()
	phone.bot.Before(nil)
	phone.bot.Say(person, person, "@@say and then")
	mail.server.Reply(t, done, annsMailbox, "@@say and then")
	p.restart()
	phone.ends(t)
	mail.ends(t)
	p.checkScheduleRuns(t, often, 2)
}

// phoneTalk is a conversation in Telegram.
type phoneTalk struct {
	*process
	bot  *telegramtest.Server
	chat string
}

func (p *process) startPhoneTalk(t *testing.T) phoneTalk {
	t.Helper()
	bot := telegramtest.New(t)
	talk := phoneTalk{p, bot, p.pair(t, bot)}
	expect.Contains(t, p.command(t, "", "pair", "list"), "4711")
	expect.Contains(t, p.command(t, "", "channel", "list"), "enabled")
	return talk
}

// pressAgain presses the buttons of an approved request.
func (p phoneTalk) pressAgain(t *testing.T, asked telegramtest.Message) {
	t.Helper()
	p.bot.Press(asked, person, "Approve")
	p.bot.Press(asked, person, "Deny")
	is.New(t).Equal(p.bot.AwaitSaid(t, 3)[:2], []string{"Approved.", "This button was used already."})
}

// ends ends the conversation, and checks that nothing was lost or repeated.
func (p phoneTalk) ends(t *testing.T) {
	t.Helper()
	is := is.New(t)
	p.bot.AwaitText(t, "and then")
	p.turnEnds(t, p.chat)
	p.bot.Say(person, person, "@@say last words")
	p.bot.AwaitText(t, "last words")
	is.Equal(expect.ReadFile(t, filepath.Join(p.workspace, "greeting")), "hello\n")
	var texts []string
	for _, m := range p.bot.Messages() {
		if texts = append(texts, m.Text); m.File != "" {
			is.Equal([]string{m.Text, m.File, m.Content}, []string{"the report", "report.txt", "all is well"})
		}
	}
	eachOnce(t, texts, "echo hello >>greeting", "done", "the report", "sent it", "and then", "last words")
	is.Equal(p.submittedThroughChannels(t, p.chat), 4)
	var all strings.Builder
	for _, e := range p.history(t, p.chat) {
		all.Write(e.Data)
	}
	expect.Contains(t, all.String(), `channel=\"phone\" speaker=\"Person 4711\"`)
	expect.Lacks(t, all.String(), telegramtest.Token)
}

// sendsFileLater lets the assistant send a file in a turn. Telegram accepts no file yet, and the file is deleted then.
func (p *process) sendsFileLater(t testing.TB, bot *telegramtest.Server, chat string) {
	t.Helper()
	report := filepath.Join(p.workspace, "report.txt")
	if err := os.WriteFile(report, []byte("all is well"), 0o644); err != nil {
		t.Fatal(err)
	}
	bot.RefuseAll("sendDocument", http.StatusTooManyRequests, "Too Many Requests: retry after 600", 600)
	bot.Say(person, person, call("pocketcoder_send_file", map[string]any{"path": "report.txt", "caption": "the report"})+
		"\n@@next\n@@say sent it")
	p.event(t, chat, events.ChannelDelayed{}.Kind(), nil)
	p.turnEnds(t, chat)
	if err := os.Remove(report); err != nil {
		t.Fatal(err)
	}
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

// submittedThroughChannels counts the messages of a chat that came through a channel.
func (p *process) submittedThroughChannels(t testing.TB, chat string) (n int) {
	t.Helper()
	for _, e := range p.history(t, chat) {
		if e.Subject.Kind == (events.MessageSubmitted{}).Kind() && strings.Contains(string(e.Data), `"origin"`) {
			n++
		}
	}
	return n
}

// mailTalk is a conversation by mail.
type mailTalk struct {
	*process
	server *emailtest.Server
	paired emailtest.Mail
	chat   string
}

const annsMailbox = "Ann <ann@example.org>"

func (p *process) startMailTalk(t *testing.T) mailTalk {
	t.Helper()
	server := emailtest.New(t)
	p.addMailbox(t, "mail", server)
	server.Say(t, annsMailbox, p.pairingCode(t, "mail"), "")
	paired := server.AwaitText(t, "You are paired")
	expect.Contains(t, p.command(t, "", "pair", "list"), "ann@example.org")
	expect.Contains(t, p.command(t, "", "channel", "list"), emailtest.Address)
	return mailTalk{p, server, paired, p.chatOfMessage(t, "You are paired")}
}

// ends ends the conversation, and checks that nothing was lost or repeated.
func (p mailTalk) ends(t *testing.T) {
	t.Helper()
	is := is.New(t)
	p.server.AwaitText(t, "and then")
	p.turnEnds(t, p.chat)
	p.server.Say(t, annsMailbox, "Another matter", "@@say last words")
	last := p.server.AwaitText(t, "last words")
	is.Equal(last.Header.Get("Subject"), "Re: Another matter")
	is.Equal(expect.ReadFile(t, filepath.Join(p.workspace, "mailed")), "hello\n")
	var texts []string
	for _, m := range p.server.Mails() {
		is.Equal(m.To, "ann@example.org")
		texts = append(texts, m.Text)
	}
	eachOnce(t, texts, "echo hello >>mailed", "done", "and then", "last words")
	is.Equal(p.submittedThroughChannels(t, p.chat), 2)
	other := p.chatOfMessage(t, "last words")
	is.True(other != p.chat) // each thread is a chat
	is.Equal(p.submittedThroughChannels(t, other), 1)
	for _, e := range p.history(t, p.chat) {
		expect.Lacks(t, string(e.Data), emailtest.Password)
	}
}

func TestFilesComeAndLeaveByMail(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	const carl = "Carl <carl@example.org>"
	server := emailtest.New(t)
	p := openSystem.system(t)
	p.addMailbox(t, "mailbox for files", server)
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
	p := sharedSystem(t)
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
	expect.Contains(t, stderr, `There is no webhook with the id "none"`)
}
