package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/nats-io/nats.go"

	"pocketcoder/ops/natsconf"
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
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// system is NATS with the configuration that ships and a handler that runs what the shell asks for.
type system struct {
	env     []string
	denied  atomic.Value // a string: the handler refuses with it
	asked   chan wire.Request
	results chan wire.Result
	stop    func() error
}

func start(t testing.TB) *system {
	t.Helper()
	is := is.New(t)
	keys, err := natsconf.LoadKeys(t.TempDir())
	is.NoErr(err)
	server, err := natsconf.Start(context.Background(), natsconf.Config{
		Name: "test", Listen: "127.0.0.1:0", StoreDir: t.TempDir(), Keys: keys.Public, Engines: []string{"e1"}, Pools: []string{"p1"},
	})
	is.NoErr(err)
	t.Cleanup(server.Close)
	opts, err := keys.Options(natsconf.Core, "test")
	is.NoErr(err)
	nc, err := nats.Connect("", append(opts, nats.InProcessServer(server.Server))...)
	is.NoErr(err)
	t.Cleanup(nc.Close)
	s := &system{asked: make(chan wire.Request, 100_000), results: make(chan wire.Result, 100_000)}
	s.env = append(os.Environ(), "OPENCODE_SESSION_ID=ses_1", "OPENCODE_CALL_ID=call_72_0", "POCKETCODER_ENGINE=e1",
		"POCKETCODER_NATS_URL="+server.ClientURL(), "POCKETCODER_SHELL_KEY="+keys.SeedFile(natsconf.Shell))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- wire.Serve(ctx, nc, wire.RequestSubject("e1"), wire.Server{Handle: s.handle, Queue: "handlers"})
	}()
	for nc.NumSubscriptions() == 0 {
		time.Sleep(time.Millisecond)
	}
	is.NoErr(nc.Flush())
	s.stop = func() error { cancel(); return <-ended }
	t.Cleanup(cancel)
	return s
}

// handle runs the command in its own process group; true costs nothing, so that a benchmark measures the way alone.
func (s *system) handle(ctx context.Context, r wire.Request, stdout, stderr io.Writer) (result wire.Result) {
	defer func() { s.results <- result }()
	s.asked <- r
	if why, _ := s.denied.Load().(string); why != "" {
		return wire.Result{ExitCode: wire.ExitRefused, Reason: wire.Refused, Error: why}
	}
	if r.Command == "true" {
		return wire.Result{}
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", r.Command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.Cwd, stdout, stderr
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

func (s *system) shell(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = s.env
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
	asked := <-s.asked
	is.Equal(asked.Command, command)
	is.Equal(asked.Cwd, real) // the physical path, whatever $PWD says
	is.Equal(asked.Session, "ses_1")
	is.Equal(asked.Call, "call_72_0")
	is.Equal(asked.Workspace, "")
}

func TestMuchOutputToASlowReaderArrivesWhole(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	cmd := s.shell("-c", "head -c 100000000 /dev/zero; echo end")
	out, err := cmd.StdoutPipe()
	is.NoErr(err)
	is.NoErr(cmd.Start())
	first := make([]byte, 1)
	_, err = io.ReadFull(out, first)
	is.NoErr(err)
	n, err := io.Copy(io.Discard, out)
	is.NoErr(err)
	is.NoErr(cmd.Wait())
	is.Equal(n, int64(100_000_000+4-1))
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	t.Logf("largest resident set: %d MiB", usage.Maxrss>>10)
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
		"no engine":        {[]string{"-c", "true"}, "POCKETCODER_ENGINE=", "POCKETCODER_ENGINE is not set"},
		"engine with dots": {[]string{"-c", "true"}, "POCKETCODER_ENGINE=a.b", "POCKETCODER_ENGINE is not set"},
		"no address":       {[]string{"-c", "true"}, "POCKETCODER_NATS_URL=", "POCKETCODER_NATS_URL is not set"},
		"no key":           {[]string{"-c", "true"}, "POCKETCODER_SHELL_KEY=", "POCKETCODER_SHELL_KEY is not set"},
		"wrong key":        {[]string{"-c", "true"}, "POCKETCODER_SHELL_KEY=/dev/null", "connect to PocketCoder"},
		"nobody there":     {[]string{"-c", "true"}, "POCKETCODER_NATS_URL=nats://127.0.0.1:1", "connect to PocketCoder"},
		"another's engine": {[]string{"-c", "true"}, "POCKETCODER_ENGINE=e2", "Permissions Violation"},
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
			is.True(strings.Contains(errs, c.want))
			is.Equal(strings.Count(errs, "\n"), 1) // one line
			is.Equal(len(s.asked), 0)
		})
	}
}

func TestARefusalSaysWhy(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	s := start(t)
	s.denied.Store("nobody allowed this command\x1b[2J\nyet")
	out, errs, code := run(t, s.shell("-c", "true"))
	is.Equal(code, wire.ExitRefused)
	is.Equal(out, "")
	is.Equal(errs, "pocketcoder-shell: not run: nobody allowed this command [2J yet\n")

	is.NoErr(s.stop())
	_, errs, code = run(t, s.shell("-c", "true"))
	is.Equal(code, wire.ExitRefused)
	is.True(strings.Contains(errs, "nobody answers"))
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
