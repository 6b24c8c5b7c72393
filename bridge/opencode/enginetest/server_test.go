package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"
	_ "modernc.org/sqlite"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/demo"
	"pocketcoder/bridge/opencode/install"
	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/ops/expect"
)

// server is an OpenCode without our plugin and isolation, so that a test shows what OpenCode itself does. The model is
// the scripted one.
type server struct {
	t         *testing.T
	tools     install.Tools
	workspace string
	dir       string // of OpenCode's own files
	model     *model
	client    *client.Client
	process   *exec.Cmd
	output    *expect.Buffer
	exited    chan struct{}
	stream    *recorder
}

// model is the scripted model behind a proxy that records the requests.
type model struct {
	url string
	mu  sync.Mutex
	all []string
}

func startModel(t *testing.T) *model {
	t.Helper()
	scripted, err := demo.Open("127.0.0.1:0", &demo.Model{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scripted.Close() })
	target, err := url.Parse(scripted.URL())
	if err != nil {
		t.Fatal(err)
	}
	m := &model{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: target.Scheme, Host: target.Host})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		m.mu.Lock()
		m.all = append(m.all, string(body))
		m.mu.Unlock()
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	m.url = front.URL + target.Path
	return m
}

// requests returns the requests with a text.
func (m *model) requests(text string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(m.all), func(body string) bool { return !strings.Contains(body, text) })
}

// startServer starts OpenCode and ends it with the test.
func startServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, tools: opencodetest.Tools(t), workspace: t.TempDir(), dir: t.TempDir(), model: startModel(t)}
	expect.MakeRepository(t, s.workspace)
	t.Cleanup(func() { s.kill() })
	s.start()
	return s
}

// in returns a copy of s that reports to t, which is a subtest.
func (s *server) in(t *testing.T) *server {
	part := *s
	part.t = t
	return &part
}

func (s *server) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// preload is code that runs before OpenCode's own, as our plugin does. It notes what OpenCode does, in a file.
const preload = `
import { appendFileSync } from "node:fs"
import http from "node:http"
delete process.env.BUN_INSPECT_PRELOAD
const note = (text) => appendFileSync(process.env.NOTES, text + "\n")
note("preloaded")
const title = "Generate a title for this conversation:\n"
globalThis.AI_SDK_TELEMETRY_INTEGRATIONS = [{
  onStart: ({ metadata, messages }) => {
    if (messages?.some(({ content }) => content === title)) note("start of a title " + metadata.sessionId)
  },
  onFinish: ({ metadata, totalUsage }) => note("finish " + metadata.sessionId + " " + typeof totalUsage.inputTokens),
}]
const { emit } = http.Server.prototype
http.Server.prototype.emit = function (event, request, response) {
  if (event !== "request" || request.url !== "/probe") return emit.apply(this, arguments)
  response.writeHead(200).end("of the preload")
  return true
}
Object.defineProperty(Object.prototype, "maxEditLength", { get() { note("compares") } })
Object.defineProperty(Object.prototype, "oneChangePerToken", { get() { note("step") } })
`

func (s *server) noted() string { return expect.ReadFile(s.t, filepath.Join(s.dir, "notes")) }

func (s *server) start() {
	s.t.Helper()
	config, err := provider.Provider{Model: "demo/demo", BaseURL: s.model.url, APIKey: "x"}.Config()
	s.must(err)
	config["permission"] = map[string]any{"*": "ask"}
	config["shell"] = "/bin/sh"
	text, err := json.Marshal(config)
	s.must(err)
	address, password := expect.Address(s.t), rand.Text()
	_, port, _ := strings.Cut(address, ":")
	catalogue := filepath.Join(s.dir, "models.json")
	s.must(os.WriteFile(catalogue, []byte("{}"), 0o600))
	preloaded := filepath.Join(s.dir, "preload.js")
	s.must(os.WriteFile(preloaded, []byte(preload), 0o600))
	s.process = exec.Command(s.tools.OpenCode, "serve", "--hostname", "127.0.0.1", "--port", port)
	s.process.Dir = s.workspace
	s.process.Env = []string{
		"PATH=" + filepath.Dir(s.tools.Ripgrep) + ":" + os.Getenv("PATH"), "HOME=" + s.dir, "TMPDIR=" + s.t.TempDir(),
		"XDG_CONFIG_HOME=" + filepath.Join(s.dir, "config"), "XDG_DATA_HOME=" + filepath.Join(s.dir, "data"),
		"XDG_STATE_HOME=" + filepath.Join(s.dir, "state"), "XDG_CACHE_HOME=" + filepath.Join(s.dir, "cache"),
		"OPENCODE_CONFIG_CONTENT=" + string(text), "OPENCODE_SERVER_PASSWORD=" + password,
		"BUN_INSPECT_PRELOAD=" + preloaded, "NOTES=" + filepath.Join(s.dir, "notes"),
		"OPENCODE_MODELS_PATH=" + catalogue, "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1",
	}
	s.output, s.exited = &expect.Buffer{}, make(chan struct{})
	s.process.Stdout, s.process.Stderr = s.output, s.output
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.process.WaitDelay = time.Second
	s.must(s.process.Start())
	go func(process *exec.Cmd, exited chan struct{}) { process.Wait(); close(exited) }(s.process, s.exited)
	s.client = client.New("http://"+address, password)
	expect.Eventually(s.t, "OpenCode answers", func() bool {
		select {
		case <-s.exited:
			s.t.Fatalf("OpenCode ended: %s", s.output)
		default:
		}
		// a request that arrives just as OpenCode opens its port may never be answered
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		_, err := s.client.Health(ctx)
		return err == nil
	})
	s.stream = s.record()
}

// kill ends OpenCode as a crash does, with its commands.
func (s *server) kill() {
	if s.process == nil || s.process.Process == nil {
		return
	}
	syscall.Kill(-s.process.Process.Pid, syscall.SIGKILL)
	<-s.exited
}

// frame is an event of the stream as OpenCode sent it.
type frame struct {
	Type, ID   string
	Properties json.RawMessage
	SyncEvent  struct {
		Type, AggregateID string
		Seq               int64
		Data              json.RawMessage
	}
}

// session returns the session that a frame names.
func (f frame) session() string {
	var p struct{ SessionID string }
	_ = json.Unmarshal(f.Properties, &p)
	return p.SessionID
}

// recorder records the stream of one OpenCode.
type recorder struct {
	mu     sync.Mutex
	frames []frame
	times  []time.Time
}

func (s *server) record() *recorder {
	s.t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), "GET", s.client.URL()+"/global/event", nil)
	s.must(err)
	r.SetBasicAuth("opencode", s.client.Password())
	resp, err := s.client.HTTP().Do(r) // ends when OpenCode does
	s.must(err)
	rec := &recorder{}
	go func() {
		defer resp.Body.Close()
		for in := bufio.NewReader(resp.Body); ; {
			line, err := in.ReadBytes('\n')
			if err != nil {
				return
			}
			data, ok := bytes.CutPrefix(line, []byte("data:"))
			var e struct{ Payload frame }
			if !ok || json.Unmarshal(data, &e) != nil {
				continue
			}
			rec.mu.Lock()
			rec.frames, rec.times = append(rec.frames, e.Payload), append(rec.times, time.Now())
			rec.mu.Unlock()
		}
	}()
	expect.Eventually(s.t, "the stream begins", func() bool { return len(rec.all()) > 0 })
	return rec
}

func (r *recorder) all() []frame {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.frames)
}

// of returns the events of a session, without the twins.
func (r *recorder) of(session string) []frame {
	return slices.DeleteFunc(r.all(), func(f frame) bool { return f.session() != session })
}

// index returns the position of the first event from start on with a type and a text, -1 for none.
func index(frames []frame, start int, typ, text string) int {
	for i := start; i >= 0 && i < len(frames); i++ {
		if frames[i].Type == typ && bytes.Contains(frames[i].Properties, []byte(text)) {
			return i
		}
	}
	return -1
}

// newSession makes a session with a title.
func (s *server) newSession() string {
	s.t.Helper()
	created, err := s.client.CreateSession(s.t.Context(), client.NewSession{Directory: s.workspace, Title: "a title"})
	s.must(err)
	return created.ID
}

// send sends a message without waiting for an answer, and returns it.
func (s *server) send(session, text string) client.Prompt {
	s.t.Helper()
	now := time.Now()
	p := client.Prompt{MessageID: client.NewID("msg", now),
		Parts: []client.PromptPart{{ID: client.NewID("prt", now), Type: "text", Text: text}}}
	s.must(s.client.Prompt(s.t.Context(), session, p))
	return p
}

// say sends a message and waits for the answer to it, without approving anything.
func (s *server) say(session, text string) client.Prompt {
	s.t.Helper()
	p := s.send(session, text)
	s.awaitAnswer(session)
	return p
}

// awaitAnswer waits until a session is idle and its last message is an answer that has ended.
func (s *server) awaitAnswer(session string) client.Message {
	s.t.Helper()
	var last client.Message
	expect.Eventually(s.t, "the turn ends", func() bool {
		all := s.messages(session)
		if len(all) == 0 {
			return false
		}
		last = all[len(all)-1]
		return last.Info.Role == "assistant" && last.Info.Time.Completed > 0 &&
			!strings.Contains(string(last.Info.Raw), `"finish":"tool-calls"`) && s.isIdle(session)
	})
	return last
}

func (s *server) isIdle(session string) bool {
	s.t.Helper()
	statuses, err := s.client.Statuses(s.t.Context(), s.workspace)
	s.must(err)
	_, busy := statuses[session]
	return !busy
}

func (s *server) messages(session string) []client.Message {
	s.t.Helper()
	all, err := s.client.Messages(s.t.Context(), session)
	s.must(err)
	return all
}

// parts returns the parts of all messages of a session as one text.
func (s *server) parts(session string) string {
	s.t.Helper()
	var text strings.Builder
	for _, m := range s.messages(session) {
		for _, p := range m.Parts {
			text.Write(p)
			text.WriteByte('\n')
		}
	}
	return text.String()
}

// request is a pending permission request.
type request struct {
	ID         string
	SessionID  string
	Permission string
	Tool       struct{ CallID string }
}

// asked waits until OpenCode has requested n permissions for a session in all, and returns the last of them.
func (s *server) asked(session string, n int) (r request) {
	s.t.Helper()
	expect.Eventually(s.t, "OpenCode requests a permission", func() bool {
		found := 0
		for _, f := range s.stream.of(session) {
			if f.Type == "permission.asked" {
				if found++; found == n {
					s.must(json.Unmarshal(f.Properties, &r))
				}
			}
		}
		return found >= n
	})
	return r
}

func (s *server) allow(r request) {
	s.t.Helper()
	s.must(s.client.Allow(s.t.Context(), s.workspace, r.ID))
}

// pending returns the ids of the requests that OpenCode lists.
func (s *server) pending(directory string) (ids []string) {
	s.t.Helper()
	all, err := s.client.PermissionRequests(s.t.Context(), directory)
	s.must(err)
	for _, r := range all {
		ids = append(ids, r.ID)
	}
	return ids
}

// call sends a request to OpenCode and returns the status and the body of the answer.
func (s *server) call(method, path, password, body string) (int, string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, s.client.URL()+path, strings.NewReader(body))
	s.must(err)
	if password != "" {
		r.SetBasicAuth("opencode", password)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := s.client.HTTP().Do(r)
	s.must(err)
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp.StatusCode, ""
	}
	b, err := io.ReadAll(resp.Body)
	s.must(err)
	return resp.StatusCode, string(b)
}

func (s *server) inDirectory(path string) string {
	return path + "?" + url.Values{"directory": {s.workspace}}.Encode()
}

// inDatabase executes statements in OpenCode's database.
func (s *server) inDatabase(statements ...string) {
	s.t.Helper()
	path := filepath.Join(s.dir, "data", "opencode", "opencode.db")
	database, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(10000)")
	s.must(err)
	defer database.Close()
	for _, statement := range statements {
		_, err := database.Exec(statement)
		s.must(err)
	}
}

// tool returns a line of a script that calls a tool.
func tool(name string, args map[string]any) string {
	b, _ := json.Marshal(args) // texts and numbers only
	return fmt.Sprintf("@@call %s %s\n", name, b)
}

// command returns a line of a script that calls the tool bash.
func command(text string) string {
	return tool("bash", map[string]any{"command": text, "description": "d"})
}

const thenDone = "@@next\n@@say done"

func equal[T any](t *testing.T, got, want T) {
	t.Helper()
	is.New(t).Equal(got, want)
}
