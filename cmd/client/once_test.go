package client_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/handlers/account"
	"pocketcoder/web/webtest"
)

// cutting serves a handler that acts on the first change at each path, but cuts the connection instead of answering.
func cutting(t *testing.T, next http.Handler) *httptest.Server {
	var mu sync.Mutex
	cut := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		answers := r.Method == http.MethodGet || cut[r.URL.Path]
		cut[r.URL.Path] = true
		mu.Unlock()
		if answers {
			next.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(server.Close)
	return server
}

func TestACommandWhoseAnswerIsLostActsOnce(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	system := webtest.NewSystem(t)
	user, token := system.User(t, "ada", account.Admin)
	chat := system.Chat(t, token, "mine")
	system.AppendReferral(t, chat, "per_1")
	system.Append(t, chat, events.ExecRequested{Exec: "exec1", Permission: "per_1", Session: "ses_1", Call: "call_1",
		Command: "sleep 9", Cwd: "/w", Pool: "default"})
	system.Running("exec1")
	s := client.At(cutting(t, system.Web.Routes()).URL)
	s.Token = token
	count := func(kind string) (n int) {
		_, err := system.Log.Fold(t.Context(), events.AllEvents, 0, func(e events.Event) error {
			if e.Subject.Kind == kind {
				n++
			}
			return nil
		})
		is.NoErr(err)
		return n
	}

	_, err := s.Create(t.Context(), "messages", map[string]any{"chat": chat, "role": "user",
		"parts": []events.Part{{Type: "text", Text: "hello"}}})
	is.NoErr(err)
	is.Equal(count(events.MessageSubmitted{}.Kind()), 1)
	schedule, err := s.Create(t.Context(), "schedules", map[string]any{"user": user, "name": "daily", "prompt": "p",
		"cron_expression": "0 9 * * *", "session_mode": "new", "enabled": true})
	is.NoErr(err)
	schedules, err := client.List[client.Created](t.Context(), s, "schedules", client.Select{})
	is.NoErr(err)
	is.Equal(len(schedules), 1)
	started, err := s.RunSchedule(t.Context(), schedule)
	is.NoErr(err)
	is.True(started != "")
	is.Equal(count(events.ScheduleFired{}.Kind()), 1)
	is.NoErr(s.Decide(t.Context(), "per_1", client.Decision{Status: events.Denied}))
	is.Equal(count(events.PermissionDecided{}.Kind()), 1)
	is.NoErr(s.Abort(t.Context(), chat))
	is.Equal(count(events.AbortRequested{}.Kind()), 1)
	is.NoErr(s.Signal(t.Context(), "exec1", "INT"))
	signals := system.Sandbox.Signals // two of one id, which handlers/exec sends once
	is.Equal(len(signals), 2)
	is.True(signals[0].ID != "" && signals[0].ID == signals[1].ID)

	_, err = s.RunSchedule(t.Context(), schedule) // a command of its own
	is.NoErr(err)
	is.Equal(count(events.ScheduleFired{}.Kind()), 2)
}

func TestASystemThatDoesNotServeYetIsNotAwaited(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	_, err := client.Read[map[string]any](t.Context(), client.At(server.URL), "/api/health")
	is.True(err != nil)
	is.Equal(asked, 1)
}
