package opencode_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/egress"
	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/events/eventstest"
	"pocketcoder/expect"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/record"
	"pocketcoder/sandbox/inside"
	"pocketcoder/sandbox/isolation"
)

// TestMain is also the program in OpenCode's network namespace.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == inside.Name {
		os.Exit(inside.Run(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == isolation.GuardCommand {
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		os.Exit(isolation.RunGuard(ctx, os.Args[2:], os.Stderr))
	}
	if len(os.Args) == 4 && os.Args[1] == mcpServer {
		serveMCP(os.Args[2], os.Args[3])
		return
	}
	os.Exit(m.Run())
}

// confine sets the strongest isolation level that works here, and an egress proxy that reaches only the model.
func confine(t testing.TB, s *opencode.Supervisor) {
	t.Helper()
	choice, err := isolation.Choose(isolation.Auto)
	if err != nil {
		t.Fatal(err)
	}
	confineAt(t, s, choice)
}

func confineAt(t testing.TB, s *opencode.Supervisor, choice isolation.Choice) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	model, err := url.Parse(s.Provider.BaseURL)
	if err != nil {
		t.Fatal(err)
	}
	log := eventstest.Log(t)
	gate := permission.Gate{Permissions: &permission.Permissions{Log: log}, Records: &record.Records{Log: log}}
	networkValue := &network.Sandbox{Gate: gate, Mode: permission.NetworkOff, Proxy: l.Addr().String()}
	engine := &network.Engine{Network: networkValue, Models: []string{model.Host}}
	s.Isolation, s.Proxy = choice, engine.Renew
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		(&egress.Server{Network: networkValue, Engine: engine,
			Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}).Serve(ctx, l)
		close(ended)
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// levels are the isolation levels that work here.
func levels(t *testing.T) (choices []isolation.Choice) {
	t.Helper()
	for _, level := range []isolation.Level{isolation.Bwrap, isolation.Landlock} {
		choice, err := isolation.Choose(string(level))
		if err == nil {
			choices = append(choices, choice)
			continue
		}
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Log(err)
	}
	if len(choices) == 0 {
		t.Skip("no isolation works here")
	}
	return choices
}

const mcpServer = "test-mcp"

// instructionNames are the files that OpenCode reads for the model in each folder above a file that it reads.
var instructionNames = []string{"AGENTS.md", "CLAUDE.md", "CONTEXT.md"}

// serveMCP is an MCP server over stdio. Its tool says what the server can do on this machine.
func serveMCP(path, address string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var request struct {
			ID     json.RawMessage
			Method string
			Params struct{ ProtocolVersion string }
		}
		if json.Unmarshal(in.Bytes(), &request) != nil || request.ID == nil {
			continue
		}
		var result any = map[string]any{}
		switch request.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": request.Params.ProtocolVersion,
				"capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo":   map[string]any{"name": "test", "version": "1"}}
		case "tools/list":
			result = map[string]any{"tools": []any{map[string]any{"name": "attempt", "description": "d",
				"inputSchema": map[string]any{"type": "object", "properties": map[string]any{}}}}}
		case "tools/call":
			_, readErr := os.ReadFile(path)
			conn, dialErr := net.DialTimeout("tcp", address, time.Second)
			if dialErr == nil {
				conn.Close()
			}
			result = map[string]any{"content": []any{map[string]any{"type": "text",
				"text": fmt.Sprintf("the file was read: %t, the network was reached: %t", readErr == nil, dialErr == nil)}}}
		}
		b, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": request.ID, "result": result})
		fmt.Printf("%s\n", b)
	}
}

// TestConfinedOpenCodeReachesOnlyItsOwnFiles is one test for each level because each start of OpenCode takes seconds.
func TestConfinedOpenCodeReachesOnlyItsOwnFiles(t *testing.T) {
	for _, choice := range levels(t) {
		t.Run(string(choice.Level), func(t *testing.T) {
			t.Parallel()
			testConfined(t, choice)
		})
	}
}

func testConfined(t *testing.T, choice isolation.Choice) {
	is := is.New(t)
	tools := opencodetest.Tools(t)
	base, seen := startModel(t)
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-confined-") // not below /tmp, which OpenCode has one of its own of
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	at := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	workspace := at("workspace")
	const secret = "the-secret-of-the-host"
	for _, name := range []string{"keys/worker.nk", "outside/secret.txt", "outside/victim.md"} {
		expect.WriteFile(t, at(name), secret+"\n")
	}
	expect.WriteFile(t, at("workspace", "opencode.json"), "{}\n")
	expect.WriteFile(t, at("workspace", "sub", "allowed.txt"), "allowed\n")
	expect.WriteFile(t, at("workspace", "docs2", "other.md"), "other\n")
	is.NoErr(os.Symlink(at("outside", "secret.txt"), at("workspace", "AGENTS.md")))
	is.NoErr(os.Symlink(at("outside", "secret.txt"), at("workspace", "sub", "AGENTS.md")))
	is.NoErr(os.Symlink(at("outside"), at("workspace", "link")))
	server := at("bin", "mcp")
	is.NoErr(os.Mkdir(at("bin"), 0o755))
	is.NoErr(exec.Command("cp", os.Args[0], server).Run())
	var requests atomic.Int64
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(private.Close)
	lives := make(chan opencode.Generation, 9)
	s := &opencode.Supervisor{
		Tools: tools, Dir: at("data", "opencode"), Workspace: workspace, Shell: "/bin/sh", Expose: []string{at("bin")},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Provider: provider.Provider{Model: "demo/demo", BaseURL: base, APIKey: "x", Catalogue: []byte("{}")},
		Started: func(g opencode.Generation) { lives <- g }, Limits: opencode.HealthLimits{Report: 5 * time.Second, Restart: 10 * time.Second},
	}
	confineAt(t, s, choice)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	next := func() opencode.Generation {
		select {
		case g := <-lives:
			return g
		case err := <-ended:
			ended <- err
			t.Fatal(err)
		}
		panic("unreachable")
	}
	first := next()
	c := first.Client
	session, err := c.CreateSession(t.Context(), client.NewSession{Directory: workspace, Title: "a title"})
	is.NoErr(err)
	call := func(tool string, args map[string]any) (permissions []string) {
		b, err := json.Marshal(args)
		is.NoErr(err)
		return turn(t, c, workspace, session.ID, fmt.Sprintf("@@call %s %s\n@@next\n@@say done", tool, b),
			idle(t, c, session.ID))
	}
	call("read", map[string]any{"filePath": at("workspace", "sub", "allowed.txt")})
	expect.Contains(t, seen(), "allowed")
	call("read", map[string]any{"filePath": at("keys", "worker.nk")})
	call("read", map[string]any{"filePath": at("workspace", "link", "secret.txt")})
	call("grep", map[string]any{"pattern": "secret-of", "path": at("workspace", "link"), "include": "*"})
	expect.Lacks(t, seen(), secret) // neither with a tool nor through AGENTS.md
	expect.Contains(t, seen(), "OpenCode follows no symbolic links")

	// Links of the repository that lead to what OpenCode itself can read: its environment and its files.
	const password = "OPENCODE_SERVER_PASSWORD"
	for _, name := range instructionNames {
		expect.WriteFile(t, at("workspace", "with-"+name, "note.txt"), "a note\n")
		is.NoErr(os.Symlink("/proc/self/environ", at("workspace", "with-"+name, name)))
	}
	is.NoErr(os.Remove(at("workspace", "AGENTS.md")))
	is.NoErr(os.Symlink("/proc/self/environ", at("workspace", "AGENTS.md")))
	for _, name := range instructionNames {
		call("read", map[string]any{"filePath": at("workspace", "with-"+name, "note.txt")})
	}
	expect.Lacks(t, seen(), password)
	expect.WriteFile(t, at("workspace", "long", "AGENTS.md"), strings.Repeat("Be brief.\n", 1<<20))
	expect.WriteFile(t, at("workspace", "long", "note.txt"), "a note\n")
	call("read", map[string]any{"filePath": at("workspace", "long", "note.txt")})
	expect.Contains(t, seen(), "has more than 256 KiB")
	expect.Lacks(t, seen(), "Be brief.")

	// A file that alternates with a link while OpenCode reads it.
	swapping, swapped := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		file, link := at("workspace", "new-file"), at("workspace", "new-link")
		for swapping.Err() == nil {
			os.WriteFile(file, []byte("a file\n"), 0o600)
			os.Rename(file, at("workspace", "swapped.txt"))
			os.Symlink("/proc/self/environ", link)
			os.Rename(link, at("workspace", "swapped.txt"))
			time.Sleep(time.Millisecond)
		}
	}()
	for range 4 {
		call("read", map[string]any{"filePath": at("workspace", "swapped.txt")})
	}
	swapped()
	<-done
	expect.Lacks(t, seen(), password)

	// such a request does not reach a person
	is.Equal(len(call("write", map[string]any{"filePath": at("workspace", "opencode.json"), "content": "evil"})), 0)
	expect.Contains(t, seen(), "opencode.json is read-only for OpenCode, because programs outside the sandbox obey it")
	is.Equal(expect.ReadFile(t, at("workspace", "opencode.json")), "{}\n")

	// The folder becomes a link after the request and before the approval.
	now := time.Now()
	b, _ := json.Marshal(map[string]any{"filePath": at("workspace", "docs2", "victim.md"), "content": "overwritten"})
	is.NoErr(c.Prompt(t.Context(), session.ID, client.Prompt{MessageID: client.NewID("msg", now),
		Parts: []client.PromptPart{
			{ID: client.NewID("prt", now), Type: "text", Text: "@@call write " + string(b) + "\n@@next\n@@say done"}}}))
	var asks []string
	expect.Eventually(t, "the write is asked for", func() bool {
		all, err := c.PermissionRequests(t.Context(), workspace)
		is.NoErr(err)
		for _, a := range all {
			asks = append(asks, a.ID)
		}
		return len(asks) > 0
	})
	is.NoErr(os.RemoveAll(at("workspace", "docs2")))
	is.NoErr(os.Symlink(at("outside"), at("workspace", "docs2")))
	is.NoErr(c.Allow(t.Context(), workspace, asks[0]))
	expect.Eventually(t, "the turn ends", idle(t, c, session.ID))
	is.Equal(expect.ReadFile(t, at("outside", "victim.md")), secret+"\n")

	call("webfetch", map[string]any{"url": private.URL, "format": "text", "timeout": 20})
	is.Equal(requests.Load(), int64(0))
	expect.Contains(t, seen(), "403")

	is.NoErr(opencode.AddMCP(t.Context(), c, workspace, "lab", server, mcpServer, at("keys", "worker.nk"),
		strings.TrimPrefix(private.URL, "http://")))
	call("lab_attempt", map[string]any{})
	expect.Contains(t, seen(), "the file was read: false, the network was reached: false")

	for _, pid := range opencode.Descendants(first.PID) {
		is.NoErr(syscall.Kill(pid, syscall.SIGSTOP))
	}
	expect.Eventually(t, "it is said that OpenCode does not answer", func() bool {
		return s.Trouble() == "OpenCode has not answered for 5 s"
	})
	second := next()
	<-first.Exited
	is.Equal(second.N, 2)
	_, err = second.Client.Session(t.Context(), session.ID)
	is.NoErr(err)
}
