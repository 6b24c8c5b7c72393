package email_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/matryer/is"

	"pocketcoder/bridge/channel/channeltest"
	"pocketcoder/bridge/channel/email"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

func TestAThreadFromPairingToAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.confirmed(s.mail.Say(t, ann, "hello?", "is the assistant there?"))
	is.Equal(len(s.mail.Mails()), 0) // a stranger gets silence
	code := s.Code(s.User("ann", account.User))
	s.confirmed(s.mail.Say(t, ann, code, ""))
	paired := s.mail.AwaitText(t, "You are paired")
	is.Equal(s.Pairings()[0].Address, "ann@example.org")
	s.confirmed(s.mail.Say(t, "Ann <ANN@Example.org>", "The build", "fix the build\n-- \nAnn"))
	is.Equal(s.Submitted(), []string{"fix the build"})
	chats := s.chats()
	is.Equal(len(chats), 2) // each thread is a chat
	s.Answer(chats[1], 1, "<internal>the key is x</internal>Räum auf.\n.\n> 1", channeltest.Finished)
	got := s.mail.AwaitText(t, "Räum auf.")
	is.Equal(got.Text, "Räum auf.\n.\n> 1\n")
	is.Equal(got.To, "ann@example.org")
	is.Equal(got.Header.Get("Subject"), "Re: The build")
	is.Equal(got.InReplyTo, "<3@client.example.org>")
	is.Equal(got.Header.Get("References"), got.InReplyTo)
	is.Equal(got.Header.Get("Auto-Submitted"), "auto-replied")
	is.True(got.ID != paired.ID)
	s.confirmed(s.mail.Reply(t, got, ann, "and the linter"))
	is.Equal(s.Submitted(), []string{"fix the build", "and the linter"})
	is.Equal(s.chats(), chats)
	s.Answer(chats[1], 2, "", `,"error":{"name":"APIError","data":{"message":"the provider says no"}}`)
	got = s.mail.AwaitText(t, "It went wrong: the provider says no")
	is.Equal(got.InReplyTo, "<4@client.example.org>")
	is.Equal(strings.Fields(got.Header.Get("References")), []string{"<3@client.example.org>", "<4@client.example.org>"})
	expect.Lacks(t, s.Lines.String(), channeltest.MailPassword)
}

func TestACodePairsOnceAndOnlyAnAuthenticSender(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	code := s.Code(s.User("ann", account.User))
	forged := strings.Replace(s.mail.Compose(ann, "Subject: x\n", code), "dkim=pass", "dkim=fail", 1)
	s.confirmed(s.mail.Deliver(t, forged))
	is.Equal(len(s.Pairings()), 0)
	expect.Contains(t, s.Lines.String(), "neither DKIM nor SPF passed for exactly example.org")
	s.confirmed(s.mail.Say(t, ann, "x", "/pair "+strings.ToLower(code)+"\nSent from my phone"))
	is.Equal(len(s.Pairings()), 1)
	s.confirmed(s.mail.Say(t, bob, code, code))
	is.Equal(len(s.Pairings()), 1)
}

func TestOnlyTheServersResultForTheDomainOfFromAuthenticates(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.pair(ann, s.User("ann", account.User))
	const from, to = "From: Ann <ann@example.org>\n", "To: assistant@example.org\n"
	cases := map[string]struct {
		header string
		taken  bool
	}{
		"spf":                       {"Authentication-Results: mx.example.org; spf=pass smtp.mailfrom=ann@example.org\n" + from + to, true},
		"spf of a domain":           {"Authentication-Results: MX.example.org 1; spf = pass (ok) smtp.mailfrom=example.org\n" + from + to, true},
		"dkim of an identity":       {"Authentication-Results: mx.example.org;\n dkim=pass header.i=@Example.org header.s=k1;\n spf=fail\n" + from + to, true},
		"one signature of two":      {"Authentication-Results: mx.example.org; dkim=fail header.d=example.org; dkim=pass header.d=example.org\n" + from + to, true},
		"several recipients":        {channeltest.Pass(ann) + from + "To: bob@example.net, The Assistant <Assistant@example.org>\n", true},
		"no result":                 {from + to, false},
		"dkim fails":                {"Authentication-Results: mx.example.org; dkim=fail header.d=example.org; spf=softfail smtp.mailfrom=ann@example.org\n" + from + to, false},
		"dkim of another domain":    {"Authentication-Results: mx.example.org; dkim=pass header.d=example.com\n" + from + to, false},
		"dkim of a subdomain":       {"Authentication-Results: mx.example.org; dkim=pass header.d=evil.example.org\n" + from + to, false},
		"dkim of a longer domain":   {"Authentication-Results: mx.example.org; dkim=pass header.d=notexample.org\n" + from + to, false},
		"spf of another domain":     {"Authentication-Results: mx.example.org; spf=pass smtp.mailfrom=ann@example.com\n" + from + to, false},
		"dmarc alone":               {"Authentication-Results: mx.example.org; dmarc=pass header.from=example.org\n" + from + to, false},
		"another server":            {"Authentication-Results: mx.example.com; dkim=pass header.d=example.org\n" + from + to, false},
		"forged below":              {"Authentication-Results: mx.example.org; dkim=none\nReceived: x\n" + channeltest.Pass(ann) + from + to, false},
		"forged by another server":  {"Authentication-Results: mx.example.com; dkim=pass header.d=example.org\nAuthentication-Results: mx.example.org; spf=none\n" + from + to, false},
		"in a comment":              {"Authentication-Results: mx.example.org; spf=pass (by ; dkim=pass header.d=example.org) smtp.mailfrom=m@example.com\n" + from + to, false},
		"in a quoted local part":    {"Authentication-Results: mx.example.org; spf=pass smtp.mailfrom=\"a; dkim=pass header.d=example.org \"@example.com\n" + from + to, false},
		"in a quoted reason":        {"Authentication-Results: mx.example.org; spf=pass reason=\"x\\\"; dkim=pass header.d=example.org\" smtp.mailfrom=m@example.com\n" + from + to, false},
		"a comment without end":     {"Authentication-Results: mx.example.org; dkim=pass header.d=example.org (\n" + from + to, false},
		"a property twice":          {"Authentication-Results: mx.example.org; dkim=pass header.d=example.com header.d=example.org\n" + from + to, false},
		"another version":           {"Authentication-Results: mx.example.org 2; dkim=pass header.d=example.org\n" + from + to, false},
		"two From fields":           {channeltest.Pass(ann) + from + "From: Mallory <mallory@example.com>\n" + to, false},
		"two addresses in From":     {channeltest.Pass(ann) + "From: ann@example.org, mallory@example.com\n" + to, false},
		"the address as a name":     {"Authentication-Results: mx.example.org; dkim=pass header.d=example.com\nFrom: \"ann@example.org\" <m@example.com>\n" + to, false},
		"a letter that looks alike": {channeltest.Pass(ann) + "From: \u0430nn@example.org\n" + to, false},
		"sent on by a third":        {channeltest.Pass(ann) + from + "To: mallory@example.com\n", false},
		"a blank in a field name":   {"Authentication-Results : mx.example.org; dkim=pass header.d=example.org\n" + from + to, false},
		"a tab in a field name":     {"Authentication-Results\t: mx.example.org; dkim=pass header.d=example.org\n" + from + to, false},
		"a blank in From":           {channeltest.Pass(ann) + "From : Ann <ann@example.org>\n" + to, false},
		"two To fields":             {channeltest.Pass(ann) + from + "To: mallory@example.com\n" + to, false},
	}
	taken := 0
	for name, c := range cases {
		s.confirmed(s.mail.Deliver(t, c.header+"Message-ID: <"+strings.ReplaceAll(name, " ", "-")+"@x>\n\n"+name+"\n"))
		got := len(s.Submitted()) > taken
		if got != c.taken {
			t.Errorf("%s: taken %t", name, got)
		}
		taken = len(s.Submitted())
	}
	is.Equal(taken, 5)
}

func TestAutomaticMailsHaveNoEffect(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.pair(ann, s.User("ann", account.User))
	for _, field := range []string{"Auto-Submitted: auto-replied", "Auto-Submitted: auto-generated; x=y",
		"Precedence: bulk", "Precedence: list", "List-Id: <l.example.org>", "Return-Path: <>", "Content-Type: multipart/report; boundary=x"} {
		s.confirmed(s.mail.Deliver(t, s.mail.Compose(ann, field+"\n", "I am away")))
	}
	s.confirmed(s.mail.Deliver(t, s.mail.Compose(channeltest.MailAddress, "", "to myself")))
	s.confirmed(s.mail.Deliver(t, s.mail.Compose(ann, "Auto-Submitted: no\nReturn-Path: <ann@example.org>\n", "by hand")))
	is.Equal(s.Submitted(), []string{"by hand"})
	is.Equal(len(s.mail.Mails()), 1) // about the pairing
}

func TestACodeInAMailDecidesOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	user := s.User("ann", account.User)
	_, c := s.pair(ann, user)
	s.pair(bob, s.User("bob", account.User))
	s.Request(c, "per_1", "make test")
	asked := s.mail.AwaitText(t, "make test")
	approve, deny := asked.Code("approve"), asked.Code("deny")
	expect.Contains(t, asked.Text, "in /workspace")
	forged := strings.Replace(s.mail.Compose(ann, "", "approve "+approve), "dkim=pass", "dkim=fail", 1)
	s.confirmed(s.mail.Deliver(t, forged))
	s.confirmed(s.mail.Reply(t, asked, bob, "approve "+approve)) // the code is right, the person is not
	s.mail.AwaitText(t, "does not know this code")
	s.confirmed(s.mail.Reply(t, asked, ann, "deny "+approve))
	s.mail.AwaitText(t, "This code is not one to deny")
	s.confirmed(s.mail.Reply(t, asked, ann, "may I approve "+approve))
	is.Equal(len(s.Decisions(c)), 0)
	s.confirmed(s.mail.Reply(t, asked, ann, "Approve "+strings.ToLower(approve)+"\n\nand then the linter"))
	is.Equal(s.Decisions(c), []string{"per_1 authorized user:" + user})
	is.Equal(s.mail.AwaitText(t, "Approved.").InReplyTo != "", true)
	s.confirmed(s.mail.Reply(t, asked, ann, "approve "+approve))
	s.mail.AwaitText(t, "This code was used already")
	s.confirmed(s.mail.Reply(t, asked, ann, "deny "+deny))
	s.mail.AwaitText(t, "decided already")
	is.Equal(len(s.Decisions(c)), 1)
	is.Equal(s.Submitted(), []string{"may I approve " + approve, "and then the linter"})

	s.Request(c, "per_2", strings.Repeat("x", 4000))
	asked = s.mail.AwaitText(t, "This is not all of it")
	is.Equal(asked.Code("approve"), "")
	is.True(asked.Code("deny") != "")
}

func TestAForgedReferenceLeadsToNoOtherSendersChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	paired, c := s.pair(ann, s.User("ann", account.User))
	s.pair(bob, s.User("bob", account.Admin)) // an administrator, who may write in each chat
	s.confirmed(s.mail.Reply(t, paired, bob, "what did she say?"))
	is.Equal(len(s.chats()), 3)
	is.Equal(s.messagesOf(c), 0)
	s.Answer(c, 1, "for ann only", channeltest.Finished)
	is.Equal(s.mail.AwaitText(t, "for ann only").To, "ann@example.org")
	s.confirmed(s.mail.Reply(t, paired, ann, "mine"))
	is.Equal(s.messagesOf(c), 1)
	onlyParent := "In-Reply-To: " + paired.ID + "\n"
	s.confirmed(s.mail.Deliver(t, s.mail.Compose(ann, onlyParent, "mine too")))
	is.Equal(s.messagesOf(c), 2)
}

// messagesOf counts the messages that were submitted in a chat.
func (s *system) messagesOf(chat string) (n int) {
	s.T.Helper()
	_, err := s.Log.Fold(s.T.Context(), events.ChatSubject(chat, "message.submitted"), 0, func(events.Event) error {
		n++
		return nil
	})
	if err != nil {
		s.T.Fatal(err)
	}
	return n
}

func TestAMailIsMarkedOnlyAfterItIsInTheLogAndTakenOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	paired, _ := s.pair(ann, s.User("ann", account.User))
	for n := range 5 {
		stored := make(chan struct{}, 100)
		s.mail.Before(func(command string) error {
			if command == "STORE" {
				stored <- struct{}{}
				return errors.New("the connection breaks before the mail is marked")
			}
			return nil
		})
		uid := s.mail.Reply(t, paired, ann, fmt.Sprint("message ", n))
		<-stored
		is.Equal(len(s.Submitted()), n+1) // it is in the log, and not marked
		s.Stop()
		s.mail.Before(nil)
		s.Start()
		s.confirmed(uid)
	}
	is.Equal(s.Submitted(), []string{"message 0", "message 1", "message 2", "message 3", "message 4"})
	s.confirmed(s.mail.Deliver(t, s.mail.Compose(ann, "Message-ID: <5@client.example.org>\n", "sent again by a third")))
	is.Equal(len(s.Submitted()), 5)
}

func TestWhatCountsOfAMail(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	paired, c := s.pair(ann, s.User("ann", account.User))
	references := "In-Reply-To: " + paired.ID + "\n"
	html := references + "Content-Type: text/html; charset=utf-8\n"
	mixed := references + "Content-Type: multipart/mixed; boundary=b\n"
	for _, x := range []struct{ fields, text, want string }{
		{references, "top\n\nOn 26 November 2026 at 10:00, the assistant <assistant@example.org>\nwrote:\n\n> old\n>> older\n\nbelow\n-- \nAnn", "top\n\nbelow"},
		{references, "What of this:\n> quoted\nyes", "What of this:\nyes"},
		{references, "new\n\n-----Original Message-----\nFrom: x\nold", "new"},
		{references + "Content-Type: text/plain; format=flowed\n", "one \nparagraph\n from here\n> old\n", "one paragraph\nfrom here"},
		{references + "Content-Type: text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable\n", "gr=FC=DFe", "grüße"},
		{references + "Content-Transfer-Encoding: base64\n", "aGVsbG8=", "hello"},
		{html, "<html><head><title>x</title><style>p{}</style></head><body><p>one &amp; two</p><div>three<br>four</div><blockquote>old</blockquote></body></html>", "one & two\nthree\nfour"},
		{references + "Content-Type: multipart/alternative; boundary=b\n", "--b\nContent-Type: text/plain\n\nplain\n--b\nContent-Type: text/html\n\n<b>html</b>\n--b--", "plain"},
		{mixed, "--b\n\nlook\n--b\nContent-Type: text/csv\nContent-Disposition: attachment; filename=\"=?utf-8?q?=C3=A4.csv?=\"\n\n1,2\n--b--", "look|ä.csv"},
		{references + "Subject: only a subject\n", "", "only a subject"},
	} {
		before := len(s.Submitted())
		s.confirmed(s.mail.Deliver(t, s.mail.Compose(ann, x.fields, x.text)))
		is.Equal(strings.Join(s.Submitted()[before:], "|"), x.want)
	}
	before := len(s.Submitted())
	for _, x := range []struct{ fields, text, said string }{
		{references + "Content-Type: multipart/encrypted; boundary=b\n", "--b\n\nx\n--b--", "the mail is encrypted"},
		{mixed, "--b\n\nlook\n--b\nContent-Type: application/zip\n\n" + strings.Repeat("x\n", 400<<10) + "--b--", "files have more than 640 KiB"},
		{references, strings.Repeat("0123456789abcde\n", 10<<16), "the mail has 10880 KiB"},
		{references, "", "the message is empty"},
	} {
		s.confirmed(s.mail.Deliver(t, s.mail.Compose(ann, x.fields, x.text)))
		s.mail.AwaitText(t, x.said)
	}
	is.Equal(len(s.Submitted()), before)
	sent := len(s.mail.Mails())
	s.confirmed(s.mail.Say(t, stranger, "", strings.Repeat("0123456789abcde\n", 10<<16)))
	is.Equal(len(s.mail.Mails()), sent)
	by := handlers.Command{Actor: events.ActorSystem}
	_, err := s.Channels.Chats.Delete(t.Context(), chat.Delete{Command: by, Chat: c})
	is.NoErr(err)
	s.confirmed(s.mail.Reply(t, paired, ann, "still there?"))
	is.Equal(s.Submitted()[before:], []string{"still there?"})
	is.True(s.chats()[0] != c)
}

func TestNoMailStopsTheMailbox(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.pair(ann, s.User("ann", account.User))
	s.confirmed(s.mail.Say(t, stranger, "hello", email.Quotations))
	s.confirmed(s.mail.Say(t, ann, "hello", email.Quotations))
	s.confirmed(s.mail.Say(t, ann, "the build", "fix the build"))
	all := s.Submitted()
	is.Equal(all[len(all)-1], "fix the build")
}

func TestAFloodOfThreadsIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.pair(ann, s.User("ann", account.User))
	var last imap.UID
	for n := range 22 {
		last = s.mail.Say(t, ann, fmt.Sprint("thread ", n), "go")
	}
	s.confirmed(last)
	s.mail.AwaitText(t, `The mail "thread 21" was refused`)
	is.Equal(len(s.chats()), 20) // that of the pairing too
	is.Equal(len(s.Submitted()), 19)
	is.Equal(len(s.mail.Mails()), 1+3) // about the pairing, and three refusals
}

func TestASendingThatFailsIsTriedAgainOrHasFailed(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, c := s.pair(ann, s.User("ann", account.User))
	var tries atomic.Int64
	s.mail.Before(func(command string) error {
		if (command == "MAIL" || command == "END") && tries.Add(1) < 4 {
			return channeltest.Status(451)
		}
		return nil
	})
	s.Answer(c, 1, "first", channeltest.Finished)
	s.mail.AwaitText(t, "first")
	is.Equal(len(s.mail.Mails()), 2)
	is.True(strings.Contains(s.ChannelEvents(c), "sending delayed sending"))

	s.mail.Before(func(command string) error {
		if command == "RCPT" {
			return channeltest.Status(550)
		}
		return nil
	})
	s.Answer(c, 2, "second", channeltest.Finished)
	expect.Eventually(t, "it failed", func() bool { return strings.HasSuffix(s.ChannelEvents(c), "sending failed") })
	expect.Contains(t, s.Reasons(c)[0], "refused by the test")

	s.mail.Before(nil)
	s.Answer(c, 3, "third", channeltest.Finished)
	s.mail.AwaitText(t, "third")
	is.Equal(len(s.mail.Mails()), 3)
}

func TestAMailboxNeedsTheNameOfItsServer(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for name, reason := range map[string]string{"": "Must be the first word", " ": "Must be the first word",
		"mx.example.org;": "Must be the first word", "spf=pass": "Microsoft 365 adds headers without"} {
		_, _, err := s.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: events.ActorSystem}, New: true,
			Collection: channel.Collection, Role: account.Admin, Set: record.Fields(map[string]any{"name": "other", "kind": channel.Email, "server": s.mail.IMAP,
				"smtp": s.mail.SMTP, "address": channeltest.MailAddress, "authserv_id": name})})
		expect.Contains(t, fmt.Sprint(err), reason)
	}
}

func TestAWrongPasswordIsNotTriedAgainAtOnce(t *testing.T) {
	t.Parallel()
	s := newSystemAt(t, channeltest.NewMailServer(t), "zqkv-hjxr-wbdq-tfmv")
	expect.Eventually(t, "the log says so", func() bool {
		return strings.Contains(s.Lines.String(), "log in to the IMAP server as assistant@example.org") &&
			strings.Contains(s.Lines.String(), "again=5m0s")
	})
	expect.Lacks(t, s.Lines.String(), "zqkv-hjxr-wbdq-tfmv")
}

func TestAConversationIsEncrypted(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(testing.TB) *channeltest.MailServer{"TLS": channeltest.NewMailServerTLS,
		"STARTTLS": channeltest.NewMailServerStartTLS} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSystemAt(t, start(t), channeltest.MailPassword)
			s.pair(ann, s.User("ann", account.User)) // a mail comes in, and one leaves
		})
	}
}

func TestAFileOfTheAssistantIsAnAttachment(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	_, c := s.pair(ann, s.User("ann", account.User))
	s.Answer(c, 1, "", channeltest.ToolCalls)
	content := strings.Repeat("\x00\xff\r\n.\r\n", 1000)
	s.SendFile(c, 1, "out/plän \"b\".bin", content, "The plan. Ä")
	got := s.mail.AwaitText(t, "The plan")
	is.Equal([]string{got.Text, got.File}, []string{"The plan. Ä\n", "plän \"b\".bin"})
	is.Equal(got.Content, content)
	is.Equal(got.Header.Get("Subject"), "Re: Please pair me")
	is.True(got.InReplyTo != "")
	const utf16 = "\xff\xfeP\x00"
	s.SendFile(c, 1, "b.txt", utf16, "In UTF-16.")
	is.Equal(s.mail.AwaitText(t, "In UTF-16").Content, utf16)

	var refused atomic.Bool
	s.mail.Before(func(command string) error {
		if command == "END" && !refused.Swap(true) {
			return channeltest.Status(552) // too large
		}
		return nil
	})
	s.SendFile(c, 1, "b.bin", content, "")
	s.mail.AwaitText(t, "The file b.bin could not be sent.")
	is.True(strings.Contains(s.ChannelEvents(c), "sending queued failed sending"))
}
