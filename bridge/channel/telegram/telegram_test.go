package telegram_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf16"

	"github.com/matryer/is"

	"pocketcoder/bridge/channel/telegramtest"
	"pocketcoder/events"
	"pocketcoder/expect"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/record"
)

var bySystem = handlers.Command{Actor: events.ActorSystem}

func TestAConversationFromPairingToAnswer(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.user("ann", account.User)
	s.say(me, me, "hello?")
	is.Equal(len(s.telegram.Messages()), 0) // a stranger gets silence
	is.Equal(len(s.submitted()), 0)
	c := s.pair(me, me, ann)
	s.say(me, me, "fix the build")
	is.Equal(s.submitted(), []string{"fix the build"})
	s.answer(c, 1, "<internal>the key is x</internal>*done* <b> https://example.org", finished)
	got := s.telegram.AwaitText(t, "done")
	is.Equal(got, telegramtest.Message{ID: got.ID, Chat: "4711", Text: "*done* <b> https://example.org"})
	s.answer(c, 2, "a step", `,"finish":"tool-calls"`)
	s.answer(c, 3, "", `,"error":{"name":"APIError","data":{"message":"the provider says no"}}`)
	s.telegram.AwaitText(t, "It went wrong: the provider says no")
	is.Equal(count(s.telegram.Messages(), "a step"), 0)
	expect.Eventually(t, "all is sent", func() bool {
		return s.channelEvents(c) == "queued sending sent queued sending sent queued sending sent"
	})
	expect.Lacks(t, s.lines.String(), telegramtest.Token)
}

func TestACodePairsOnceAndGuessesAreLimited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.user("ann", account.User)
	code := s.code(ann)
	for range 6 {
		s.say(stranger, stranger, "/start AAAAAAAAAAAA")
	}
	s.say(stranger, stranger, "/start "+code) // too many guesses
	is.Equal(len(s.pairings()), 0)
	for n := range int64(100) { // many strangers do not keep others from pairing
		s.telegram.Say(stranger+10+n/5, stranger+10+n/5, "/start AAAAAAAAAAAA")
	}
	s.say(me, me, strings.ToLower(code))
	is.Equal(len(s.pairings()), 1)
	s.say(stranger+1, stranger+1, code)
	is.Equal(len(s.pairings()), 1)
	is.Equal(s.pairings()[0].Address, "4711")
	s.telegram.AwaitText(t, "You are paired")
	for _, m := range s.telegram.Messages() {
		is.Equal(m.Chat, "4711")
	}
}

func TestARevokedPairingIsAStranger(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.user("ann", account.User)
	c := s.pair(me, me, ann)
	sent := len(s.telegram.Messages())
	_, err := s.channels.Revoke(t.Context(), record.Delete{Command: bySystem, Record: s.pairings()[0].ID})
	is.NoErr(err)
	s.say(me, me, "go on")
	is.Equal(len(s.submitted()), 0)
	s.answer(c, 1, "after the pairing was revoked", finished)
	s.pair(me, me, ann) // an earlier answer is not sent afterwards
	s.answer(c, 2, "for you", finished)
	s.telegram.AwaitText(t, "for you")
	is.Equal(len(s.telegram.Messages()), sent+2)
	is.Equal(s.chatOf(me), c)
}

func TestAButtonDecidesOnceForAPairedPerson(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.user("ann", account.User)
	c := s.pair(me, me, ann)
	s.request(c, "per_1", "make test")
	m := s.telegram.AwaitText(t, "make test")
	is.Equal(len(m.Buttons), 2)
	expect.Contains(t, m.Text, "in /workspace")
	s.telegram.AwaitConfirmed(t, s.telegram.Press(m, stranger, "Approve"))
	is.Equal(len(s.decisions(c)), 0) // the button is right, the person is not
	s.telegram.AwaitConfirmed(t, s.telegram.Press(m, me, "Approve"))
	is.Equal(s.decisions(c), []string{"per_1 authorized user:" + ann})
	s.telegram.AwaitConfirmed(t, s.telegram.Press(m, me, "Approve"))
	s.telegram.AwaitConfirmed(t, s.telegram.Press(m, me, "Deny"))
	is.Equal(len(s.decisions(c)), 1)
	said := s.telegram.AwaitSaid(t, 4)
	is.Equal(said[:3], []string{"", "Approved.", "This button was used already."})
	expect.Contains(t, said[3], "decided already")

	s.request(c, "per_2", strings.Repeat("x", 4000))
	m = s.telegram.AwaitText(t, "This is not all of it")
	is.Equal([]string{m.Buttons[0].Title, fmt.Sprint(len(m.Buttons))}, []string{"Deny", "1"})
}

func TestInAGroupOnlyPairedMembersCount(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann, bob := s.user("ann", account.User), s.user("bob", account.User)
	c := s.pair(group, me, ann)
	s.say(group, me, "we talk among ourselves")
	s.say(group, stranger, "poco delete everything")
	s.say(group, me, "Poco: run the tests")
	s.say(group, me, "@example_bot and the linter")
	s.say(me, me, "poco in private") // the pairing is of the group
	s.say(group, me+1, "/start "+s.code(bob))
	s.telegram.AwaitText(t, "belongs to another account")
	s.say(group, me+1, "poco hello")
	is.Equal(s.submitted(), []string{"run the tests", "and the linter"})
	is.Equal(s.chatOf(group), c)
}

func TestAGroupThatBecomesASupergroupStaysPaired(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(group, me, s.user("ann", account.User))
	const super = group - 1_000_000
	moved := s.telegram.Migrate(group, me, super)
	s.telegram.AwaitConfirmed(t, moved)
	s.stop()
	s.telegram.Forget(moved) // it comes twice
	s.start()
	s.say(super, stranger, "poco hello")
	s.say(super, me, "poco run the tests")
	is.Equal(s.submitted(), []string{"run the tests"})
	is.Equal([]string{s.chatOf(super), s.chatOf(group)}, []string{c, ""})
	s.answer(c, 1, "they pass", finished)
	is.Equal(s.telegram.AwaitText(t, "they pass").Chat, fmt.Sprint(super))
}

func TestARepeatedUpdateHasOneEffect(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.user("ann", account.User))
	s.request(c, "per_1", "make test")
	first := s.telegram.Say(me, me, "once")
	s.telegram.Press(s.telegram.AwaitText(t, "make test"), me, "Approve")
	s.telegram.AwaitSaid(t, 1)
	s.stop()
	s.telegram.Forget(first) // the bot died before it confirmed
	s.start()
	s.say(me, me, "twice")
	is.Equal(s.submitted(), []string{"once", "twice"})
	is.Equal(len(s.decisions(c)), 1)
	is.Equal(s.telegram.AwaitSaid(t, 2)[1], "Approved.")
}

func TestARepeatedUpdateHasNoEffectInANewChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.pair(me, me, s.user("ann", account.User))
	first := s.telegram.Say(me, me, "once")
	s.say(me, me, "/new")
	s.stop()
	s.telegram.Forget(first)
	s.start()
	s.say(me, me, "last")
	is.Equal(s.submitted(), []string{"once", "last"})
}

func TestAnUpdateIsConfirmedOnlyAfterItIsInTheLog(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	s.pair(me, me, s.user("ann", account.User))
	asked := make(chan struct{}, 1000)
	s.telegram.After(func(method string) {
		if method == "getUpdates" {
			asked <- struct{}{}
		}
	})
	s.stop()
	for n := range 30 {
		s.telegram.Say(me, me, fmt.Sprint("message ", n))
		s.start()
		<-asked // the updates are on their way to the bot
		s.stop()
	}
	s.start()
	s.say(me, me, "last")
	got := s.submitted()
	for n := range 20 { // further ones are refused while so many wait
		is.Equal(got[n], fmt.Sprint("message ", n))
	}
	s.telegram.AwaitText(t, "was not taken")
}

func TestAMessageThatMayHaveArrivedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.user("ann", account.User))
	var cut atomic.Bool
	s.telegram.After(func(method string) {
		if method == "sendMessage" && !cut.Swap(true) {
			panic(http.ErrAbortHandler) // Telegram has it, and the answer is lost
		}
	})
	s.answer(c, 1, "the answer", finished)
	s.telegram.AwaitText(t, "may not have reached you")
	is.Equal(count(s.telegram.Messages(), "the answer"), 1)
	s.stop()

	s.append(c, events.ChannelQueued{Message: "o1", Channel: s.channel, Place: "4711", Type: events.OutgoingAnswer,
		Text: "of another process"})
	s.append(c, events.ChannelSending{Message: "o1"})
	s.start()
	s.telegram.Await(t, "it is said", func(all []telegramtest.Message) bool {
		return count(append(all[:0:0], all...), "may not have") == 2
	})
	is.Equal(count(s.telegram.Messages(), "of another process"), 0)
}

func TestTelegramMayRefuseForAWhile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.user("ann", account.User))
	var refused atomic.Int64
	s.telegram.Before(func(method string, w http.ResponseWriter) bool {
		if method != "sendMessage" || refused.Add(1) > 3 {
			return false
		}
		if refused.Load() == 1 {
			telegramtest.Refuse(w, http.StatusTooManyRequests, "Too Many Requests: retry after 1", 1)
		} else {
			telegramtest.Refuse(w, http.StatusBadGateway, "Bad Gateway", 0)
		}
		return true
	})
	long := strings.Repeat("ä😀 line\n", 2000)
	s.answer(c, 1, long, finished)
	s.answer(c, 2, "second", finished)
	s.telegram.AwaitText(t, "second")
	var whole strings.Builder
	for _, m := range s.telegram.Messages()[1:] {
		is.True(len(utf16.Encode([]rune(m.Text))) <= 4096)
		whole.WriteString(m.Text + "\n")
	}
	is.Equal(whole.String(), strings.TrimSpace(long)+"\nsecond\n") // in order, nothing twice
	is.Equal(strings.Count(s.channelEvents(c), "delayed"), 3)

	s.telegram.Before(func(method string, w http.ResponseWriter) bool {
		if method == "sendMessage" {
			telegramtest.Refuse(w, http.StatusForbidden, "Forbidden: bot was blocked by the user", 0)
		}
		return method == "sendMessage"
	})
	s.answer(c, 3, "third", finished)
	expect.Eventually(t, "it failed", func() bool { return strings.HasSuffix(s.channelEvents(c), "sending failed") })
}

func TestTheReasonOfAFailureIsShort(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.user("ann", account.User))
	for n, answer := range []func(http.ResponseWriter){
		func(w http.ResponseWriter) {
			w.WriteHeader(502)
			fmt.Fprint(w, "<html>", strings.Repeat("Bad Gateway\n", 1000))
		},
		func(w http.ResponseWriter) { fmt.Fprint(w, strings.Repeat(" ", 5<<20), `{"ok":true}`) },
		func(w http.ResponseWriter) {
			telegramtest.Refuse(w, http.StatusBadRequest, strings.Repeat("Bad\nRequest ", 1000), 0)
		},
	} {
		s.telegram.Before(func(method string, w http.ResponseWriter) bool {
			if method == "sendMessage" {
				answer(w)
			}
			return method == "sendMessage"
		})
		s.append(c, events.ChannelQueued{Message: fmt.Sprint("o", n), Channel: s.channel, Place: "4711",
			Type: events.OutgoingNotice, Text: "x"})
		expect.Eventually(t, "it failed", func() bool { return len(s.reasons(c)) == n+1 })
		is.True(len(s.reasons(c)[n]) <= 200)
		expect.Lacks(t, s.reasons(c)[n], "html")
		expect.Lacks(t, s.reasons(c)[n], "\n")
	}
	is.True(len(s.lines.String()) < 4000)
}

func TestTheOldestOfTooManyMessagesIsDropped(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.user("ann", account.User))
	var open atomic.Bool
	s.telegram.Before(func(method string, w http.ResponseWriter) bool {
		if method == "sendMessage" && !open.Load() {
			telegramtest.Refuse(w, http.StatusServiceUnavailable, "", 0)
			return true
		}
		return false
	})
	for n := range 110 {
		s.append(c, events.ChannelQueued{Message: fmt.Sprint("o", n), Channel: s.channel, Place: "4711",
			Type: events.OutgoingNotice, Text: fmt.Sprintf("[%d]", n)})
	}
	expect.Eventually(t, "ten are dropped", func() bool { return strings.Count(s.channelEvents(c), "failed") == 10 })
	open.Store(true)
	s.telegram.AwaitText(t, "[109]")
	is.Equal(len(s.telegram.Messages()), 1+100)
	is.Equal(count(s.telegram.Messages(), "[1]"), 0)
}

func TestFilesAndADeletedChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	c := s.pair(me, me, s.user("ann", account.User))
	s.telegram.SendFile(me, me, "a.txt", "text/plain", []byte("hello"), 5)
	s.telegram.SendFile(me, me, "big.iso", "application/x-iso", nil, 10<<20)
	s.telegram.AwaitText(t, "the file has 10240 KiB")
	is.Equal(s.submitted(), []string{"a.txt"})
	_, err := s.channels.Chats.Delete(t.Context(), chat.Delete{Command: bySystem, Chat: c})
	is.NoErr(err)
	s.say(me, me, "still there?")
	next := s.chatOf(me)
	is.True(next != c)
	s.say(me, me, "/new")
	s.telegram.AwaitText(t, "This is a new chat")
	is.True(s.chatOf(me) != next)
	is.Equal(s.submitted(), []string{"a.txt", "still there?"})
}

func TestADisabledAccountOrChannelIsSilent(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.user("ann", account.User)
	s.user("root", account.Admin)
	s.pair(me, me, ann)
	yes := true
	_, err := s.accounts.UpdateAccount(t.Context(), account.UpdateAccount{Command: bySystem, Account: ann, Disabled: &yes})
	is.NoErr(err)
	s.say(me, me, "hello")
	is.Equal(len(s.submitted()), 0)
	_, err = s.channels.CreateCode(t.Context(), channel.NewCode{Channel: "bot", User: ann})
	is.Equal(handlers.CodeOf(err), handlers.Invalid)
}

func TestADisabledAccountGetsNoAnswers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.user("ann", account.User)
	s.user("root", account.Admin)
	c := s.pair(me, me, ann)
	yes := true
	seq, err := s.accounts.UpdateAccount(t.Context(), account.UpdateAccount{Command: bySystem, Account: ann,
		Disabled: &yes})
	is.NoErr(err)
	is.NoErr(s.model.Wait(t.Context(), seq))
	s.answer(c, 1, "for a disabled account", finished)
	bob := s.user("bob", account.User)
	s.pair(me+1, me+1, bob) // its notice leaves after that
	for _, m := range s.telegram.Messages() {
		expect.Lacks(t, m.Text, "for a disabled account")
	}
}

func TestAFormerOwnerGetsNoAnswers(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann, bob := s.user("ann", account.User), s.user("bob", account.User)
	c := s.pair(me, me, ann)
	seq, err := (&chat.Chats{Log: s.log}).Update(t.Context(), chat.Update{Command: bySystem, Chat: c, User: &bob})
	is.NoErr(err)
	is.NoErr(s.model.Wait(t.Context(), seq))
	s.answer(c, 1, "for bob only", finished)
	s.pair(me+1, me+1, bob)
	for _, m := range s.telegram.Messages() {
		expect.Lacks(t, m.Text, "for bob only")
	}
}

func TestAQueuedAnswerStaysHereAfterTheRevocation(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := newSystem(t)
	ann := s.user("ann", account.User)
	c := s.pair(me, me, ann)
	var down atomic.Bool
	down.Store(true)
	s.telegram.Before(func(method string, w http.ResponseWriter) bool {
		if method == "sendMessage" && down.Load() {
			w.WriteHeader(502)
			w.Write([]byte(`{"ok":false,"error_code":502,"description":"Bad Gateway"}`))
			return true
		}
		return false
	})
	s.answer(c, 1, "queued before", finished)
	expect.Eventually(t, "delayed", func() bool {
		return len(s.channelEvents(c)) > len("queued sending sent queued sending delayed")
	})
	seq, err := s.channels.Revoke(t.Context(), record.Delete{Command: bySystem, Record: s.pairings()[0].ID})
	is.NoErr(err)
	is.NoErr(s.model.Wait(t.Context(), seq))
	expect.Eventually(t, "it failed", func() bool { return strings.HasSuffix(s.channelEvents(c), "failed") })
	down.Store(false)
	bob := s.user("bob", account.User)
	s.pair(me+1, me+1, bob)
	for _, m := range s.telegram.Messages() {
		expect.Lacks(t, m.Text, "queued before")
	}
}
