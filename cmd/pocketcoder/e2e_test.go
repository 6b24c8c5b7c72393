package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"pocketcoder/bridge/opencode/opencodetest"
	"pocketcoder/cmd/cli"
	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/ops/expect"
	"pocketcoder/ops/natsconf"
	"pocketcoder/web/chromiumtest"
)

// The end-to-end tests run the whole system with the real OpenCode and the demo model. Most of them run it within
// their own process. Those about the process run the program, which the program of the tests is, too: it has the same
// main. binaries is the directory of this program. ordinary is a running system for the tests that do not need a
// separate one.
var (
	binaries string
	ordinary sharedInstance
	chromium chromiumtest.Browser // shared by all tests that do not call OpenOwn
	shared   struct {             // what ends after the tests
		sync.Mutex
		ends []func()
	}
)

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == networkHelper {
		helpEnterNetwork(os.Args[2], os.Args[3])
		return
	}
	// A test runs the program, or a system its worker and its helpers. go test passes flags of its own.
	if len(os.Args) < 2 || !strings.HasPrefix(os.Args[1], "-test.") {
		main()
		return
	}
	if binaries = os.Getenv(binariesVariable); binaries == "" {
		panic(runFromOwnDirectory())
	}
	os.Unsetenv(binariesVariable)
	// Tests mostly wait for OpenCode, so two per processor run at once. -parallel overrides this.
	if err := flag.Set("test.parallel", strconv.Itoa(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	os.Exit(func() int {
		defer os.RemoveAll(binaries)
		err := errors.Join(os.WriteFile(fewModels(), []byte(fewModelsText), 0o600),
			os.Mkdir(exposed(), 0o700), os.Symlink(exposed(), filepath.Join(binaries, "link-to-exposed")))
		if err != nil {
			panic(err)
		}
		defer chromium.Close()
		defer func() {
			for _, end := range shared.ends {
				end()
			}
		}()
		return m.Run()
	}())
}

// binariesVariable is how the tests know that they run in the directory binaries.
const binariesVariable = "POCKETCODER_TEST_BINARIES"

// runFromOwnDirectory makes the directory binaries and runs this program from there, in the same process, under the
// name of the program. A system looks for pocketcoder-shell beside its program.
func runFromOwnDirectory() error {
	dir, err := os.MkdirTemp("", "pocketcoder-e2e-")
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "pocketcoder")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		return err
	}
	return syscall.Exec(path, append([]string{path}, os.Args[1:]...), append(os.Environ(), binariesVariable+"="+dir))
}

// addRipgrepToPath puts ripgrep on PATH, where a system within the tests looks for it.
var addRipgrepToPath sync.Once

// buildShell builds pocketcoder-shell into the directory binaries, once.
var buildShell = sync.OnceValue(func() error { return goBuild(binaries, "../pocketcoder-shell") })

// goBuild builds programs as they are released.
func goBuild(dir string, packages ...string) error {
	cmd := exec.Command("go", append([]string{"build", "-ldflags", "-s -w", "-o", dir}, packages...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// pocketcoder returns the path of the program, which is this one, with pocketcoder-shell beside it. Building the
// program would take up to 40 s of processor time.
func pocketcoder(t testing.TB) string {
	t.Helper()
	if err := buildShell(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(binaries, "pocketcoder")
}

// pocketcoderShell returns the path of pocketcoder-shell.
func pocketcoderShell(t testing.TB) string {
	t.Helper()
	return pocketcoder(t) + "-shell"
}

// exposed is a directory that openSystem exposes, through a link.
func exposed() string { return filepath.Join(binaries, "exposed") }

// fewModels is a file for --model-catalogue, with one provider. At each start it saves 2 s of processor time (measured
// on 2 cores).
func fewModels() string { return filepath.Join(binaries, "few-models.json") }

const fewModelsText = `{"anthropic":{"id":"anthropic","name":"Anthropic","env":["ANTHROPIC_API_KEY"],"npm":"@ai-sdk/anthropic","models":{"claude-x":{"id":"claude-x",` +
	`"name":"Claude","release_date":"2026-01-01","attachment":false,"reasoning":false,"temperature":true,"tool_call":true,"limit":{"context":9999,"output":999}}}}}`

// process is a running "pocketcoder up", and a connection to it: a process of its own, or part of that of the tests.
type process struct {
	*client.System
	datadir.Running
	Conn *nats.Conn
	Log  *log.Log // read only

	t         testing.TB
	program   string    // path; "" for the one that the tests build
	inside    bool      // it is part of the tests' process
	cancel    func()    // of one inside
	cmd       *exec.Cmd // of one outside
	exited    chan struct{}
	output    *expect.Buffer
	data      datadir.Dir
	workspace string
	args      []string
	askRules  []string // further ones: rules that leave commands of the tests to a person
	env       []string // on top of the test's own

	administrator struct { // see admin
		sync.Mutex
		login
	}
}

// afterTests has a function called when all tests have ended.
func afterTests(end func()) {
	shared.Lock()
	defer shared.Unlock()
	shared.ends = append(shared.ends, end)
}

// sharedInstance is a running system that several tests share, each with chats of its own. The first of them starts it.
type sharedInstance struct {
	args        func() []string // nil for none
	asDelivered bool            // only with the built-in rules
	once        sync.Once
	p           *process
}

func (s *sharedInstance) system(t *testing.T) *process {
	t.Helper()
	opencodetest.Tools(t) // may end the test, and must not do so within the once
	s.once.Do(func() {
		dir, err := os.MkdirTemp(binaries, "shared-")
		if err != nil {
			t.Fatal(err)
		}
		var args []string
		if s.args != nil {
			args = s.args()
		}
		p := prepareInside(t, dir, args...)
		if s.asDelivered {
			p.askRules = nil
		}
		p.restart()
		s.p = p
		afterTests(p.stop)
	})
	if s.p == nil {
		t.Fatal("the shared system did not start")
	}
	before := len(s.p.output.String())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the shared system said meanwhile:\n" + s.p.output.String()[before:])
		}
	})
	return s.p
}

// openSystem is a system in which a person is asked for each host, todo lists and general subagents are allowed, and
// commands see the directory exposed beside the workspace. Its channels can reach the servers of tests. Its
// model has a price.
var openSystem = sharedInstance{args: func() []string {
	return []string{"--network", "ask", "--push-allow-private", "--allow", "todowrite: *", "--allow", "task: general",
		"--model-price", "10",
		"--expose", filepath.Join(binaries, "link-to-exposed")}
}}

// sharedSystem returns the system that was started without flags.
func sharedSystem(t *testing.T) *process {
	t.Helper()
	return ordinary.system(t)
}

// start starts a system of the test's own, as a process of its own and in a directory of its own, and stops it with
// the test.
func start(t testing.TB, args ...string) *process {
	t.Helper()
	p := prepare(t, t.TempDir(), args...)
	p.runForTest()
	return p
}

// startInside is start for a test that is not about the process: it runs the system within the tests' own.
func startInside(t testing.TB, args ...string) *process {
	t.Helper()
	p := prepareInside(t, t.TempDir(), args...)
	p.runForTest()
	return p
}

// runForTest starts what was prepared, and stops it with the test.
func (p *process) runForTest() {
	p.t.Helper()
	p.restart()
	p.t.Cleanup(func() {
		p.stop()
		if p.t.Failed() {
			p.t.Log(p.output.String())
		}
	})
}

// commandsNeedingApproval are harmless commands that tests let the model run. Rules with the action "ask" leave them to
// a person.
var commandsNeedingApproval = []string{"echo", "printf", "pwd", "head"}

// prepare makes a system in a directory, with an administrator and an empty workspace, that was never started.
func prepare(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	p := &process{t: t, data: datadir.Dir(filepath.Join(dir, "data")), workspace: filepath.Join(dir, "workspace")}
	if err := os.MkdirAll(p.workspace, 0o755); err != nil {
		t.Fatal(err)
	}
	p.args = append([]string{"up", "--demo", "--data", string(p.data), "--workspace", p.workspace, "--http", "127.0.0.1:0",
		"--model-catalogue", fewModels(), "--opencode", opencodetest.Tools(t).OpenCode}, args...)
	for _, command := range commandsNeedingApproval {
		p.askRules = append(p.askRules, "--allow", "ask bash: "+command+"*")
	}
	p.env = []string{"POCKETCODER_ADMIN_EMAIL=" + adminEmail, "POCKETCODER_ADMIN_PASSWORD=" + adminPassword}
	return p
}

// prepareInside is prepare for a system within the tests' process.
func prepareInside(t testing.TB, dir string, args ...string) *process {
	t.Helper()
	p := prepare(t, dir, args...)
	p.inside = true
	return p
}

// useTools puts what a system within the tests' process needs where it looks for it: pocketcoder-shell beside this
// program, and ripgrep on PATH.
func (p *process) useTools() {
	p.t.Helper()
	pocketcoderShell(p.t)
	ripgrep := filepath.Dir(opencodetest.Tools(p.t).Ripgrep)
	addRipgrepToPath.Do(func() { os.Setenv("PATH", ripgrep+":"+os.Getenv("PATH")) })
}

// startProcess runs the program, or the system within this process.
func (p *process) startProcess() {
	p.t.Helper()
	p.output, p.exited = &expect.Buffer{}, make(chan struct{})
	args := append(slices.Clip(p.args), p.askRules...)
	if p.inside {
		p.useTools()
		var ctx context.Context
		ctx, p.cancel = context.WithCancel(context.Background())
		env := cli.Environment{Stdin: strings.NewReader(""), Stdout: p.output, Stderr: p.output, Getenv: p.getenv}
		go func(output *expect.Buffer, exited chan struct{}) {
			defer close(exited)
			if err := run(ctx, env, args); err != nil {
				fmt.Fprintln(output, "pocketcoder:", err)
			}
		}(p.output, p.exited)
		return
	}
	p.cmd = exec.Command(cmp.Or(p.program, pocketcoder(p.t)), args...)
	ripgrep := filepath.Dir(opencodetest.Tools(p.t).Ripgrep)
	p.cmd.Env = append(append(os.Environ(), "PATH="+ripgrep+":"+os.Getenv("PATH")), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	p.cmd.WaitDelay = 10 * time.Millisecond // the worker, which has its stderr too, may outlive it
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.exited) }()
}

// getenv returns a variable of the system's environment.
func (p *process) getenv(name string) string {
	for _, v := range slices.Backward(p.env) {
		if value, ok := strings.CutPrefix(v, name+"="); ok {
			return value
		}
	}
	return os.Getenv(name)
}

// pid is that of the process in which the system runs.
func (p *process) pid() int {
	if p.inside {
		return os.Getpid()
	}
	return p.cmd.Process.Pid
}

// await waits until every part is ready.
func (p *process) await() {
	p.t.Helper()
	expect.Eventually(p.t, "the system is ready", func() bool {
		select {
		case <-p.exited:
			p.t.Fatalf("up ended: %s", p.output)
		default:
		}
		r, err := p.data.Running()
		if err != nil || r.PID != p.pid() {
			return false
		}
		resp, err := http.Get(r.HTTP + "/api/health")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	var err error
	if p.System, err = client.Connect(context.Background(), client.Address{Data: p.data}); err == nil {
		err = p.readLog()
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// readLog connects to the log.
func (p *process) readLog() (err error) {
	if p.Running, err = p.data.Running(); err != nil {
		return err
	}
	keys, err := natsconf.LoadKeys(p.data.Path("keys"))
	if err != nil {
		return err
	}
	options, err := keys.Options(natsconf.Core, "test")
	if err != nil {
		return err
	}
	if p.Conn, err = nats.Connect(p.NATS, options...); err == nil {
		p.Log, err = log.Attach(p.Conn)
	}
	return err
}

func (p *process) disconnect() {
	p.System.Close()
	p.Conn.Close()
}

// kill ends the program as a crash does, without a clean stop.
func (p *process) kill() {
	if p.inside {
		p.t.Fatal("a system within the tests cannot be killed: start it with start")
	}
	p.cmd.Process.Kill()
	<-p.exited
	p.disconnect()
}

// restart starts it, for the first time or again on the same data, and waits until every part is ready.
func (p *process) restart() {
	p.t.Helper()
	p.startProcess()
	p.await()
}

// stop ends the system as Ctrl-C does.
func (p *process) stop() {
	if p.inside {
		p.cancel()
		<-p.exited
		p.disconnect()
		return
	}
	p.cmd.Process.Signal(syscall.SIGINT)
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		p.cmd.Process.Kill()
		<-p.exited
	}
	p.disconnect()
}

// chat creates a chat and submits a first message: a script of the demo model.
func (p *process) chat(t testing.TB, script string) (chat string) {
	t.Helper()
	chat, err := p.Create(t.Context(), "chats", record{"title": t.Name()[:min(100, len(t.Name()))]})
	if err != nil {
		t.Fatal(err)
	}
	p.submit(t, chat, script)
	return chat
}

// submit submits a message to a chat and returns its id.
func (p *process) submit(t testing.TB, chat, script string) (message string) {
	t.Helper()
	message, err := p.Create(t.Context(), "messages", messageOf(chat, "", script))
	if err != nil {
		t.Fatal(err)
	}
	return message
}

// messageOf returns a new message of a person. The server makes its id if it is empty.
func messageOf(chat, id, text string) record {
	return record{"id": id, "chat": chat, "role": "user", "parts": []events.Part{{Type: "text", Text: text}}}
}

// decide decides a request.
func (p *process) decide(t testing.TB, chat string, request events.PermissionRequest, d events.Decision,
	reason string) {
	t.Helper()
	if err := p.Decide(t.Context(), request.ID, client.Decision{Status: d, Reason: reason}); err != nil {
		t.Fatal(err)
	}
}

// awaitRequest waits for the nth request of a chat, from 0, and returns it.
func (p *process) awaitRequest(t testing.TB, chat string, n int) (request events.PermissionRequest) {
	t.Helper()
	e := p.event(t, chat, "opencode.permission.asked", func(events.Event) bool { n--; return n < 0 })
	if err := json.Unmarshal(e.Data, &request); err != nil {
		t.Fatal(err)
	}
	return request
}
