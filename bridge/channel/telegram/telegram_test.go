package telegram_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf16"

	"github.com/matryer/is"

	"pocketcoder/bridge/channel/channeltest"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/record"
	"pocketcoder/ops/expect"
)

var bySystem = handlers.Command{Actor: events.ActorSystem}

func TestAConversationFromPairingToAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.User("ann", account.User)
	s.say(me, me, "hello?")
	is.Equal(len(s.telegram.Messages()), 0) // a stranger gets silence
	is.Equal(len(s.Submitted()), 0)
	c := s.pair(me, me, ann)
	s.say(me, me, "fix the build")
	is.Equal(s.Submitted(), []string{"fix the build"})
	s.Answer(c, 1, "<internal>the key is x</internal>*done* <b> https://example.org", channeltest.Finished)
	got := s.telegram.AwaitText(t, "done")
	is.Equal(got, channeltest.TelegramMessage{ID: got.ID, Chat: "4711", Text: "*done* <b> https://example.org"})
	s.Answer(c, 2, "a step", channeltest.ToolCalls)
	s.Answer(c, 3, "", `,"error":{"name":"APIError","data":{"message":"the provider says no"}}`)
	s.telegram.AwaitText(t, "It went wrong: the provider says no")
	is.Equal(count(s.telegram.Messages(), "a step"), 0)
	expect.Eventually(t, "all is sent", func() bool { // one may be queued before it is recorded that another was sent
		return strings.Join(slices.Sorted(strings.FieldsSeq(s.ChannelEvents(c))), " ") ==
			"queued queued queued sending sending sending sent sent sent"
	})
	expect.Lacks(t, s.Lines.String(), channeltest.BotToken)
}

func TestAnAnswerIsSentOnceItsTextIsThere(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	s.Append(c, events.SessionBound{Session: "ses_" + c, Directory: "/w"})
	s.AppendOpenCode(c, "message.updated", `{"sessionID":"ses_`+c+
		`","info":{"id":"msg_1","role":"assistant","time":{"completed":5}`+channeltest.Finished+`}}`)
	s.Request(c, "per_1", "make")
	s.telegram.AwaitText(t, "make") // the answer would have been sent before
	s.Answer(c, 1, "it is done", channeltest.Finished)
	s.telegram.AwaitText(t, "it is done")
	is.New(t).Equal(count(s.telegram.Messages(), "The turn is over"), 0)
}

func TestACodePairsOnceAndGuessesAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.User("ann", account.User)
	code := s.Code(ann)
	for range 6 {
		s.say(stranger, stranger, "/start AAAAAAAAAAAA")
	}
	s.say(stranger, stranger, "/start "+code) // too many guesses
	is.Equal(len(s.Pairings()), 0)
	for n := range int64(100) { // many strangers do not keep others from pairing
		s.telegram.Say(stranger+10+n/5, stranger+10+n/5, "/start AAAAAAAAAAAA")
	}
	s.say(me, me, strings.ToLower(code))
	is.Equal(len(s.Pairings()), 1)
	s.say(stranger+1, stranger+1, code)
	is.Equal(len(s.Pairings()), 1)
	is.Equal(s.Pairings()[0].Address, "4711")
	s.telegram.AwaitText(t, "You are paired")
	for _, m := range s.telegram.Messages() {
		is.Equal(m.Chat, "4711")
	}
}

func TestARevokedPairingIsAStranger(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.User("ann", account.User)
	c := s.pair(me, me, ann)
	sent := len(s.telegram.Messages())
	_, err := s.Channels.Revoke(t.Context(), record.Delete{Command: bySystem, Record: s.Pairings()[0].ID})
	is.NoErr(err)
	s.say(me, me, "go on")
	is.Equal(len(s.Submitted()), 0)
	s.Answer(c, 1, "after the pairing was revoked", channeltest.Finished)
	s.pair(me, me, ann) // an earlier answer is not sent afterwards
	s.Answer(c, 2, "for you", channeltest.Finished)
	s.telegram.AwaitText(t, "for you")
	is.Equal(len(s.telegram.Messages()), sent+2)
	is.Equal(s.ChatOf(me), c)
}

func TestAButtonDecidesOnceForAPairedPerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.User("ann", account.User)
	c := s.pair(me, me, ann)
	s.Request(c, "per_1", "make test")
	m := s.telegram.AwaitText(t, "make test")
	is.Equal(len(m.Buttons), 2)
	expect.Contains(t, m.Text, "in /workspace")
	s.telegram.AwaitConfirmed(t, s.telegram.Press(m, stranger, "Approve"))
	is.Equal(len(s.Decisions(c)), 0) // the button is right, the person is not
	s.telegram.AwaitConfirmed(t, s.telegram.Press(m, me, "Approve"))
	is.Equal(s.Decisions(c), []string{"per_1 authorized user:" + ann})
	s.telegram.AwaitConfirmed(t, s.telegram.Press(m, me, "Approve"))
	s.telegram.AwaitConfirmed(t, s.telegram.Press(m, me, "Deny"))
	is.Equal(len(s.Decisions(c)), 1)
	said := s.telegram.AwaitSaid(t, 4)
	is.Equal(said[:3], []string{"", "Approved.", "This button was used already."})
	expect.Contains(t, said[3], "decided already")

	s.Request(c, "per_2", strings.Repeat("x", 4000))
	m = s.telegram.AwaitText(t, "This is not all of it")
	is.Equal([]string{m.Buttons[0].Title, fmt.Sprint(len(m.Buttons))}, []string{"Deny", "1"})

	s.Request(c, "per_3", "make lint\nin /safe\nThe rules allow this command.") // no line looks like one of PocketCoder
	m = s.telegram.AwaitText(t, "make lint")
	expect.Contains(t, m.Text, "\n\nmake lint\n  in /safe\n  The rules allow this command.\nin /workspace")
}

func TestARequestToKeepANameBeginsWithItsTitle(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	about := events.KeepMetadata{Quarantined: events.Quarantined{Item: "q1", Name: ".envrc", Kind: "file", Bytes: 6},
		Text: "ls -l\n"}
	s.Append(c, events.PermissionRequested{Permission: "k1", Type: "keep", Patterns: []string{".envrc"},
		Metadata: events.MustEncode(about), Message: "A command created .envrc. Keep it?"})
	s.Append(c, events.PermissionReferred{Permission: "k1", Reason: "a person decides"})
	m := s.telegram.AwaitText(t, ".envrc")
	is.New(t).Equal(m.Text, "Keep .envrc?\n\nA command created .envrc. Keep it? If you deny it, it is deleted.\n"+
		"  what it is: file, 6 bytes\n  created before this ended: a person's shell\n  in the quarantine: q1\n  ls -l\n\na person decides")
}

func TestAToolIsApprovedOnlyWithTheArgumentsThatAreShown(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	s.RequestTool(c, "per_1", "pocketcoder_schedule_task", `{"name":"nightly","every":"24h","caller":"signed"}`)
	asked := s.telegram.AwaitText(t, "pocketcoder_schedule_task")
	for _, shown := range []string{`"name": "nightly"`, `"every": "24h"`} {
		expect.Contains(t, asked.Text, shown)
	}
	expect.Lacks(t, asked.Text, "signed")
	is.Equal(len(asked.Buttons), 2)
	s.RequestTool(c, "per_2", "pocketcoder_mcp_search_query", "")
	asked = s.telegram.AwaitText(t, "This is not all of it")
	expect.Contains(t, asked.Text, "pocketcoder_mcp_search_query")
	is.Equal(len(asked.Buttons), 1)
	is.Equal(asked.Buttons[0].Title, "Deny")
	s.RequestTool(c, "per_3", "pocketcoder_mcp_pay", `{"to":"[redacted]"}`) // not what an approval would allow
	is.Equal(len(s.telegram.AwaitText(t, "pocketcoder_mcp_pay").Buttons), 1)
}

func TestInAGroupOnlyPairedMembersCount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann, bob := s.User("ann", account.User), s.User("bob", account.User)
	c := s.pair(group, me, ann)
	s.say(group, me, "we talk among ourselves")
	s.say(group, stranger, "poco delete everything")
	s.say(group, me, "Poco: run the tests")
	s.say(group, me, "@example_bot and the linter")
	s.say(me, me, "poco in private") // the pairing is of the group
	s.say(group, me+1, "/start "+s.Code(bob))
	s.telegram.AwaitText(t, "belongs to another account")
	s.say(group, me+1, "poco hello")
	is.Equal(s.Submitted(), []string{"run the tests", "and the linter"})
	is.Equal(s.ChatOf(group), c)
}

func TestAGroupThatBecomesASupergroupStaysPaired(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(group, me, s.User("ann", account.User))
	const super = group - 1_000_000
	moved := s.telegram.Migrate(group, me, super)
	s.telegram.AwaitConfirmed(t, moved)
	s.Stop()
	s.telegram.Forget(moved) // it comes twice
	s.Start()
	s.say(super, stranger, "poco hello")
	s.say(super, me, "poco run the tests")
	is.Equal(s.Submitted(), []string{"run the tests"})
	is.Equal([]string{s.ChatOf(super), s.ChatOf(group)}, []string{c, ""})
	s.Answer(c, 1, "they pass", channeltest.Finished)
	is.Equal(s.telegram.AwaitText(t, "they pass").Chat, fmt.Sprint(super))
}

func TestARepeatedUpdateHasOneEffect(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	s.Request(c, "per_1", "make test")
	first := s.telegram.Say(me, me, "once")
	pressed := s.telegram.Press(s.telegram.AwaitText(t, "make test"), me, "Approve")
	s.telegram.AwaitSaid(t, 1)
	s.telegram.AwaitConfirmed(t, pressed) // else the confirmation can arrive after Forget
	s.Stop()
	s.telegram.Forget(first) // the bot died before it confirmed
	s.Start()
	s.say(me, me, "twice")
	is.Equal(s.Submitted(), []string{"once", "twice"})
	is.Equal(len(s.Decisions(c)), 1)
	is.Equal(s.telegram.AwaitSaid(t, 2)[1], "Approved.")
}

func TestARepeatedUpdateHasNoEffectInANewChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.pair(me, me, s.User("ann", account.User))
	first := s.telegram.Say(me, me, "once")
	s.say(me, me, "/new")
	s.Stop()
	s.telegram.Forget(first)
	s.Start()
	s.say(me, me, "last")
	is.Equal(s.Submitted(), []string{"once", "last"})
}

func TestAnUpdateIsConfirmedOnlyAfterItIsInTheLog(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.pair(me, me, s.User("ann", account.User))
	asked := make(chan struct{}, 1000)
	s.telegram.After(func(method string) {
		if method == "getUpdates" {
			asked <- struct{}{}
		}
	})
	s.Stop()
	for n := range 30 {
		s.telegram.Say(me, me, fmt.Sprint("message ", n))
		s.Start()
		<-asked // the updates are on their way to the bot
		s.Stop()
	}
	s.Start()
	s.say(me, me, "last")
	got := s.Submitted()
	for n := range 20 { // further ones are refused while so many wait
		is.Equal(got[n], fmt.Sprint("message ", n))
	}
	s.telegram.AwaitText(t, "was refused")
}

func TestAMessageThatMayHaveArrivedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	var cut atomic.Bool
	s.telegram.After(func(method string) {
		if method == "sendMessage" && !cut.Swap(true) {
			panic(http.ErrAbortHandler) // Telegram has it, and the answer is lost
		}
	})
	s.Answer(c, 1, "the answer", channeltest.Finished)
	s.telegram.AwaitText(t, "may not have reached you")
	is.Equal(count(s.telegram.Messages(), "the answer"), 1)
	s.Stop()

	s.Append(c, events.ChannelQueued{Message: "o1", Channel: s.Channel, Place: "4711", Type: events.OutgoingAnswer,
		Text: "of another process"})
	s.Append(c, events.ChannelSending{Message: "o1"})
	s.Start()
	s.telegram.Await(t, "it is said", func(all []channeltest.TelegramMessage) bool {
		return count(append(all[:0:0], all...), "may not have") == 2
	})
	is.Equal(count(s.telegram.Messages(), "of another process"), 0)
}

// The log may refuse the result of a try, for example because the disk is full.
func TestATryWithoutAResultIsNotRepeated(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	release := make(chan struct{})
	s.telegram.After(func(method string) {
		if method == "sendMessage" {
			<-release
		}
	})
	s.Answer(c, 1, "the answer", channeltest.Finished)
	s.telegram.AwaitText(t, "the answer") // the next one waits
	s.Append(c, events.ChannelQueued{Message: "o1", Channel: s.Channel, Place: "4711", Type: events.OutgoingAnswer,
		Text: "of an earlier try"})
	s.Append(c, events.ChannelSending{Message: "o1"})
	close(release)
	s.telegram.AwaitText(t, "may not have reached you")
	is.Equal(count(s.telegram.Messages(), "of an earlier try"), 0)
}

func TestTelegramMayRefuseForAWhile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	var refused atomic.Int64
	s.telegram.Before(func(method string, w http.ResponseWriter) bool {
		if method != "sendMessage" || refused.Add(1) > 3 {
			return false
		}
		if refused.Load() == 1 {
			channeltest.Refuse(w, http.StatusTooManyRequests, "Too Many Requests: retry after 1", 1)
		} else {
			channeltest.Refuse(w, http.StatusBadGateway, "Bad Gateway", 0)
		}
		return true
	})
	long := strings.Repeat("ä😀 line\n", 2000)
	s.Answer(c, 1, long, channeltest.Finished)
	s.Answer(c, 2, "second", channeltest.Finished)
	s.telegram.AwaitText(t, "second")
	var whole strings.Builder
	for _, m := range s.telegram.Messages()[1:] {
		is.True(len(utf16.Encode([]rune(m.Text))) <= 4096)
		whole.WriteString(m.Text + "\n")
	}
	is.Equal(whole.String(), strings.TrimSpace(long)+"\nsecond\n") // in order, nothing twice
	is.Equal(strings.Count(s.ChannelEvents(c), "delayed"), 3)

	s.telegram.RefuseAll("sendMessage", http.StatusForbidden, "Forbidden: bot was blocked by the user", 0)
	s.Answer(c, 3, "third", channeltest.Finished)
	expect.Eventually(t, "it failed", func() bool { return strings.HasSuffix(s.ChannelEvents(c), "sending failed") })
}

func TestTheReasonOfAFailureIsShort(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	for n, answer := range []func(http.ResponseWriter){
		func(w http.ResponseWriter) {
			w.WriteHeader(502)
			fmt.Fprint(w, "<html>", strings.Repeat("Bad Gateway\n", 1000))
		},
		func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat(" ", 5<<20), `{"ok":true}`) },
		func(w http.ResponseWriter) {
			channeltest.Refuse(w, http.StatusBadRequest, strings.Repeat("Bad\nRequest ", 1000), 0)
		},
	} {
		s.telegram.Before(func(method string, w http.ResponseWriter) bool {
			if method == "sendMessage" {
				answer(w)
			}
			return method == "sendMessage"
		})
		s.Append(c, events.ChannelQueued{Message: fmt.Sprint("o", n), Channel: s.Channel, Place: "4711",
			Type: events.OutgoingNotice, Text: "x"})
		expect.Eventually(t, "it failed", func() bool { return len(s.Reasons(c)) == n+1 })
		is.True(len(s.Reasons(c)[n]) <= 200)
		expect.Lacks(t, s.Reasons(c)[n], "html")
		expect.Lacks(t, s.Reasons(c)[n], "\n")
	}
	is.True(len(s.Lines.String()) < 4000)
}

func TestTheOldestOfTooManyMessagesIsDropped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	s.telegram.RefuseAll("sendMessage", http.StatusServiceUnavailable, "", 0)
	for n := range 110 {
		s.Append(c, events.ChannelQueued{Message: fmt.Sprint("o", n), Channel: s.Channel, Place: "4711",
			Type: events.OutgoingNotice, Text: fmt.Sprintf("[%d]", n)})
	}
	expect.Eventually(t, "ten are dropped", func() bool { return strings.Count(s.ChannelEvents(c), "failed") == 10 })
	s.telegram.Before(nil)
	s.telegram.AwaitText(t, "[109]")
	is.Equal(len(s.telegram.Messages()), 1+100)
	is.Equal(count(s.telegram.Messages(), "[1]"), 0)
}

func TestThePersonLearnsThatTheAssistantLostItsMemory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	s.say(me, me, "go on")
	var message string
	_, err := s.Log.Fold(t.Context(), events.ChatSubject(c, "message.submitted"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		message = d.(events.MessageSubmitted).Message
		return err
	})
	is.NoErr(err)
	s.Append(c, events.SessionReplaced{Message: message, Before: "ses_1", Session: "ses_2", Reason: "the session is lost"})
	s.telegram.AwaitText(t, "the session is lost")
	s.Answer(c, 1, "what do you mean?", channeltest.Finished)
	s.telegram.AwaitText(t, "what do you mean?")
	is.Equal(count(s.telegram.Messages(), "the session is lost"), 1)
}

func TestAFloodOfMessagesIsRefused(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.pair(me, me, s.User("ann", account.User))
	for n := range 22 { // none is answered
		s.telegram.Say(me, me, fmt.Sprint("message ", n))
	}
	s.say(me, me, "one more")
	s.telegram.Await(t, "three are refused", func(all []channeltest.TelegramMessage) bool {
		return count(all, "20 messages wait already, so this one was refused.") == 3
	})
	is.Equal(len(s.Submitted()), 20)
	is.Equal(s.Submitted()[19], "message 19")

	s.say(me, me, "/stop") // holds the 20, which only the next message releases
	s.telegram.AwaitText(t, "The turn is stopped. The messages that wait are sent when you send the next one.")
	s.say(me, me, "go on")
	is.Equal(len(s.Submitted()), 21)
	is.Equal(s.Submitted()[20], "go on")
	s.say(me, me, "too many") // they wait again
	is.Equal(len(s.Submitted()), 21)
}

func TestFilesAndADeletedChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	s.telegram.SendFile(me, me, "a.txt", "text/plain", []byte("hello"), 5)
	s.telegram.SendFile(me, me, "big.iso", "application/x-iso", nil, 10<<20)
	s.telegram.AwaitText(t, "the file has 10240 KiB")
	is.Equal(s.Submitted(), []string{"a.txt"})
	_, err := s.Channels.Chats.Delete(t.Context(), chat.Delete{Command: bySystem, Chat: c})
	is.NoErr(err)
	s.say(me, me, "still there?")
	next := s.ChatOf(me)
	is.True(next != c)
	s.say(me, me, "/new")
	s.telegram.AwaitText(t, "This is a new chat")
	is.True(s.ChatOf(me) != next)
	is.Equal(s.Submitted(), []string{"a.txt", "still there?"})
}

func TestADisabledAccountOrChannelIsSilent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.User("ann", account.User)
	s.User("root", account.Admin)
	s.pair(me, me, ann)
	yes := true
	_, err := s.Accounts.UpdateAccount(t.Context(), account.UpdateAccount{Command: bySystem, Account: ann, Disabled: &yes})
	is.NoErr(err)
	s.say(me, me, "hello")
	is.Equal(len(s.Submitted()), 0)
	_, err = s.Channels.CreateCode(t.Context(), channel.NewCode{Channel: "bot", User: ann})
	is.Equal(handlers.CodeOf(err), handlers.Invalid)
}

func TestADisabledAccountGetsNoAnswers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.User("ann", account.User)
	s.User("root", account.Admin)
	c := s.pair(me, me, ann)
	yes := true
	seq, err := s.Accounts.UpdateAccount(t.Context(), account.UpdateAccount{Command: bySystem, Account: ann,
		Disabled: &yes})
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	s.Answer(c, 1, "for a disabled account", channeltest.Finished)
	bob := s.User("bob", account.User)
	s.pair(me+1, me+1, bob) // its notice leaves after that
	for _, m := range s.telegram.Messages() {
		expect.Lacks(t, m.Text, "for a disabled account")
	}
}

func TestAFormerOwnerGetsNoAnswers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann, bob := s.User("ann", account.User), s.User("bob", account.User)
	c := s.pair(me, me, ann)
	seq, err := (&chat.Chats{Log: s.Log}).Update(t.Context(), chat.Update{Command: bySystem, Chat: c, User: &bob})
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	s.Answer(c, 1, "for bob only", channeltest.Finished)
	s.pair(me+1, me+1, bob)
	for _, m := range s.telegram.Messages() {
		expect.Lacks(t, m.Text, "for bob only")
	}
}

func TestAQueuedAnswerStaysHereAfterTheRevocation(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.User("ann", account.User)
	c := s.pair(me, me, ann)
	s.telegram.RefuseAll("sendMessage", http.StatusBadGateway, "Bad Gateway", 0)
	s.Answer(c, 1, "queued before", channeltest.Finished)
	expect.Eventually(t, "delayed", func() bool {
		return len(s.ChannelEvents(c)) > len("queued sending sent queued sending delayed")
	})
	seq, err := s.Channels.Revoke(t.Context(), record.Delete{Command: bySystem, Record: s.Pairings()[0].ID})
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	expect.Eventually(t, "it failed", func() bool { return strings.HasSuffix(s.ChannelEvents(c), "failed") })
	s.telegram.Before(nil)
	bob := s.User("bob", account.User)
	s.pair(me+1, me+1, bob)
	for _, m := range s.telegram.Messages() {
		expect.Lacks(t, m.Text, "queued before")
	}
}

// deliveries counts the documents with a name that the bot has sent.
func deliveries(all []channeltest.TelegramMessage, name string) (n int) {
	for _, m := range all {
		if m.File == name {
			n++
		}
	}
	return n
}

func TestAnAnswerThatIsNotWholeSaysSo(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	const goOn = ` Write "continue" to go on.`
	s.Answer(c, 1, "half of", `,"finish":"length"`)
	is.Equal(s.telegram.AwaitText(t, "half of").Text,
		"half of\n\nThe answer was cut: the model reached its limit of output."+goOn)
	s.Answer(c, 2, "", channeltest.Finished)
	s.telegram.AwaitText(t, "The model ended its turn without an answer."+goOn)
	s.Answer(c, 3, "", `,"finish":"unknown"`)
	s.telegram.AwaitText(t, "It went wrong: The turn was lost: OpenCode or the answer of the model ended in the middle of it.")
	s.Answer(c, 4, "", `,"finish":"content-filter"`)
	s.telegram.AwaitText(t, "The provider's content filter blocked the answer.")
}

func TestAFileOfTheAssistantIsADocument(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	s.Answer(c, 1, "", channeltest.ToolCalls)
	s.SendFile(c, 1, "out/plän \"b\".txt", "<plan>", "The *plan*<internal>, a draft</internal>")
	got := s.telegram.AwaitText(t, "plan")
	is.Equal(got, channeltest.TelegramMessage{ID: got.ID, Chat: "4711", Text: "The *plan*", File: "plän \"b\".txt",
		Content: "<plan>"})
	s.Answer(c, 2, "", channeltest.ToolCalls)
	s.SendFile(c, 2, "large", strings.Repeat("x", chat.MaxSentFile), "")
	s.Answer(c, 3, "that is all", channeltest.Finished)
	s.telegram.AwaitText(t, "that is all")
	is.Equal(deliveries(s.telegram.Messages(), "large"), 1)
	is.Equal(len(s.telegram.Messages()), 4)
}

func TestAFileIsSentOnceAcrossRestarts(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	s.Answer(c, 1, "", channeltest.ToolCalls)
	s.Stop()
	s.SendFile(c, 1, "a.txt", "a", "first") // nothing sends it before the restart
	s.Start()
	s.telegram.AwaitText(t, "first")
	s.Stop()
	s.Start()
	var cut atomic.Bool
	s.telegram.After(func(method string) {
		if method == "sendDocument" && !cut.Swap(true) {
			panic(http.ErrAbortHandler) // Telegram has it, and the answer is lost
		}
	})
	s.SendFile(c, 1, "b.txt", "b", "second")
	s.telegram.AwaitText(t, "may not have reached you")
	s.Stop()
	s.Start()
	s.Answer(c, 2, "last", channeltest.Finished)
	s.telegram.AwaitText(t, "last")
	is.Equal(deliveries(s.telegram.Messages(), "a.txt"), 1)
	is.Equal(deliveries(s.telegram.Messages(), "b.txt"), 1)
}

func TestAFileThatCannotBeSentStopsNothing(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.User("ann", account.User))
	s.Answer(c, 1, "", channeltest.ToolCalls)
	s.telegram.RefuseAll("sendDocument", http.StatusRequestEntityTooLarge, "Request Entity Too Large", 0)
	s.SendFile(c, 1, "a.txt", "a", "")
	s.telegram.AwaitText(t, "The file a.txt could not be sent. It is in the chat: https://code.example.org/?chat="+c)
	s.telegram.Before(nil)
	s.Append(c, events.FileSent{File: "gone", MessageID: "msg_1", Part: "prt_1", Path: "b.txt",
		Content: events.Blob{Name: "sha256-00", Size: 1, SHA256: "00"}})
	expect.Eventually(t, "the other failed", func() bool { return len(s.Reasons(c)) == 2 })
	is.Equal(s.Reasons(c)[1], "the content of the file is not in the log")
	other, err := s.Log.Blobs.PutByHash(t.Context(), []byte("not the content"))
	is.NoErr(err)
	other.SHA256 = "00"
	s.Append(c, events.FileSent{File: "damaged", MessageID: "msg_1", Part: "prt_1", Path: "c.txt", Content: other})
	expect.Eventually(t, "the damaged one failed", func() bool { return len(s.Reasons(c)) == 3 })
	s.telegram.AwaitText(t, "The file c.txt could not be sent.")
	s.Answer(c, 2, "last", channeltest.Finished)
	s.telegram.AwaitText(t, "last")
}

func TestAFileStaysHereAfterTheRevocation(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.User("ann", account.User)
	c := s.pair(me, me, ann)
	s.Answer(c, 1, "", channeltest.ToolCalls)
	s.telegram.RefuseAll("sendDocument", http.StatusBadGateway, "Bad Gateway", 0)
	s.SendFile(c, 1, "queued.txt", "a", "")
	expect.Eventually(t, "delayed", func() bool { return strings.Contains(s.ChannelEvents(c), "delayed") })
	seq, err := s.Channels.Revoke(t.Context(), record.Delete{Command: bySystem, Record: s.Pairings()[0].ID})
	is.NoErr(err)
	is.NoErr(s.Model.Wait(t.Context(), seq))
	expect.Eventually(t, "it failed", func() bool { return strings.HasSuffix(s.ChannelEvents(c), "failed") })
	s.telegram.Before(nil)
	s.SendFile(c, 1, "later.txt", "a", "")
	s.pair(me, me, ann)
	s.SendFile(c, 1, "again.txt", "a", "for you")
	s.telegram.AwaitText(t, "for you")
	is.Equal(deliveries(s.telegram.Messages(), "queued.txt"), 0)
	is.Equal(deliveries(s.telegram.Messages(), "later.txt"), 0)
}
