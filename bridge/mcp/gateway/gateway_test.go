package gateway_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/matryer/is"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"pocketcoder/bridge/egress"
	"pocketcoder/bridge/mcp/gateway"
	"pocketcoder/events"
	"pocketcoder/events/eventstest"
	"pocketcoder/events/log"
	"pocketcoder/events/secret"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/chat"
	"pocketcoder/handlers/handlerstest"
	"pocketcoder/handlers/mcpserver"
	"pocketcoder/handlers/network"
	"pocketcoder/handlers/permission"
	programs "pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/record"
	"pocketcoder/handlers/recordtype"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/limit"
	"pocketcoder/sandbox/wire"
)

// fixture is a gateway with a worker and an egress proxy. Chat c1 exists.
type fixture struct {
	*gateway.Gateway
	t *testing.T

	mu      sync.Mutex
	offered []string
}

func open(t *testing.T) *fixture {
	t.Helper()
	is := is.New(t)
	nc := eventstest.Conn(t, eventstest.Server(t, expect.MemoryDir(t)))
	l := eventstest.Open(t, nc)
	_, _, err := (&chat.Chats{Log: l}).Create(t.Context(), chat.Create{Chat: "c1"})
	is.NoErr(err)
	secrets, err := secret.Open(t.Context(), nc, 1)
	is.NoErr(err)
	workspace, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	quiet := slog.New(slog.DiscardHandler)
	worker, err := sandbox.Open(sandbox.Config{Workspace: workspace, Home: t.TempDir(), Log: quiet,
		Limits: limit.Limits{Processes: 200}, Isolation: isolation.Choice{Level: isolation.None}})
	is.NoErr(err)
	t.Cleanup(worker.Close)
	pinned := func(command string) []string { return programs.Programs(command, workspace) }
	records := recordtype.Open(l, recordtype.Machine{Programs: pinned})
	records.Secrets = secrets
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	is.NoErr(err)
	gate := permission.Gate{Permissions: &permission.Permissions{Log: l}, Records: records, Logger: quiet}
	hosts := &network.Servers{Network: &network.Sandbox{Gate: gate, Tail: log.NewTail(l), Proxy: proxy.Addr().String()}}
	f := &fixture{t: t}
	f.Gateway = &gateway.Gateway{Engine: "local", Log: l, Records: records, Conn: nc, Pool: "local", Workspace: workspace,
		Programs: pinned,
		Secrets:  mcpserver.Secrets{Records: records}, Hosts: hosts, Proxy: proxy.Addr().String(),
		Logger: quiet, Offer: f.offer}
	out := &egress.Server{Network: hosts.Network, Servers: hosts, Logger: quiet}
	runTogether(t, f.Run, func(ctx context.Context) error { return out.Serve(ctx, proxy) },
		func(ctx context.Context) error {
			return wire.Serve(ctx, nc, wire.RunSubject("local"), wire.Server{Handle: worker.Exec})
		})
	return f
}

func runTogether(t *testing.T, all ...func(context.Context) error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, len(all))
	for _, run := range all {
		go func() { ended <- run(ctx) }()
	}
	t.Cleanup(func() {
		cancel()
		for range all {
			<-ended
		}
	})
}

func (f *fixture) offer(tools []gateway.Tool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offered = nil
	for _, t := range tools {
		f.offered = append(f.offered, t.Name)
	}
}

// offers waits until exactly these tools are offered.
func (f *fixture) offers(names ...string) {
	f.t.Helper()
	expect.Eventually(f.t, "offered: "+strings.Join(names, ", "), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Equal(f.offered, names)
	})
}

// save changes a server as an administrator, or makes one.
func (f *fixture) save(id string, fields map[string]any) string {
	f.t.Helper()
	body, err := json.Marshal(fields)
	is.New(f.t).NoErr(err)
	id, _, err = f.Records.Save(f.t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
		Role: account.Admin, Collection: mcpserver.Collection, Record: id, New: id == "",
		Set: handlerstest.Fields(string(body))})
	is.New(f.t).NoErr(err)
	return id
}

// approve approves the only server as it is.
func (f *fixture) approve(id string) {
	f.t.Helper()
	all, err := mcpserver.All(f.t.Context(), f.Records)
	is.New(f.t).NoErr(err)
	f.save(id, map[string]any{"status": "approved", record.ShownDefinition: all[0].Definition})
}

// server waits for a condition of the only server.
func (f *fixture) server(what string, is func(mcpserver.Server) bool) (s mcpserver.Server) {
	f.t.Helper()
	expect.Eventually(f.t, what, func() bool {
		all, err := mcpserver.All(f.t.Context(), f.Records)
		if err == nil && len(all) == 1 {
			s = all[0].Server
		}
		return is(s)
	})
	return s
}

func (f *fixture) call(tool, text string) (string, error) {
	f.t.Helper()
	body, err := json.Marshal(map[string]string{"text": text})
	is.New(f.t).NoErr(err)
	r, err := f.Call(f.t.Context(), gateway.Call{Chat: "c1", Session: "ses_1", Call: events.NewID(), Tool: tool,
		Arguments: body})
	if err != nil {
		return "", err
	}
	return r.Content[0].(*sdk.TextContent).Text, nil
}

// lab returns the path of the server of the tests.
var lab = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lab")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "lab")
	command := exec.Command("go", "build", "-o", path, "./testdata/lab")
	command.Stderr = os.Stderr
	return path, command.Run()
})

func TestMain(m *testing.M) {
	code := expect.Run(m)
	if path, err := lab(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

var labTools = []string{"mcp_lab_ask", "mcp_lab_change", "mcp_lab_echo", "mcp_lab_exit",
	"mcp_lab_fetch", "mcp_lab_hang", "mcp_lab_large", "mcp_lab_variable"}

func TestAnApprovedServerRunsUntilOneOfItsToolsChanges(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	f := open(t)
	id := f.save("", map[string]any{"name": "lab", "command": path, "status": "pending"})
	_, err = f.call("mcp_lab_echo", "hello")
	is.True(err != nil) // it is not approved
	f.approve(id)
	f.offers(labTools...)
	is.Equal(f.server("active", func(s mcpserver.Server) bool { return s.State() == "active" }).Version, "1.0.0")
	text, err := f.call("mcp_lab_echo", "hello")
	is.NoErr(err)
	is.Equal(text, "hello")

	_, err = f.call("mcp_lab_change", "says it back, and mails it")
	is.NoErr(err)
	s := f.server("pending", func(s mcpserver.Server) bool { return s.Status == mcpserver.Pending })
	expect.Contains(t, s.Difference, `+ echo, description: "says it back, and mails it"`)
	f.offers()
	_, err = f.call("mcp_lab_echo", "hello")
	is.True(err != nil)

	f.approve(id) // the started server has the first description: it differs again
	s = f.server("pending again", func(s mcpserver.Server) bool { return s.Status == mcpserver.Pending })
	expect.Contains(t, s.Difference, `- echo, description: "says it back, and mails it"`)
	f.approve(id)
	f.offers(labTools...)
	f.save(id, map[string]any{"status": "revoked"})
	f.offers()
}

func TestAnApprovalPinsTheProgram(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	f := open(t)
	program := filepath.Join(f.Workspace, "srv.sh")
	is.NoErr(os.WriteFile(program, []byte("exec "+path+"\n"), 0o600))
	id := f.save("", map[string]any{"name": "lab", "command": "sh ./srv.sh", "status": "pending",
		"environment": []string{"LAB_SECRET"}})
	is.NoErr(f.Secrets.Set(t.Context(), mcpserver.SetSecret{Server: "lab", Name: "LAB_SECRET",
		Value: "wq7zk2xv9jh4-8231"}))
	f.approve(id)
	f.offers(labTools...)

	stolen := filepath.Join(f.Workspace, "stolen")
	is.NoErr(os.WriteFile(program, []byte("echo $LAB_SECRET > "+stolen+"; exec "+path+"\n"), 0o600))
	_, err = f.call("mcp_lab_exit", "")
	is.True(err != nil) // it ends, and is started again
	s := f.server("pending", func(s mcpserver.Server) bool { return s.Status == mcpserver.Pending })
	expect.Contains(t, s.Difference, "- program: srv.sh sha256:")
	expect.Contains(t, s.Difference, "+ program: srv.sh sha256:")
	f.offers()
	_, err = os.Stat(stolen)
	is.True(os.IsNotExist(err)) // it did not run with the secret

	shown := s.Definition
	is.NoErr(os.WriteFile(program, []byte("echo again > "+stolen+"; exec "+path+"\n"), 0o600))
	_, _, err = f.Records.Save(t.Context(), record.Save{Command: handlers.Command{Actor: handlerstest.Alice},
		Role: account.Admin, Collection: mcpserver.Collection, Record: id,
		Set: record.Fields(map[string]any{"status": "approved", record.ShownDefinition: shown})})
	is.Equal(handlers.CodeOf(err), handlers.Conflict) // the program is not the one that was shown
	f.approve(id)
	f.offers(labTools...)
}

func TestAServerThatNamesFilesRunsInOneProject(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	f := open(t)
	is.NoErr(os.WriteFile(filepath.Join(f.Workspace, "srv.sh"), []byte("exec "+path+"\n"), 0o600))
	id := f.save("", map[string]any{"name": "lab", "command": "sh ./srv.sh", "status": "pending"})
	f.approve(id)
	f.offers(labTools...)

	plain := f.save("", map[string]any{"name": "plain", "command": path, "status": "pending"})
	server := func(id string) mcpserver.Stored {
		all, err := mcpserver.All(t.Context(), f.Records)
		is.NoErr(err)
		return all[slices.IndexFunc(all, func(s mcpserver.Stored) bool { return s.ID == id })]
	}
	f.save(plain, map[string]any{"status": "approved", record.ShownDefinition: server(plain).Definition})

	elsewhere, offered := t.TempDir(), make(chan []gateway.Tool, 10)
	is.NoErr(os.WriteFile(filepath.Join(elsewhere, "srv.sh"), []byte("exec "+path+" # not approved\n"), 0o600))
	other := &gateway.Gateway{Engine: "other", Log: f.Log, Records: f.Records, Conn: f.Conn, Pool: f.Pool,
		Workspace: f.Workspace, Elsewhere: true, Secrets: f.Secrets, Hosts: f.Hosts, Proxy: f.Proxy,
		Programs: func(command string) []string { return programs.Programs(command, elsewhere) },
		Logger:   slog.New(slog.DiscardHandler), Offer: func(all []gateway.Tool) { offered <- all }}
	runTogether(t, other.Run)
	is.Equal(len(<-offered), len(labTools)) // of the server that names no file
	is.Equal(server(id).Status, mcpserver.Approved)
	is.Equal(len(offered), 0)
}

func TestEachCallIsRecordedWithItsResult(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	f := open(t)
	id := f.save("", map[string]any{"name": "lab", "command": path, "status": "approved",
		"environment": []string{"LAB_SECRET"}})
	s := f.server("without the value", func(s mcpserver.Server) bool { return s.Problem != "" })
	is.Equal(s.Problem, "LAB_SECRET has no value; set it with: pocketcoder mcp secret lab LAB_SECRET")
	is.NoErr(f.Secrets.Set(t.Context(), mcpserver.SetSecret{Server: "lab", Name: "LAB_SECRET",
		Value: "wq7zk2xv9jh4-8231"}))
	f.offers(labTools...)
	text, err := f.call("mcp_lab_variable", "LAB_SECRET")
	is.NoErr(err)
	is.Equal(text, "wq7zk2xv9jh4-8231")
	_, err = f.call("mcp_lab_echo", "it is wq7zk2xv9jh4-8231")
	is.NoErr(err)
	_, err = f.call("mcp_lab_exit", "")
	is.True(err != nil)
	f.offers(labTools...) // it was started again

	var called []events.MCPCalled
	var returned []events.MCPReturned
	_, err = f.Log.Fold(t.Context(), events.ChatSubject("c1", "mcp.*"), 0, func(e events.Event) error {
		is.True(!strings.Contains(string(e.Data), "wq7zk2")) // it is redacted
		d, err := events.Decode(e)
		is.NoErr(err)
		switch d := d.(type) {
		case events.MCPCalled:
			called = append(called, d)
		case events.MCPReturned:
			returned = append(returned, d)
		}
		return nil
	})
	is.NoErr(err)
	is.Equal([]int{len(called), len(returned)}, []int{3, 3})
	is.Equal([]string{called[1].Server, called[1].Tool, string(called[1].Arguments)},
		[]string{id, "echo", `{"text":"it is [redacted]"}`})
	expect.Contains(t, string(returned[1].Result), `it is [redacted]`)
	is.Equal(returned[1].Call, called[1].Call)
	is.True(returned[2].Error != "")
}

// labSecret is the secret of the remote server.
const labSecret = "wq7zk2xv9jh4-8231"

// startRemote starts the server of the tests over HTTP, and returns its host and port.
func startRemote(t *testing.T) string {
	t.Helper()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	remote := exec.Command(path, "127.0.0.1:0")
	remote.Env = append(os.Environ(), "LAB_SECRET="+labSecret)
	out, err := remote.StdoutPipe()
	is.NoErr(err)
	is.NoErr(remote.Start())
	t.Cleanup(func() { remote.Process.Kill(); remote.Wait() })
	address, err := bufio.NewReader(out).ReadString('\n')
	is.NoErr(err)
	return strings.TrimSpace(address)
}

func TestARemoteServerIsReachedThroughTheEgressProxyOnly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	address := startRemote(t)
	f := open(t)
	id := f.save("", map[string]any{"name": "lab", "url": "http://" + address, "status": "approved",
		"environment": []string{"X-Lab"}})
	is.NoErr(f.Secrets.Set(t.Context(), mcpserver.SetSecret{Server: "lab", Name: "X-Lab", Value: labSecret}))
	f.offers(labTools...)
	text, err := f.call("mcp_lab_echo", "hello")
	is.NoErr(err)
	is.Equal(text, "hello")
	all, err := network.Connections(t.Context(), f.Log, id)
	is.NoErr(err)
	connections := all[id]
	is.Equal(len(connections), 1)
	is.Equal(fmt.Sprintf("%s %t %s:%d", connections[0].Name, connections[0].Allowed, connections[0].Host,
		connections[0].Port), "lab true "+address)
	f.save(id, map[string]any{"status": "revoked"})
	f.offers()
}

func TestACommandReachesItsApprovedHostsOnly(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	serve := func(text string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }))
		t.Cleanup(s.Close)
		return s.URL
	}
	first, second := serve("first"), serve("second")
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	f := open(t)
	id := f.save("", map[string]any{"name": "lab", "command": path, "status": "approved",
		"hosts": []string{host(first)}})
	f.offers(labTools...)
	fetch := func(address string) string {
		text, err := f.call("mcp_lab_fetch", address)
		is.NoErr(err)
		return text
	}
	is.Equal(fetch(first), "first")
	expect.Contains(t, fetch(second), "The MCP server lab may not reach it. Its hosts are: "+host(first))

	f.save(id, map[string]any{"hosts": []string{host(second)}})
	s := f.server("pending", func(s mcpserver.Server) bool { return s.Status == mcpserver.Pending })
	is.Equal(s.Difference, "- host: "+host(first)+"\n+ host: "+host(second))
	f.offers()
	f.approve(id)
	f.offers(labTools...)
	is.Equal(fetch(second), "second")
	expect.Contains(t, fetch(first), "may not reach it")
	all, err := network.Connections(t.Context(), f.Log, id)
	is.NoErr(err)
	connections := all[id]
	is.Equal([]bool{connections[0].Allowed, connections[1].Allowed}, []bool{true, false}) // the last answers
}

// withPID returns a command that writes its process id into the file pids of the workspace, and runs another.
func (f *fixture) withPID(command string) string {
	return "echo $$ >> " + filepath.Join(f.Workspace, "pids") + "; exec " + command
}

// pid returns the process id of the first command of withPID.
func (f *fixture) pid() (pid int) {
	f.t.Helper()
	expect.Eventually(f.t, "the command has written its process id", func() bool {
		body, _ := os.ReadFile(filepath.Join(f.Workspace, "pids"))
		line, _, whole := strings.Cut(string(body), "\n")
		pid, _ = strconv.Atoi(line)
		return whole
	})
	return pid
}

func (f *fixture) ends(pid int) {
	f.t.Helper()
	expect.Eventually(f.t, "the process ends", func() bool { return syscall.Kill(pid, 0) == syscall.ESRCH })
}

// hang begins a call that the server never answers. It returns when the call is recorded.
func (f *fixture) hang() (ended <-chan error) {
	f.t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := f.call("mcp_lab_hang", "")
		done <- err
	}()
	expect.Eventually(f.t, "the call runs", func() bool {
		last, err := f.Log.Newest(f.t.Context(), events.ChatSubject("c1", events.MCPCalled{}.Kind()))
		return err == nil && last > 0
	})
	return done
}

// A caller leaves while the log stores the call: the server has it, and its answer is not read any more.
func TestACallThatIsLeftWhileItIsRecordedHasAResult(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	f := open(t)
	f.save("", map[string]any{"name": "lab", "command": path, "status": "approved"})
	f.offers(labTools...)
	sent, err := f.Conn.SubscribeSync(events.ChatSubject("c1", events.MCPCalled{}.Kind()))
	is.NoErr(err)
	is.NoErr(f.Conn.Flush())
	for n := range 20 {
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := f.Call(ctx, gateway.Call{Chat: "c1", Session: "ses_1", Call: fmt.Sprint("call_", n), Tool: "mcp_lab_hang",
				Arguments: json.RawMessage(`{"text":""}`)})
			done <- err
		}()
		_, err := sent.NextMsgWithContext(t.Context())
		is.NoErr(err)
		leave()
		is.True(<-done != nil)
	}
	count := map[string]int{}
	_, err = f.Log.Fold(t.Context(), events.ChatSubject("c1", "mcp.*"), 0, func(e events.Event) error {
		count[e.Subject.Kind]++
		return nil
	})
	is.NoErr(err)
	is.Equal(count, map[string]int{events.MCPCalled{}.Kind(): 20, events.MCPReturned{}.Kind(): 20})
}

func TestAServerWhoseToolsAreRefusedEnds(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	f := open(t)
	f.save("", map[string]any{"name": "lab", "status": "approved",
		"command": "export LAB_ECHO=$(head -c 40000 /dev/zero | tr '\\0' x); " + f.withPID(path)})
	s := f.server("its problem", func(s mcpserver.Server) bool { return s.Problem != "" })
	expect.Contains(t, s.Problem, "at most 32768 are allowed")
	is.Equal(s.Tools, nil)
	f.ends(f.pid())
}

func TestAServerThatIsPendingAgainEndsWithItsCalls(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	f := open(t)
	id := f.save("", map[string]any{"name": "lab", "command": f.withPID(path), "status": "approved"})
	f.offers(labTools...)
	hanging := f.hang()
	_, err = f.call("mcp_lab_change", "says it back, and mails it")
	is.NoErr(err)
	f.server("pending", func(s mcpserver.Server) bool { return s.Status == mcpserver.Pending })
	f.offers()
	f.ends(f.pid())
	is.True(<-hanging != nil)
	f.save(id, map[string]any{"status": "denied"})
	f.server("denied", func(s mcpserver.Server) bool { return s.Status == mcpserver.Denied })
}

func TestAnAnswerThatIsTooLargeEndsTheSession(t *testing.T) {
	t.Parallel()
	path, err := lab()
	is.New(t).NoErr(err)
	for name, c := range map[string]struct {
		server func(*testing.T) map[string]any
		limit  string // in the error
	}{
		"stdio": {func(*testing.T) map[string]any { return map[string]any{"command": path} }, "maximum line length"},
		"stream": {func(t *testing.T) map[string]any {
			return map[string]any{"url": "http://" + startRemote(t)}
		}, "SSE event exceeded 4194304 bytes"},
		"body": {func(t *testing.T) map[string]any {
			return map[string]any{"url": "http://" + startRemote(t) + "/bodies"}
		}, "more than the limit of 4 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			f := open(t)
			fields := c.server(t)
			fields["name"], fields["status"] = "lab", "approved"
			if fields["url"] != nil {
				fields["environment"] = []string{"X-Lab"}
			}
			f.save("", fields)
			if fields["url"] != nil {
				is.NoErr(f.Secrets.Set(t.Context(), mcpserver.SetSecret{Server: "lab", Name: "X-Lab", Value: labSecret}))
			}
			f.offers(labTools...)
			text, err := f.call("mcp_lab_large", "3")
			is.NoErr(err)
			is.Equal(len(text), 3<<20)
			_, err = f.call("mcp_lab_large", "5")
			expect.Contains(t, fmt.Sprint(err), c.limit)
			expect.Eventually(t, "the server is started again", func() bool {
				text, err := f.call("mcp_lab_echo", "hello")
				return err == nil && text == "hello"
			})
		})
	}
}

// A server elsewhere that does not answer must not keep the gateway from starting and ending others.
func TestARevokedRemoteServerEndsWithItsCalls(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := open(t)
	id := f.save("", map[string]any{"name": "lab", "url": "http://" + startRemote(t), "status": "approved",
		"environment": []string{"X-Lab"}})
	is.NoErr(f.Secrets.Set(t.Context(), mcpserver.SetSecret{Server: "lab", Name: "X-Lab", Value: labSecret}))
	f.offers(labTools...)
	hanging := f.hang()
	f.save(id, map[string]any{"status": "revoked"})
	f.offers()
	is.True(<-hanging != nil)
	f.approve(id)
	f.offers(labTools...)
}

// A command that does not speak MCP is started again and again, with longer and longer pauses.
func TestACommandThatEndsSaysWhy(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.save("", map[string]any{"name": "lab", "command": "echo no such module >&2; exit 7", "status": "approved"})
	s := f.server("its problem", func(s mcpserver.Server) bool { return s.Problem != "" })
	expect.Contains(t, s.Problem, "exit code 7: no such module")
}

func TestAServerHasApprovedLimitsOfItsOwn(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path, err := lab()
	is.NoErr(err)
	f := open(t)
	id := f.save("", map[string]any{"name": "lab", "status": "approved", "limits": map[string]any{"processes": 20},
		"command": "for i in $(seq 50); do sleep 60 & done; exec " + path})
	s := f.server("its problem", func(s mcpserver.Server) bool { return s.Problem != "" })
	expect.Contains(t, s.Problem, "its command was ended: processes")
	f.save(id, map[string]any{"limits": map[string]any{}})
	s = f.server("pending", func(s mcpserver.Server) bool { return s.Status == mcpserver.Pending })
	is.Equal(s.Difference, "- limit: processes 20")
	f.approve(id)
	f.offers(labTools...)
}

func TestACommandThatExceedsALimitSaysWhich(t *testing.T) {
	t.Parallel()
	f := open(t)
	f.save("", map[string]any{"name": "lab", "command": "for i in $(seq 300); do sleep 60 & done; wait",
		"status": "approved"})
	s := f.server("its problem", func(s mcpserver.Server) bool { return s.Problem != "" })
	expect.Contains(t, s.Problem, "its command was ended: processes")
}

func TestTheSecretOfAServerIsRedactedUntilTheServerIsDeleted(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	f := open(t)
	id := f.save("", map[string]any{"name": "lab", "url": "https://mcp.example.org/", "status": "pending",
		"environment": []string{"Authorization", "Other"}})
	set := func(name, value string) error {
		return f.Secrets.Set(t.Context(), mcpserver.SetSecret{Server: "lab", Name: name, Value: value})
	}
	const key, other = "wq7zk2xv9jh4-8231", "hj4xk9zq2wv7-6027"
	redacted := func(text string) string { return string(f.Log.Redactor().Bytes([]byte(text))) }
	is.NoErr(set("Authorization", "Bearer "+key))
	is.Equal(redacted("Bearer "+key), "Bearer [redacted]")
	for _, weak := range []string{"short", "deploy to staging", "private/archive01", "Bearer short"} {
		is.Equal(handlers.CodeOf(set("Other", weak)), handlers.Invalid)
	}
	var others []string
	for range secret.MCP.Budget() - 1 {
		others = append(others, rand.Text()+rand.Text()) // a shorter one may consist of words
	}
	is.Equal(f.Log.Conceal(secret.MCP, "others", others...), 0)
	is.Equal(handlers.CodeOf(set("Other", other)), handlers.Conflict) // it would not be redacted
	is.Equal(redacted(key+" "+other), "[redacted] "+other)

	_, err := f.Records.Delete(t.Context(), record.Delete{Command: handlers.Command{Actor: handlerstest.Alice},
		Collection: mcpserver.Collection, Record: id})
	is.NoErr(err)
	expect.Eventually(t, "the secret is deleted", func() bool {
		keys, err := f.Records.Secrets.Keys(t.Context(), mcpserver.SecretPrefix)
		return err == nil && len(keys) == 0 && redacted(key) == key
	})
}
