package opencode_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/netrelay"
)

// TestMain is also the program in OpenCode's network namespace.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == netrelay.Name {
		os.Exit(netrelay.Run(os.Args[2:], os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == isolation.GuardCommand {
		ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		os.Exit(isolation.RunGuard(ctx, os.Args[2:], os.Stderr))
	}
	if len(os.Args) == 4 && os.Args[1] == mcpServer {
		serveMCP(os.Args[2], os.Args[3])
		return
	}
	os.Exit(expect.Run(m))
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
	gate := permission.Gate{Permissions: &permission.Permissions{Log: log}, Records: recordtype.Open(log, nil)}
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

// TestConfinedOpenCodeReachesOnlyItsOwnFiles is one test because each start of OpenCode takes seconds.
func TestConfinedOpenCodeReachesOnlyItsOwnFiles(t *testing.T) {
	t.Parallel()
	o := startConfined(t, isolation.Bwrap, "demo/demo")
	o.readsNothingOutside()
	o.followsNoLink()
	o.changesNoConfiguration("write",
		map[string]any{"filePath": o.at("workspace/opencode.json"), "content": "evil"})
	o.writesThroughNoLink()
	o.reachesNoNetwork()
}

// TestOpenCodeAtLandlockReachesOnlyItsOwnFilesAndNoFIFO has what depends on the isolation level, and the stages for
// which the model has the tool apply_patch.
func TestOpenCodeAtLandlockReachesOnlyItsOwnFilesAndNoFIFO(t *testing.T) {
	expect.Long(t, "starts another OpenCode, with the stages of the test before")
	t.Parallel()
	o := startConfined(t, isolation.Landlock, "demo/gpt-5") // OpenCode has apply_patch for such names
	o.readsNothingOutside()
	o.changesNoConfiguration("apply_patch", map[string]any{
		"patchText": "*** Begin Patch\n*** Update File: opencode.json\n@@\n-{}\n+evil\n*** End Patch"})
	o.reachesNoNetwork()
	o.patchesNoFIFO()
	o.isNotBlockedByFIFOsThatGitReads()
}

// startConfined starts OpenCode at a level. The test is skipped where the level does not work, and fails in CI.
func startConfined(t *testing.T, level isolation.Level, model string) *confinedOpenCode {
	t.Helper()
	choice, err := isolation.Choose(string(level))
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	is := is.New(t)
	is.NoErr(err)
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-confined-") // not in /tmp: OpenCode has a private one
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	o := &confinedOpenCode{t: t, dir: dir}
	for _, name := range []string{"keys/worker.nk", "outside/secret.txt", "outside/victim.md"} {
		expect.WriteFile(t, o.at(name), hostSecret+"\n")
	}
	expect.WriteFile(t, o.at("workspace/opencode.json"), "{}\n")
	expect.WriteFile(t, o.at("workspace/sub/allowed.txt"), "allowed\n")
	expect.WriteFile(t, o.at("workspace/docs2/other.md"), "other\n")
	o.link("outside/secret.txt", "workspace/AGENTS.md")
	o.link("outside/secret.txt", "workspace/sub/AGENTS.md")
	o.link("outside", "workspace/link")
	is.NoErr(os.Mkdir(o.at("bin"), 0o755))
	is.NoErr(exec.Command("cp", os.Args[0], o.at("bin/mcp")).Run())
	o.start(choice, model)
	return o
}

// confinedOpenCode is an OpenCode whose workspace, configuration and programs are in a directory.
type confinedOpenCode struct {
	t       *testing.T
	dir     string
	client  *client.Client
	session string
	seen    func() string // all that the model got
	log     expect.Buffer // of the supervisor
}

const hostSecret = "the-secret-of-the-host"

func (o *confinedOpenCode) at(name string) string { return filepath.Join(o.dir, name) }

func (o *confinedOpenCode) link(to, name string) {
	o.t.Helper()
	if !filepath.IsAbs(to) {
		to = o.at(to)
	}
	is.New(o.t).NoErr(os.Symlink(to, o.at(name)))
}

func (o *confinedOpenCode) start(choice isolation.Choice, model string) {
	o.t.Helper()
	var base string
	base, o.seen = startModel(o.t)
	s := &opencode.Supervisor{
		Tools: opencodetest.Tools(o.t), Dir: o.at("data/opencode"), Workspace: o.at("workspace"), Shell: "/bin/sh",
		Expose: []string{o.at("bin")}, Logger: slog.New(slog.NewTextHandler(io.MultiWriter(o.t.Output(), &o.log), nil)),
		Provider: provider.Provider{Model: model, BaseURL: base, APIKey: "x", Catalogue: []byte("{}")},
		GitLimit: 5 * time.Second,
	}
	confineAt(o.t, s, choice)
	next, _ := run(o.t, s)
	o.client = next().Client
	o.session = o.newSession(o.at("workspace"))
}

func (o *confinedOpenCode) newSession(directory string) string {
	o.t.Helper()
	s, err := o.client.CreateSession(o.t.Context(), client.NewSession{Directory: directory, Title: "a title"})
	is.New(o.t).NoErr(err)
	return s.ID
}

// call has the model call a tool in a turn, and returns the permissions that OpenCode requested for it.
func (o *confinedOpenCode) call(tool string, args map[string]any) (permissions []string) {
	o.t.Helper()
	return o.turn(o.line(tool, args))
}

// line returns the line of a script with a call of a tool.
func (o *confinedOpenCode) line(tool string, args map[string]any) string {
	o.t.Helper()
	b, err := json.Marshal(args)
	is.New(o.t).NoErr(err)
	return fmt.Sprintf("@@call %s %s\n", tool, b)
}

// turn has the model make calls at once. A turn takes about a second of processor time.
func (o *confinedOpenCode) turn(calls string) (permissions []string) {
	o.t.Helper()
	return turn(o.t, o.client, o.at("workspace"), o.session, calls+"@@next\n@@say done",
		idle(o.t, o.client, o.session))
}

// read returns the line of a script that reads a file.
func (o *confinedOpenCode) read(name string) string {
	o.t.Helper()
	return o.line("read", map[string]any{"filePath": o.at(name)})
}

func (o *confinedOpenCode) readsNothingOutside() {
	o.turn(o.read("keys/worker.nk") + o.read("workspace/link/secret.txt") +
		o.line("grep", map[string]any{"pattern": "secret-of", "path": o.at("workspace/link"), "include": "*"}) +
		o.read("workspace/sub/allowed.txt"))
	expect.Contains(o.t, o.seen(), "allowed") // the last call was made
	expect.Lacks(o.t, o.seen(), hostSecret)   // neither with a tool nor through AGENTS.md
	expect.Contains(o.t, o.seen(), "OpenCode follows no symbolic links")
}

// passwordVariable is in OpenCode's environment, which OpenCode itself can read.
const passwordVariable = "OPENCODE_SERVER_PASSWORD"

// Instructions are links, and a file alternates with a link while OpenCode reads it.
func (o *confinedOpenCode) followsNoLink() {
	for _, name := range instructionNames {
		expect.WriteFile(o.t, o.at("workspace/with-"+name+"/note.txt"), "a note with "+name+"\n")
		o.link("/proc/self/environ", "workspace/with-"+name+"/"+name)
	}
	is.New(o.t).NoErr(os.Remove(o.at("workspace/AGENTS.md")))
	o.link("/proc/self/environ", "workspace/AGENTS.md")
	expect.WriteFile(o.t, o.at("workspace/long/AGENTS.md"), strings.Repeat("Be brief.\n", 1<<20))
	expect.WriteFile(o.t, o.at("workspace/long/note.txt"), "a note\n")
	script := o.read("workspace/long/note.txt")
	for _, name := range instructionNames {
		script += o.read("workspace/with-" + name + "/note.txt")
	}
	for i := range 8 { // each is different, because OpenCode asks about equal calls
		script += o.line("read", map[string]any{"filePath": o.at("workspace/swapped.txt"), "limit": 100 + i})
	}
	o.swapping(func() { o.turn(script) })
	for _, name := range instructionNames {
		expect.Contains(o.t, o.seen(), "a note with "+name)
	}
	expect.Lacks(o.t, o.seen(), passwordVariable)
	expect.Contains(o.t, o.seen(), "has more than 256 KiB")
	expect.Lacks(o.t, o.seen(), "Be brief.")
}

// swapping calls read while the file swapped.txt alternates with a link.
func (o *confinedOpenCode) swapping(read func()) {
	swapping, swapped := context.WithCancel(o.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		file, link := o.at("workspace/new-file"), o.at("workspace/new-link")
		for swapping.Err() == nil {
			os.WriteFile(file, []byte("a file\n"), 0o600)
			os.Rename(file, o.at("workspace/swapped.txt"))
			os.Symlink("/proc/self/environ", link)
			os.Rename(link, o.at("workspace/swapped.txt"))
			time.Sleep(time.Millisecond)
		}
	}()
	read()
	swapped()
	<-done
}

func (o *confinedOpenCode) changesNoConfiguration(tool string, args map[string]any) {
	is := is.New(o.t)
	is.Equal(len(o.call(tool, args)), 0) // such a request does not reach a person
	expect.Contains(o.t, o.seen(), "opencode.json is read-only for OpenCode, because programs outside the sandbox obey it")
	is.Equal(expect.ReadFile(o.t, o.at("workspace/opencode.json")), "{}\n")
}

// The folder of a file becomes a link after the request and before the approval.
func (o *confinedOpenCode) writesThroughNoLink() {
	is := is.New(o.t)
	c, now := o.client, time.Now()
	b, err := json.Marshal(map[string]any{"filePath": o.at("workspace/docs2/victim.md"), "content": "overwritten"})
	is.NoErr(err)
	is.NoErr(c.Prompt(o.t.Context(), o.session, client.Prompt{MessageID: client.NewID("msg", now),
		Parts: []client.PromptPart{
			{ID: client.NewID("prt", now), Type: "text", Text: "@@call write " + string(b) + "\n@@next\n@@say done"}}}))
	var requests []string
	expect.Eventually(o.t, "the write is asked for", func() bool {
		all, err := c.PermissionRequests(o.t.Context(), o.at("workspace"))
		is.NoErr(err)
		for _, a := range all {
			requests = append(requests, a.ID)
		}
		return len(requests) > 0
	})
	is.NoErr(os.RemoveAll(o.at("workspace/docs2")))
	o.link("outside", "workspace/docs2")
	is.NoErr(c.Allow(o.t.Context(), o.at("workspace"), requests[0]))
	expect.Eventually(o.t, "the turn ends", idle(o.t, c, o.session))
	is.Equal(expect.ReadFile(o.t, o.at("outside/victim.md")), hostSecret+"\n")
}

// Neither OpenCode itself nor an MCP server beside it reaches another server of this machine.
func (o *confinedOpenCode) reachesNoNetwork() {
	is := is.New(o.t)
	var requests atomic.Int64
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	o.t.Cleanup(private.Close)
	is.NoErr(opencode.AddMCP(o.t.Context(), o.client, o.at("workspace"), "lab", o.at("bin/mcp"), mcpServer,
		o.at("keys/worker.nk"), strings.TrimPrefix(private.URL, "http://")))
	o.turn(o.line("webfetch", map[string]any{"url": private.URL, "format": "text", "timeout": 20}) +
		o.line("lab_attempt", map[string]any{}))
	is.Equal(requests.Load(), int64(0))
	expect.Contains(o.t, o.seen(), "403")
	expect.Contains(o.t, o.seen(), "the file was read: false, the network was reached: false")
}

// The names of the FIFOs have characters at which a line ends for JavaScript, not for a patch.
func (o *confinedOpenCode) patchesNoFIFO() {
	is := is.New(o.t)
	script := ""
	for _, end := range []string{"\r", "\u2028", "\u2029"} {
		name := "x" + end + "y"
		is.NoErr(syscall.Mkfifo(o.at("workspace/"+name), 0o600))
		script += o.line("apply_patch", map[string]any{"patchText": "*** Begin Patch\n*** Update File: " + name +
			"\n@@\n-a\n+b\n*** End Patch"})
	}
	is.Equal(len(o.turn(script)), 0)
	is.True(strings.Count(o.seen(), "is a FIFO. OpenCode opens only") >= 3)
}

// The FIFOs have names that git or ripgrep reads, and are below the top folder of a repository.
func (o *confinedOpenCode) isNotBlockedByFIFOsThatGitReads() {
	repository := o.at("workspace/repository")
	expect.MakeRepository(o.t, repository)
	for _, name := range []string{".gitignore", ".gitattributes", ".ignore", ".rgignore"} {
		expect.WriteFile(o.t, filepath.Join(repository, name+".d", "a.txt"), "one\n")
		is.New(o.t).NoErr(syscall.Mkfifo(filepath.Join(repository, name+".d", name), 0o600))
	}
	session := o.newSession(repository)
	turn(o.t, o.client, repository, session, "@@say done", idle(o.t, o.client, session))
	expect.Eventually(o.t, "the log names the git that took too long", func() bool {
		return strings.Contains(o.log.String(), "command=ls-files")
	})
}
