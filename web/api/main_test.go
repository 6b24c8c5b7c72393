package api_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/crypto/ssh"

	"pocketcoder/bridge/push"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/policy"
	"pocketcoder/projections"
	"pocketcoder/web"
	"pocketcoder/web/api"
)

// system is the API over a real log, real read models and real HTTP, without OpenCode: tests append what it would say.
type system struct {
	commands sync.Map // of tool calls, by their ids
	*httptest.Server
	web       *web.Server
	conn      *nats.Conn
	log       *log.Log
	model     *projections.Model
	handlers  *handlers.Handlers
	accounts  *account.Accounts
	workspace string
	sandbox   sandboxed
}

// password is that of every account of the tests.
const password = "correct horse battery"

func newSystem(t testing.TB) *system {
	t.Helper()
	s := &system{workspace: filepath.Join(t.TempDir(), "workspace")}
	check(t, os.Mkdir(s.workspace, 0o755))
	nc := eventstest.Conn(t, eventstest.Server(t, t.TempDir()))
	s.conn, s.log = nc, eventstest.Open(t, nc)
	secrets, err := secret.Open(t.Context(), nc, 1)
	check(t, err)
	s.model, err = projections.Open(t.Context(), t.TempDir(), s.log)
	check(t, err)
	s.accounts, err = account.Open(t.Context(), s.log, secrets)
	check(t, err)
	s.handlers = &handlers.Handlers{Log: s.log}
	gate := handlers.Gate{
		Handlers: s.handlers, Rules: []policy.Rule{{Permission: "bash", Pattern: "git status"}}, Log: slog.New(slog.DiscardHandler),
		Workspace: s.workspace,
		Session: func(id string) (handlers.Session, bool) { // that of a chat is named after it
			chat, found := strings.CutPrefix(id, "ses_")
			return handlers.Session{Chat: chat, Directory: s.workspace}, found
		},
		Call: func(_ context.Context, _ string, tool events.Call, _ time.Duration) (handlers.Call, bool) {
			command, found := s.commands.Load(tool.CallID)
			text, _ := command.(string)
			return handlers.Call{Tool: "bash", Command: text, Cwd: s.workspace}, found
		},
	}
	s.Server = httptest.NewUnstartedServer(nil)
	_, port, err := net.SplitHostPort(s.Server.Listener.Addr().String())
	check(t, err)
	s.web = web.New(web.Options{
		Log: s.log, Tail: log.NewTail(s.log), Model: s.model, Handlers: s.handlers, Gate: gate, Accounts: s.accounts, Secrets: secrets,
		Workspace: s.workspace, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
		Health: func() api.Health { return api.Health{"log": {State: api.Ready}} },
		Engine: api.Engine{
			Diff: func(context.Context, string, string) (json.RawMessage, error) { return json.RawMessage(`[]`), nil },
			Todo: func(context.Context, string) (json.RawMessage, error) { return json.RawMessage(`[]`), nil },
		},
		Signal: s.sandbox.signal, Dial: s.sandbox.dial, PortsURL: "http://{port}.localhost:" + port,
	})
	s.Server.Config.Handler = s.web.Ports.PortOrigins(s.web.Routes())
	pushes := &push.Push{
		Log: s.log, Secrets: secrets, Model: s.model, Accounts: s.accounts, Handlers: s.handlers, Logger: s.web.API.Logger,
		Present: s.web.Realtime.Present, URL: "http://" + s.Server.Listener.Addr().String(), AllowPrivate: true, AwayAfter: 50 * time.Millisecond,
	}
	s.web.Records.Push = api.Push{Key: "public", Tell: pushes.Tell, Test: pushes.Test, Act: pushes.Act}
	s.run(t, s.model.Run, s.accounts.Run, s.web.Realtime.Run, s.web.API.Tail.Run, pushes.Run)
	s.Server.Start()
	t.Cleanup(s.Server.Close)
	t.Cleanup(s.Server.CloseClientConnections)
	return s
}

// run runs workers until the test ends.
func (s *system) run(t testing.TB, workers ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, len(workers))
	for _, w := range workers {
		go func() { w(ctx); done <- struct{}{} }()
	}
	t.Cleanup(func() {
		cancel()
		for range workers {
			<-done
		}
		s.model.Close()
	})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// user makes an account and logs it in.
func (s *system) user(t testing.TB, name, role string) (id, token string) {
	t.Helper()
	id, _, err := s.accounts.CreateAccount(t.Context(), account.CreateAccount{
		Command: handlers.Command{Actor: events.ActorSystem}, Email: name + "@example.org", Name: name, Role: role, Password: password,
	})
	check(t, err)
	return id, s.login(t, name)
}

func (s *system) login(t testing.TB, name string) string {
	t.Helper()
	in, err := s.accounts.Login(t.Context(), account.Login{Identity: name + "@example.org", Password: password, Collection: account.Users})
	check(t, err)
	check(t, s.model.Wait(t.Context(), in.Seq))
	return in.Text
}

// call does a request with a JSON body (nil for none) and gives the status and the parsed answer.
func (s *system) call(t testing.TB, token, method, path string, body any) (int, map[string]any) {
	t.Helper()
	status, answer := s.raw(t, token, method, path, body)
	var object map[string]any
	if len(answer) > 0 && answer[0] == '{' {
		check(t, json.Unmarshal(answer, &object))
	}
	return status, object
}

func (s *system) raw(t testing.TB, token, method, path string, body any) (int, []byte) {
	t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		check(t, err)
		reader = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, reader)
	check(t, err)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	resp, err := http.DefaultClient.Do(r)
	check(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	check(t, err)
	return resp.StatusCode, answer
}

// chat makes a chat of an account's by way of the API.
func (s *system) chat(t testing.TB, token, title string) string {
	t.Helper()
	status, c := s.call(t, token, "POST", "/api/collections/chats/records", map[string]any{"title": title})
	if status != http.StatusOK {
		t.Fatalf("create chat: %d %v", status, c)
	}
	return c["id"].(string)
}

// said appends what an OpenCode would say about a chat, and waits until it shows.
func (s *system) said(t testing.TB, chat, typ, properties string) uint64 {
	t.Helper()
	e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1, events.OpenCode{Type: typ, Properties: json.RawMessage(properties)})
	check(t, err)
	seq, err := s.log.Append(t.Context(), e)
	check(t, err)
	check(t, s.model.Wait(t.Context(), seq))
	return seq
}

// append appends a fact of our own about a chat, and waits until it shows.
func (s *system) append(t testing.TB, chat string, d events.Data) {
	t.Helper()
	e, err := events.New(chat, events.ActorSystem, d)
	check(t, err)
	seq, err := s.log.Append(t.Context(), e)
	check(t, err)
	check(t, s.model.Wait(t.Context(), seq))
}

// asked makes OpenCode ask for a permission, and gives the id of its record.
func (s *system) asked(t testing.TB, chat, ask string) string {
	t.Helper()
	s.said(t, chat, "permission.asked", `{"id":"`+ask+`","sessionID":"ses_`+chat+`","permission":"bash","patterns":["ls"],"always":["ls"],"metadata":{"command":"ls"},"tool":{"messageID":"msg_1","callID":"call_`+ask+`"}}`)
	s.commands.Store("call_"+ask, "ls")
	return projections.RecordID(ask)
}

// leaveOutWhenShort leaves out a test that moves much data: under the race detector it takes a minute.
func leaveOutWhenShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it moves much data, which -short leaves out")
	}
}

// eventually polls what cannot be waited for.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func escape(s string) string { return url.QueryEscape(s) }

// publicKey makes an SSH key nobody has.
func publicKey(t testing.TB) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	check(t, err)
	key, err := ssh.NewPublicKey(public)
	check(t, err)
	return string(ssh.MarshalAuthorizedKey(key))
}
