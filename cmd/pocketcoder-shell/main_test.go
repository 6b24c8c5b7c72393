package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
	"pocketcoder/bridge/opencode/shellsocket"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

var binary string // of pocketcoder-shell, built once

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "shell")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "pocketcoder-shell")
	if out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		os.Exit(1)
	}
	code := expect.Run(m)
	os.RemoveAll(dir)
	os.Exit(code)
}

// system is the bridge's side of the socket, and a handler that runs what the shell asks for.
type system struct {
	socket  string
	env     []string
	denied  atomic.Value // a string: the handler refuses with it
	asked   chan wire.Request
	results chan wire.Result
	written atomic.Int64 // bytes of stdout that commands could write
}

func start(t testing.TB) *system {
	t.Helper()
	s := &system{socket: filepath.Join(t.TempDir(), "run", "shell.sock"), asked: make(chan wire.Request, 100_000),
		results: make(chan wire.Result, 100_000)}
	s.env = append(os.Environ(), "OPENCODE_SESSION_ID=ses_1", "OPENCODE_CALL_ID=call_72_0",
		"POCKETCODER_SOCKET=unix:"+s.socket)
	stop := s.answer(t)
	t.Cleanup(func() { stop() })
	return s
}

// answer answers shells until the test ends or stop is called.
func (s *system) answer(t testing.TB) (stop func() error) {
	t.Helper()
	is := is.New(t)
	listener, err := opencode.ListenForShells(s.socket)
	is.NoErr(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := opencode.ShellServer{Listener: listener, Exec: s.handle,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	go func() { ended <- server.Serve(ctx); close(ended) }()
	return func() error { cancel(); return <-ended }
}

// handle runs the command in its own process group; true costs nothing, so that a benchmark measures the way alone.
func (s *system) handle(ctx context.Context, r wire.Request, stdout, stderr io.Writer) (result wire.Result) {
	if err := r.Validate(); err != nil {
		return wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: err.Error()}
	}
	defer func() { s.results <- result }()
	s.asked <- r
	if why, _ := s.denied.Load().(string); why != "" {
		return wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: why}
	}
	if r.Command == "true" {
		return wire.Result{}
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", r.Command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.Cwd, counter{stdout, &s.written}, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	if ctx.Err() != nil {
		return wire.Result{ExitCode: 137, Reason: wire.Cancelled}
	}
	if cmd.ProcessState == nil {
		return wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: err.Error()}
	}
	return wire.Result{ExitCode: max(cmd.ProcessState.ExitCode(), 0)}
}

type counter struct {
	io.Writer
	n *atomic.Int64
}

func (c counter) Write(p []byte) (int, error) {
	n, err := c.Writer.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func (s *system) shell(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = slices.Clone(s.env) // tests in parallel append to it
	return cmd
}

// run returns stdout, stderr and the exit code.
func run(t *testing.T, cmd *exec.Cmd) (string, string, int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func TestACommandIsRunWhereAndAsItWasAsked(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	real := filepath.Join(t.TempDir(), "real")
	is.NoErr(os.Mkdir(real, 0o755))
	link := real + "-link"
	is.NoErr(os.Symlink(real, link))
	command := "printf 'a\\0b\\377'\n" + `echo "it's" >&2; cat <<'END'
$HOME ü
END
pwd -P; exit 7`
	cmd := s.shell("-c", command)
	cmd.Dir = link
	cmd.Env = append(cmd.Env, "PWD="+link)
	out, errs, code := run(t, cmd)
	is.Equal(out, "a\x00b\xff$HOME ü\n"+real+"\n")
	is.Equal(errs, "it's\n")
	is.Equal(code, 7)
	request := <-s.asked
	is.Equal(request.Command, command)
	is.Equal(request.Cwd, real) // the physical path, whatever $PWD says
	is.Equal(request.Session, "ses_1")
	is.Equal(request.Call, "call_72_0")
	is.Equal(request.Workspace, "")
}

func TestMuchOutputToASlowReaderArrivesWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	cmd := s.shell("-c", "head -c 100000000 /dev/zero; echo end")
	out, err := cmd.StdoutPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	read, ahead, chunk := int64(0), int64(0), make([]byte, 64<<10)
	for {
		n, err := out.Read(chunk)
		read += int64(n)
		ahead = max(ahead, s.written.Load()-read)
		if err == io.EOF {
			break
		}
		is.NoErr(err)
	}
	is.NoErr(cmd.Wait())
	is.Equal(read, int64(100_000_000+4))
	t.Logf("the command wrote at most %d KiB ahead", ahead>>10)
	is.True(ahead < 4<<20)
}

func TestASocketMayHaveALongPath(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.socket = filepath.Join(t.TempDir(), strings.Repeat("long/", 40), "run", "shell.sock")
	stop := s.answer(t)
	cmd := s.shell("-c", "pwd -P")
	cmd.Env = append(cmd.Env, "POCKETCODER_SOCKET=unix:"+s.socket)
	cmd.Dir = t.TempDir()
	out, errs, code := run(t, cmd)
	is.Equal([]any{out, errs, code}, []any{cmd.Dir + "\n", "", 0}) // the command's directory is not the socket's
	is.NoErr(stop())
}

// A bridge that crashes cannot answer. Before it accepts a request, it has not asked anybody to run the command.
func TestAShellSaysWhatIsKnownWhenTheBridgeIsGone(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, c := range map[string]struct {
		frames []byte
		code   int
		want   string
	}{
		"before it accepts":  {nil, 126, "not run: the connection to PocketCoder ended"},
		"after it accepts":   {shellsocket.Append(nil, shellsocket.Accepted, ""), 255, "lost, the command may have run: the connection to PocketCoder ended"},
		"within a frame":     {[]byte("a\x00\x00\x00\x00o\x00\x00"), 255, "lost, the command may have run: the connection to PocketCoder ended"},
		"another protocol":   {[]byte("a\x00\x00\x00\x00?\x00\x00\x00\x00"), 255, "lost, the command may have run: PocketCoder sent a frame that this shell does not know; use a pocketcoder-shell of its version"},
		"a frame too long":   {[]byte("a\x00\x00\x00\x00o\xff\xff\xff\xff"), 255, "lost, the command may have run: the connection to PocketCoder broke: a frame is longer than allowed"},
		"a result with none": {[]byte("a\x00\x00\x00\x00f\x00\x00\x00\x00"), 255, "lost, the command may have run: PocketCoder sent a frame that this shell does not know; use a pocketcoder-shell of its version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			socket := filepath.Join(t.TempDir(), "shell.sock")
			listener, err := opencode.ListenForShells(socket)
			is.NoErr(err)
			defer listener.Close()
			go func() {
				conn, err := listener.Accept()
				if err == nil {
					shellsocket.NewReader(conn, shellsocket.MaxRequest).Next()
					conn.Write(c.frames)
					conn.Close()
				}
			}()
			cmd := s.shell("-c", "true")
			cmd.Env = append(cmd.Env, "POCKETCODER_SOCKET=unix:"+socket)
			out, errs, code := run(t, cmd)
			is.Equal([]any{out, errs, code}, []any{"", "pocketcoder-shell: " + c.want + "\n", c.code})
		})
	}
}

func TestOutputComesWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	fifo := filepath.Join(t.TempDir(), "go-on")
	is.NoErr(syscall.Mkfifo(fifo, 0o600))
	cmd := s.shell("-c", "echo first; cat "+fifo)
	out, err := cmd.StdoutPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	first := make([]byte, 6)
	_, err = io.ReadFull(out, first) // before the command can end
	is.NoErr(err)
	is.Equal(string(first), "first\n")
	is.NoErr(os.WriteFile(fifo, []byte("second"), 0))
	rest, err := io.ReadAll(out)
	is.NoErr(err)
	is.Equal(string(rest), "second")
	is.NoErr(cmd.Wait())
}

func TestWhatIsNotAnAgentsCommandIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t)
	for name, c := range map[string]struct {
		args []string
		env  string
		want string
	}{
		"no arguments":     {nil, "", "-c COMMAND"},
		"interactive":      {[]string{"-i"}, "", "-c COMMAND"},
		"login":            {[]string{"-l", "-c", "true"}, "", "-c COMMAND"},
		"more arguments":   {[]string{"-c", "true", "x"}, "", "-c COMMAND"},
		"no session":       {[]string{"-c", "true"}, "OPENCODE_SESSION_ID=", "OPENCODE_SESSION_ID is not set"},
		"no call":          {[]string{"-c", "true"}, "OPENCODE_CALL_ID=", "OPENCODE_CALL_ID is not set"},
		"no address":       {[]string{"-c", "true"}, "POCKETCODER_SOCKET=", "POCKETCODER_SOCKET is not set"},
		"other address":    {[]string{"-c", "true"}, "POCKETCODER_SOCKET=nats://127.0.0.1:1", "want unix:PATH"},
		"relative address": {[]string{"-c", "true"}, "POCKETCODER_SOCKET=unix:shell.sock", "want unix:PATH"},
		"no server":        {[]string{"-c", "true"}, "POCKETCODER_SOCKET=unix:" + s.socket + "x", "shell.sockx: no such file or directory"},
		"no directory":     {[]string{"-c", "true"}, "POCKETCODER_SOCKET=unix:/nowhere/shell.sock", "connect to PocketCoder: /nowhere/shell.sock: no such"},
		"bad session":      {[]string{"-c", "true"}, "OPENCODE_SESSION_ID=a b", "session must be"},
		"empty command":    {[]string{"-c", " \n"}, "", "command is empty"},
		"not UTF-8":        {[]string{"-c", "echo \xff"}, "", "must be UTF-8"},
		"too long":         {[]string{"-c", strings.Repeat("x", wire.MaxCommand+1)}, "", "at most 122880 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			cmd := s.shell(c.args...)
			cmd.Env = append(cmd.Env, c.env)
			out, errs, code := run(t, cmd)
			is.Equal(code, wire.ExitRefused)
			is.Equal(out, "")
			is.True(strings.HasPrefix(errs, "pocketcoder-shell: not run: "))
			expect.Contains(t, errs, c.want)
			is.Equal(strings.Count(errs, "\n"), 1) // one line
			is.Equal(len(s.asked), 0)
		})
	}
}

func TestARefusalSaysWhy(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.denied.Store("no rule allowed this command\x1b[2J\nyet")
	out, errs, code := run(t, s.shell("-c", "true"))
	is.Equal(code, wire.ExitRefused)
	is.Equal(out, "")
	is.Equal(errs, "pocketcoder-shell: not run: no rule allowed this command [2J yet\n")
}

// The way of a command, in process to the handler, beside the plain shell: compare the two medians of one run.
func BenchmarkTrue(b *testing.B) {
	s := start(b)
	b.Run("pocketcoder-shell", func(b *testing.B) { median(b, func() *exec.Cmd { return s.shell("-c", "true") }) })
	b.Run("sh", func(b *testing.B) { median(b, func() *exec.Cmd { return exec.Command("sh", "-c", "true") }) })
	b.Run("refused", func(b *testing.B) { median(b, func() *exec.Cmd { return exec.Command(binary) }) })
}

func median(b *testing.B, command func() *exec.Cmd) {
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		command().Run()
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
