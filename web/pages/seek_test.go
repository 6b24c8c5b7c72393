package pages_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/web/webtest"
)

// newLongChat returns a chat of n events: answers of three parts, and a command that ran for each.
func newLongChat(t testing.TB, n int) (b *browser, path string) {
	t.Helper()
	s := webtest.NewSystem(t)
	_, token := s.User(t, "ada", "user")
	b = loggedIn(t, s, "ada")
	chat := s.Chat(t, token, "long")
	s.Append(t, chat, events.SessionBound{Session: "ses_" + chat, Directory: "/"})
	var all []events.Event
	add := func(e events.Event, err error) {
		webtest.Check(t, err)
		all = append(all, e)
	}
	appendEvent := func(typ, body string, values ...any) {
		add(events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1, events.OpenCode{Type: typ,
			Properties: []byte(fmt.Sprintf(body, values...))}))
	}
	const part = `{"sessionID":"ses_%s","part":{"id":"prt_%05d_%d","messageID":"msg_%05[2]d","sessionID":"ses_%[1]s",%[4]s}}`
	for i := 0; len(all) < n; i++ {
		appendEvent("message.updated", `{"sessionID":"ses_%s","info":{"id":"msg_%05d","sessionID":"ses_%[1]s","role":"assistant","time":{"created":1}}}`, chat, i)
		appendEvent("message.part.updated", part, chat, i, 0,
			`"type":"text","text":"I **look** at it, and `+"`make`"+` tells."`)
		appendEvent("message.part.updated", part, chat, i, 1, fmt.Sprintf(`"type":"tool","tool":"bash","callID":"call_%d","state":{"status":"running","input":{"command":"make"}}`, i))
		add(events.New(chat, events.ActorSystem, events.ExecRequested{Exec: fmt.Sprint("exec", i), Session: "ses_" + chat,
			Call: fmt.Sprint("call_", i), Command: "make", Cwd: "/"}))
		add(events.New(chat, events.ActorSystem, events.ExecFinished{Exec: fmt.Sprint("exec", i), DurationMS: 15,
			Stdout: events.Output{Bytes: 5, Text: "done\n"}}))
		appendEvent("message.part.updated", part, chat, i, 1, fmt.Sprintf(`"type":"tool","tool":"bash","callID":"call_%d","state":{"status":"completed","input":{"command":"make"},"output":"done"}`, i))
		appendEvent("message.part.updated", part, chat, i, 2, `"type":"text","text":"It is built: - one - two","time":{"start":1,"end":2}`)
		appendEvent("message.updated", `{"sessionID":"ses_%s","info":{"id":"msg_%05d","sessionID":"ses_%[1]s","role":"assistant","time":{"created":1,"completed":2},"finish":"stop"}}`, chat, i)
	}
	last, err := s.Log.AppendAll(t.Context(), all)
	webtest.Check(t, err)
	webtest.Check(t, s.Model.Wait(t.Context(), last))
	return b, "/chats/" + chat + "/replay/moments"
}

func TestAMomentIsNotShownToAnAccountThatMayNoLongerSeeTheChat(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	r := newReplayed(t)
	path := fmt.Sprintf("/chats/%s/replay/moments?seq=%d", r.chat, r.decided)
	_, _ = r.User(t, "eve", "user")
	eve := loggedIn(t, r.System, "eve")
	is.Equal(r.browser.visit(t, path).status, http.StatusOK) // the cache holds it now
	is.Equal(eve.visit(t, path).status, http.StatusNotFound)
	r.Remove(t, r.token, r.chat)
	is.Equal(r.browser.visit(t, path).status, http.StatusNotFound)
}

// BenchmarkSeek shows moments of a chat of 5,000 events: the first one, and then any of them.
func BenchmarkSeek(b *testing.B) {
	user, path := newLongChat(b, 5000)
	seek := func(event int) {
		if got := user.visit(b, fmt.Sprintf("%s?event=%d", path, event)); got.status != http.StatusOK {
			b.Fatal(got.status, got.body)
		}
	}
	started := time.Now()
	seek(5000) // the cache is empty
	first := time.Since(started)
	b.Run("Last", func(b *testing.B) {
		for b.Loop() {
			seek(5000)
		}
		b.ReportMetric(float64(first.Milliseconds()), "first-ms")
	})
	rnd := rand.New(rand.NewPCG(1, 2))
	b.Run("Anywhere", func(b *testing.B) {
		for b.Loop() {
			seek(1 + rnd.IntN(5000))
		}
	})
}
