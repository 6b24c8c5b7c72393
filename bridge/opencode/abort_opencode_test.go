package opencode_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
	"pocketcoder/events"
	"pocketcoder/handlers/chat"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// toolServer stands for PocketCoder's own MCP server. It has no tools.
type toolServer struct {
	slow atomic.Pointer[chan struct{}] // closed by the next request, which is answered late
}

func (s *toolServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if called := s.slow.Swap(nil); called != nil {
		close(*called)
		select {
		case <-time.After(2 * time.Second):
		case <-r.Context().Done():
		}
	}
	http.NotFound(w, r)
}

// startToolServer starts a server at the address of the model, which is the only one that OpenCode reaches.
func startToolServer(t testing.TB, s *opencode.Supervisor) *toolServer {
	t.Helper()
	model, err := url.Parse(s.Provider.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	tools, mux := &toolServer{}, http.NewServeMux()
	mux.Handle("/mcp", tools)
	mux.Handle("/", httputil.NewSingleHostReverseProxy(&url.URL{Scheme: model.Scheme, Host: model.Host}))
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)
	s.Provider.BaseURL = front.URL + model.Path
	s.MCP = func() opencode.MCPServer { return opencode.MCPServer{URL: front.URL + "/mcp"} }
	return tools
}

// OpenCode connects to its MCP servers at the first prompt in a directory. An abort meanwhile also interrupts that, and
// OpenCode then aborts every later turn in the directory (behaviour abort-connecting).
func abortWhileOpenCodeConnectsItsTools(t *testing.T, w *bridgedOpenCode) {
	is := is.New(t)
	dir, above := filepath.Join(w.workspace, "another directory"), w.chat()
	w.must(os.Mkdir(dir, 0o755))
	newChat := func() string {
		id := events.NewID()
		e, err := events.New(id, events.ActorSystem, events.ChatCreated{Title: "there", Engine: chat.DefaultEngine,
			Parent: &events.Parent{Chat: above, Root: above, Directory: dir}})
		w.must(err)
		_, err = w.log.Append(t.Context(), e)
		w.must(err)
		return id
	}
	first, second, connecting := newChat(), newChat(), make(chan struct{})
	w.tools.slow.Store(&connecting)
	w.put(first, "@@text n=4000 delay=200", "")
	<-connecting
	_, err := w.outbox.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: first})
	is.NoErr(err)
	w.say(second, "@@say hello")
	is.Equal(w.conversation(second), ">@@say hello hello")
	expect.Eventually(t, "the turn is stopped", func() bool { return w.row(first).Turn == projections.TurnUser })
}

func turnWhoseEndOpenCodeCannotStoreIsLost(t *testing.T, w *bridgedOpenCode) {
	expect.Long(t, "waits until OpenCode gives up")
	is := is.New(t)
	waits, aborted := w.chat(), w.chat()
	for _, id := range []string{waits, aborted} {
		w.put(id, "@@text n=400 delay=20", "")
	}
	for _, id := range []string{waits, aborted} {
		expect.Eventually(t, "it writes", func() bool { _, ids := w.shown(id); return len(ids) == 2 })
	}
	count := func(subject string) (n int) {
		_, err := w.log.Fold(t.Context(), subject, 0, func(events.Event) error { n++; return nil })
		is.NoErr(err)
		return n
	}
	w.inDatabase(`CREATE TRIGGER full BEFORE INSERT ON event
		BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END`)
	for _, id := range []string{waits, aborted} {
		// the second time after it tried to end the message
		expect.Eventually(t, "OpenCode reports idle twice", func() bool {
			return count(events.ChatOpenCodeSubject(id, "session.idle")) >= 2
		})
	}
	w.inDatabase("DROP TRIGGER full")
	w.put(waits, "@@say next", "") // waits for the end of the turn, unless that was lost already
	_, err := w.outbox.Chats.AbortTurn(t.Context(), chat.AbortTurn{Chat: aborted})
	is.NoErr(err)
	expect.Eventually(t, "the aborted turn is over", func() bool { return w.row(aborted).Turn == projections.TurnUser })
	expect.Eventually(t, "the next message is answered", func() bool {
		return strings.HasSuffix(w.conversation(waits), ">@@say next next") && w.row(waits).Turn == projections.TurnUser
	})
	for _, id := range []string{waits, aborted} {
		is.Equal(count(events.ChatSubject(id, events.TurnLost{}.Kind())), 1)
	}
}
