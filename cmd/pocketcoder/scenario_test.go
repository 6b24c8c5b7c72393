package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	opencode "pocketcoder/bridge/opencode/client"
	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// row is a chat's row in the read model, as of now.
func (p *process) row(t testing.TB, chat string) (c projections.Chat) {
	t.Helper()
	c, err := p.FindChat(t.Context(), chat)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rows lists the records of a chat in a collection, or all of them, as of now.
func rows[R any](t testing.TB, p *process, collection, chat string) []R {
	t.Helper()
	q := client.Select{Sort: map[string]string{"messages": "position,id", "executions": "position", "usage": "",
		"questions": "created,index"}[collection]}
	if chat != "" {
		q.Filter = fmt.Sprintf("chat = %q", chat)
	}
	list, err := client.List[R](t.Context(), p.System, collection, q)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// part is a piece of a message as OpenCode sent it.
type part struct {
	ID     string
	Type   string
	Text   string
	Tool   string
	CallID string
	State  struct {
		Status string
		Output string
		Error  string
	}
}

func partsOf(t testing.TB, m projections.ShownMessage) (parts []part) {
	t.Helper()
	if err := json.Unmarshal([]byte(m.Parts), &parts); err != nil {
		t.Fatal(err)
	}
	return parts
}

// tools is every call of a tool in a chat, in order, as the read model shows it.
func (p *process) tools(t testing.TB, chat string) (calls []part) {
	t.Helper()
	for _, m := range rows[projections.ShownMessage](t, p, "messages", chat) {
		for _, part := range partsOf(t, m) {
			if part.Type == "tool" {
				calls = append(calls, part)
			}
		}
	}
	return calls
}

// text is what the assistant has said in a chat, its subagents included.
func (p *process) text(t testing.TB, chat string) string {
	t.Helper()
	var said []string
	for _, m := range rows[projections.ShownMessage](t, p, "messages", chat) {
		for _, part := range partsOf(t, m) {
			if m.Role == "assistant" && part.Type == "text" {
				said = append(said, part.Text)
			}
		}
	}
	return strings.Join(said, "|")
}

// approve waits for the nth request of a chat and allows it.
func (p *process) approve(t testing.TB, chat string, n int) events.PermissionRequest {
	t.Helper()
	request := p.awaitRequest(t, chat, n)
	p.decide(t, chat, request, events.Authorized, "")
	return request
}

// abort stops what runs in a chat.
func (p *process) abort(t testing.TB, chat string) {
	t.Helper()
	if err := p.Abort(t.Context(), chat); err != nil {
		t.Fatal(err)
	}
}

// dir makes a directory for the test in the workspace.
func (p *process) dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(p.workspace, "test-")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// call is a script's line that calls a tool.
func call(tool string, args map[string]any) string {
	body, _ := json.Marshal(args) // strings and numbers always encode
	return "@@call " + tool + " " + string(body)
}

// bash is a script that runs a command and says done.
func bash(command string) string {
	return call("bash", map[string]any{"command": command, "description": "test"}) + "\n@@next\n@@say done"
}

// finished waits for the nth result of a command in a chat, from 0.
func (p *process) finished(t testing.TB, chat string, n int) (f events.ExecFinished) {
	t.Helper()
	e := p.event(t, chat, "exec.finished", func(events.Event) bool { n--; return n < 0 })
	if err := json.Unmarshal(e.Data, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// fragments are what DELTAS holds of a chat under one subject, * and > as NATS has them.
func (p *process) fragments(t testing.TB, subject string) (bodies []string) {
	t.Helper()
	js, err := jetstream.New(p.Conn)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "DELTAS")
	if err != nil {
		t.Fatal(err)
	}
	for next := uint64(1); ; {
		m, err := stream.GetMsg(t.Context(), next, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return bodies
		}
		if err != nil {
			t.Fatal(err)
		}
		bodies, next = append(bodies, string(m.Data)), m.Sequence+1
	}
}

// cli runs a subcommand against the system, with these lines on stdin.
func (p *process) cli(t testing.TB, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runCommand(t, os.Getenv, stdin, append(args, "--data", string(p.data))...)
}

// runCommand runs a command to its end, in this process, where it takes a tenth of the processor time.
func runCommand(t testing.TB, getenv func(string) string, stdin string, args ...string) (stdout, stderr string,
	code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	var out, errs expect.Buffer
	env := cli.Environment{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Getenv: getenv}
	code = exitCode(ctx, env, run(ctx, env, args))
	if ctx.Err() != nil {
		t.Fatalf("pocketcoder %s does not end: %s%s", strings.Join(args, " "), out.String(), errs.String())
	}
	return out.String(), errs.String(), code
}

// runProgram runs the real program to its end, for tests of the process. env comes on top of the test's own.
func runProgram(t testing.TB, env []string, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	program := pocketcoder(t) // before the time runs
	ctx, cancel := context.WithTimeout(t.Context(), eventTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), strings.NewReader(stdin), &out, &errs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 10 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("pocketcoder %s does not end: %s%s", strings.Join(args, " "), &out, &errs)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// engine is a client of the OpenCode that runs below a system, and its pid. Where it listens and its password are in
// its command line and its environment, which only its owner can read.
func (p *process) engine(t testing.TB) (api *opencode.Client, pid int) {
	t.Helper()
	var file struct{ PID int }
	body, err := os.ReadFile(p.data.Path("opencode", "pid"))
	if err == nil {
		err = json.Unmarshal(body, &file)
	}
	if err != nil {
		t.Fatal(err)
	}
	port, password := "", ""
	for i, args := 0, procFile(file.PID, "cmdline"); i+1 < len(args); i++ {
		if args[i] == "--port" {
			port = args[i+1]
		}
	}
	for _, v := range procFile(file.PID, "environ") {
		if value, ok := strings.CutPrefix(v, "OPENCODE_SERVER_PASSWORD="); ok {
			password = value
		}
	}
	if port == "" || password == "" {
		t.Skip("what OpenCode was started with cannot be read on this machine")
	}
	if inner := innermostPID(file.PID); inner != file.PID {
		return opencode.New("http://"+enterNetwork(t, inner, port), password), file.PID
	}
	return opencode.New("http://127.0.0.1:"+port, password), file.PID
}

// innermostPID is OpenCode itself, given the process that was started for it. The guard, bubblewrap and the program
// inside have one child each.
func innermostPID(pid int) int {
	for {
		var children []string
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // any thread may have started one
		for _, task := range tasks {
			list, _ := os.ReadFile(task)
			children = append(children, strings.Fields(string(list))...)
		}
		if name := strings.TrimSpace(strings.Join(procFile(pid, "comm"), "")); len(children) == 0 || name == "opencode" {
			return pid
		}
		pid, _ = strconv.Atoi(children[0])
	}
}

// networkHelper, as the first argument of the test binary, connects a Unix socket with a port of the network it is
// started in.
const networkHelper = "test-network"

// enterNetwork returns an address of this network that leads to a port of the network of a process, which is behind
// bubblewrap.
func enterNetwork(t testing.TB, pid int, port string) (address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "net-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "socket")
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(pid), "--user", "--preserve-credentials", "--net", os.Args[0],
		networkHelper, socket, port)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	expect.Eventually(t, "the network of OpenCode is entered", func() bool { // the file exists before the helper listens
		conn, err := net.Dial("unix", socket)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	go connectAll(l, "unix", socket)
	return l.Addr().String()
}

// helpEnterNetwork is the program that enterNetwork starts.
func helpEnterNetwork(socket, port string) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	connectAll(l, "tcp", "127.0.0.1:"+port)
}

// connectAll connects what a listener accepts with an address, until the listener is closed.
func connectAll(l net.Listener, network, address string) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := net.Dial(network, address)
			if err != nil {
				return
			}
			defer to.Close()
			go func() { io.Copy(to, from); to.Close() }()
			io.Copy(from, to)
		}()
	}
}

// procFile reads a list from Linux's /proc.
func procFile(pid int, name string) []string {
	body, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
	return strings.Split(string(body), "\x00")
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	_, state, _ := bytes.Cut(stat, []byte(") "))
	return err != nil || len(state) == 0 || state[0] != 'Z'
}

// pidsIn reads the process ids a command has written to a file, one a line, once there are n.
func pidsIn(t testing.TB, path string, n int) (pids []int) {
	t.Helper()
	expect.Eventually(t, "the command has written its pids", func() bool {
		body, _ := os.ReadFile(path)
		if strings.Count(string(body), "\n") < n {
			return false
		}
		pids = nil
		for _, word := range strings.Fields(string(body)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, outerPID(pid, path))
		}
		return true
	})
	return pids
}

// outerPID returns the pid, outside the sandbox, of a process with the pid inner in a process namespace of its own. The
// namespace also has a command that names the file at path or works in its folder. For a process that has ended it
// returns an unused pid.
func outerPID(inner int, path string) int {
	type process struct {
		pids      []string // in each namespace, the innermost last
		namespace string
	}
	var all []process
	near := map[string]bool{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		status, _ := os.ReadFile(dir + "/status")
		_, pids, _ := strings.Cut(string(status), "\nNSpid:")
		pids, _, _ = strings.Cut(pids, "\n")
		namespace, _ := os.Readlink(dir + "/ns/pid")
		line, _ := os.ReadFile(dir + "/cmdline")
		env, _ := os.ReadFile(dir + "/environ")
		all = append(all, process{strings.Fields(pids), namespace})
		if bytes.Contains(line, []byte("pocketcoder-shell")) {
			continue // it is in OpenCode's namespace
		}
		if bytes.Contains(line, []byte(path)) || bytes.Contains(env, []byte("\x00PWD="+filepath.Dir(path)+"\x00")) {
			near[namespace] = true
		}
	}
	depth, found := 0, 1<<30
	for _, p := range all { // the innermost: bubblewrap itself, outside, has the command's words too
		if n := len(p.pids); n > depth && near[p.namespace] && p.pids[n-1] == strconv.Itoa(inner) {
			depth = n
			found, _ = strconv.Atoi(p.pids[0])
		}
	}
	return found
}
