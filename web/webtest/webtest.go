// Package webtest runs the whole HTTP API for tests, over a real log, real read models and real HTTP, without
// OpenCode: tests append what OpenCode would send.
//
// Only tests may import it.
package webtest

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

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"golang.org/x/crypto/ssh"

	"pocketcoder/bridge/push"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/channel"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/delegate"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/model"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/handlers/schedule"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
	"pocketcoder/projections/projectionstest"
	"pocketcoder/projections/store"
	"pocketcoder/web"
	"pocketcoder/web/api"
	"pocketcoder/web/routes"
)

// System is a running API and the parts below it.
type System struct {
	ChangedFiles []string // those that an undo finds changed

	SkillFiles map[string]string // what is wrong with the files of skills, by skill

	commands sync.Map // of tool calls, by their ids
	*httptest.Server
	Web       *web.Server
	NATS      *server.Server
	Conn      *nats.Conn
	Log       *log.Log
	Model     *projections.Model
	Chats     *chat.Chats
	Records   *record.Records
	Accounts  *account.Accounts
	Workspace string
	Sandbox   fakeSandbox
}

// Password is that of every account of the tests.
const Password = "correct horse battery"

// NewSystem starts a system that stops with the test. before is called while nothing runs yet but the log.
func NewSystem(t testing.TB, before ...func(*System)) *System {
	t.Helper()
	return NewSystemWith(t, nil, before...)
}

// NewSystemWith is NewSystem with further types of records.
func NewSystemWith(t testing.TB, types []record.Type, before ...func(*System)) *System {
	t.Helper()
	s := &System{Workspace: filepath.Join(t.TempDir(), "workspace")}
	Check(t, os.Mkdir(s.Workspace, 0o755))
	s.NATS = eventstest.Server(t, expect.MemoryDir(t))
	s.Conn = eventstest.Conn(t, s.NATS)
	s.Log = eventstest.Open(t, s.Conn)
	secrets, err := secret.Open(t.Context(), s.Conn, 1)
	Check(t, err)
	s.Model, err = projectionstest.Open(t.Context(), expect.MemoryDir(t), s.Log)
	Check(t, err)
	s.Accounts, err = account.Open(t.Context(), s.Log, secrets)
	Check(t, err)
	s.Accounts.HashMemory = 64 // passwords are not what these tests are about
	s.Chats, s.Records = &chat.Chats{Log: s.Log}, record.Open(s.Log, append(recordtype.All(nil), types...)...)
	s.Records.Secrets = secrets
	permissions := &permission.Permissions{Log: s.Log}
	gate := permission.Gate{
		Permissions: permissions, Records: s.Records, Rules: []policy.Rule{{Permission: "bash", Pattern: "git status"}}, Logger: slog.New(slog.DiscardHandler),
		Workspace: s.Workspace, History: s.Model.PastRequests, LastOfExecution: s.Model.LastOfExecution,
		Evaluated: s.Model.EvaluatedThrough,
		Session: func(id string) (permission.Session, bool) { // that of a chat is named after it
			chat, found := strings.CutPrefix(id, "ses_")
			return permission.Session{Chat: chat, Directory: s.Workspace}, found
		},
		Call: func(_ context.Context, _ string, tool events.Call, _ time.Duration) (permission.Call, bool) {
			command, found := s.commands.Load(tool.CallID)
			text, _ := command.(string)
			return permission.Call{Tool: "bash", Command: text, Cwd: s.Workspace}, found
		},
	}
	s.Server = httptest.NewUnstartedServer(nil)
	_, port, err := net.SplitHostPort(s.Server.Listener.Addr().String())
	Check(t, err)
	s.Web = web.New(web.Options{
		Log: s.Log, Conn: s.Conn, Pool: "default", Tail: log.NewTail(s.Log), Model: s.Model, Chats: s.Chats, Records: s.Records, Gate: gate, Accounts: s.Accounts,
		Delegates:    &delegate.Delegates{Log: s.Log, Chats: s.Chats, Records: s.Records, Workspace: s.Workspace},
		Schedules:    &schedule.Schedules{Log: s.Log, Chats: s.Chats, Accounts: s.Accounts},
		Previews:     schedule.Previews{Gate: gate, ChatsOf: s.Model.ChatsOf},
		Proposals:    proposal.Proposals{Records: s.Records, Files: func() map[string]string { return s.SkillFiles }},
		ProviderKeys: &model.ProviderKeys{Records: s.Records, Secrets: secrets, Logger: slog.New(slog.DiscardHandler), Paths: []string{s.Workspace}},
		Channels: &channel.Channels{Log: s.Log, Secrets: secrets, Records: s.Records, Chats: s.Chats, Accounts: s.Accounts,
			AwaitReadModels: s.Model.Wait, CountWaiting: func(context.Context, string) (waiting, held int, err error) { return 0, 0, nil },
			IsSubmitted: func(ctx context.Context, message string) (bool, error) {
				return s.Model.IsSubmitted(ctx, message)
			}},
		Secrets:   mcpserver.Secrets{Records: s.Records},
		Workspace: s.Workspace, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
		Health: func() api.Health { return api.Health{"log": {State: api.Ready}} },
		Engine: routes.Engine{
			Diff:    func(context.Context, string, string) (json.RawMessage, error) { return json.RawMessage(`[]`), nil },
			Todo:    func(context.Context, string) (json.RawMessage, error) { return json.RawMessage(`[]`), nil },
			Changed: func(context.Context, string, string) ([]string, error) { return s.ChangedFiles, nil },
		},
		Signal: s.Sandbox.signal, Dial: s.Sandbox.dial, PortsURL: "http://{port}.localhost:" + port,
	})
	s.Server.Config.Handler = s.Web.Ports.PortOrigins(s.Web.Routes())
	pushes := &push.Push{
		Log: s.Log, Secrets: secrets, Model: s.Model, Accounts: s.Accounts, Records: s.Records, Decide: gate.Decide, Logger: s.Web.API.Logger,
		Sender:  push.Sender{URL: "http://" + s.Server.Listener.Addr().String(), AllowPrivate: true},
		Present: s.Web.Realtime.IsViewing, AwayAfter: 50 * time.Millisecond,
	}
	s.Web.API.Push = api.Push{Key: "public", Send: pushes.SendNotice, Test: pushes.Test, Act: pushes.Act}
	for _, fill := range before {
		fill(s)
	}
	s.Run(t, s.Model.Run, s.Accounts.Run, s.Web.Realtime.Run, s.Web.API.Tail.Run, func(ctx context.Context) error {
		if err := s.Model.CatchUp(ctx); err != nil {
			return err
		}
		return pushes.Run(ctx)
	})
	<-s.Web.Realtime.Running() // who logs in before counts as a session of an earlier process
	s.Server.Start()
	t.Cleanup(s.Server.Close)
	t.Cleanup(s.Server.CloseClientConnections)
	return s
}

// Run runs functions until the test ends.
func (s *System) Run(t testing.TB, loops ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{}, len(loops))
	for _, w := range loops {
		go func() { w(ctx); done <- struct{}{} }()
	}
	t.Cleanup(func() {
		cancel()
		for range loops {
			<-done
		}
		s.Model.Close()
	})
}

// Check ends the test if err is not nil.
func Check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// User makes an account and logs it in.
func (s *System) User(t testing.TB, name, role string) (id, token string) {
	t.Helper()
	return s.NewAccount(t, name, role), s.Login(t, name)
}

// NewAccount creates an account that does not log in.
func (s *System) NewAccount(t testing.TB, name, role string) (id string) {
	t.Helper()
	id, _, err := s.Accounts.CreateAccount(t.Context(), account.CreateAccount{
		Command: handlers.Command{Actor: events.ActorSystem}, Email: name + "@example.org", Name: name, Role: role, Password: Password,
	})
	Check(t, err)
	return id
}

// Login logs an account in and returns the token.
func (s *System) Login(t testing.TB, name string) string {
	t.Helper()
	in, err := s.Accounts.Login(t.Context(), account.Login{Identity: name + "@example.org", Password: Password,
		Collection: account.Users})
	Check(t, err)
	Check(t, s.Model.Wait(t.Context(), in.Seq))
	return in.Text
}

// Call sends a request with a JSON body (nil for none) and returns the status and the parsed answer.
func (s *System) Call(t testing.TB, token, method, path string, body any) (int, map[string]any) {
	t.Helper()
	status, answer := s.Raw(t, token, method, path, body)
	var object map[string]any
	if len(answer) > 0 && answer[0] == '{' {
		Check(t, json.Unmarshal(answer, &object))
	}
	return status, object
}

// Raw does what Call does and returns the bytes of the answer.
func (s *System) Raw(t testing.TB, token, method, path string, body any) (int, []byte) {
	t.Helper()
	var reader io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(b)
	default:
		encoded, err := json.Marshal(b)
		Check(t, err)
		reader = bytes.NewReader(encoded)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, reader)
	Check(t, err)
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	resp, err := http.DefaultClient.Do(r)
	Check(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	Check(t, err)
	return resp.StatusCode, answer
}

// Chat makes a chat of an account's by way of the API.
func (s *System) Chat(t testing.TB, token, title string) string {
	t.Helper()
	status, c := s.Call(t, token, "POST", "/api/collections/chats/records", map[string]any{"title": title})
	if status != http.StatusOK {
		t.Fatalf("create chat: %d %v", status, c)
	}
	return c["id"].(string)
}

// AppendOpenCode appends an event of OpenCode about a chat, and waits until the read models have it.
func (s *System) AppendOpenCode(t testing.TB, chat, typ, properties string) uint64 {
	t.Helper()
	e, err := events.NewOpenCode(chat, "local", "evt_"+events.NewID(), -1, events.OpenCode{Type: typ,
		Properties: json.RawMessage(properties)})
	Check(t, err)
	seq, err := s.Log.Append(t.Context(), e)
	Check(t, err)
	Check(t, s.Model.Wait(t.Context(), seq))
	return seq
}

// Append appends a fact of our own about a chat, and waits until it shows.
func (s *System) Append(t testing.TB, chat string, d events.Data) {
	t.Helper()
	e, err := events.New(chat, events.ActorSystem, d)
	Check(t, err)
	seq, err := s.Log.Append(t.Context(), e)
	Check(t, err)
	Check(t, s.Model.Wait(t.Context(), seq))
}

// AppendRequest appends a permission request of OpenCode, and returns the id of its record.
func (s *System) AppendRequest(t testing.TB, chat, request string) string {
	t.Helper()
	s.AppendOpenCode(t, chat, "permission.asked", `{"id":"`+request+`","sessionID":"ses_`+chat+`","permission":"bash","patterns":["ls"],"always":["ls"],"metadata":{"command":"ls"},"tool":{"messageID":"msg_1","callID":"call_`+request+`"}}`)
	s.commands.Store("call_"+request, "ls")
	return store.RecordID(request)
}

// LeaveOutWhenShort leaves out a test that moves much data: under the race detector it takes a minute.
func LeaveOutWhenShort(t testing.TB) {
	t.Helper()
	expect.Slow(t, "moves much data")
}

func Escape(s string) string { return url.QueryEscape(s) }

// PublicKey makes a new SSH key.
func PublicKey(t testing.TB) string {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	Check(t, err)
	key, err := ssh.NewPublicKey(public)
	Check(t, err)
	return string(ssh.MarshalAuthorizedKey(key))
}

// Local serves the API to the operator of the machine until the test ends, and returns its URL.
func (s *System) Local(t testing.TB) string {
	t.Helper()
	local := httptest.NewServer(s.Web.Local())
	t.Cleanup(local.Close)
	t.Cleanup(local.CloseClientConnections)
	return local.URL
}
