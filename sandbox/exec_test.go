package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// unprotected is the isolation level None, for tests that are not about isolation.
var unprotected = isolation.Choice{Level: isolation.None}

// open returns a worker of a fresh workspace.
func open(t *testing.T) *Worker {
	t.Helper()
	w, err := Open(Config{Isolation: unprotected, Workspace: t.TempDir(), Home: t.TempDir(),
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

var execs atomic.Int64

// request returns a request to run command in the worker's workspace, with a new exec id.
func (w *Worker) request(command string) wire.Request {
	return wire.Request{Exec: fmt.Sprintf("exec%d", execs.Add(1)), Command: command, Cwd: w.workspace}
}

// run returns how a command ended and what it printed.
func run(t *testing.T, w *Worker, command string) (result wire.Result, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	result = w.Exec(t.Context(), w.request(command), &out, &err)
	return result, out.String(), err.String()
}

func TestCommandReadsItsInputToTheEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	large := strings.Repeat("x", 1<<20) // more than a pipe holds
	input := make(chan wire.Input, 2)
	input <- wire.Input{Data: []byte("first ")}
	input <- wire.Input{Data: []byte(large)}
	close(input)
	r := w.request("head -c 6; wc -c; cat")
	r.Stdin, r.Input = true, input
	var out bytes.Buffer
	is.Equal(w.Exec(t.Context(), r, &out, io.Discard).Reason, wire.Exited)
	is.Equal(strings.Fields(out.String()), []string{"first", fmt.Sprint(len(large))})

	deaf := w.request("sleep 0.1") // reads nothing
	input = make(chan wire.Input, 1)
	input <- wire.Input{Data: []byte(large)}
	deaf.Stdin, deaf.Input = true, input
	is.Equal(w.Exec(t.Context(), deaf, io.Discard, io.Discard).Reason, wire.Exited)
}

func TestCommandsBehaveAsInAShell(t *testing.T) {
	t.Parallel()
	w := open(t)
	for name, c := range map[string]struct {
		command, stdout, stderr string
		code                    int
		signal                  string
	}{
		"exit 0":              {command: "true"},
		"exit 1":              {command: "false", code: 1},
		"exit 3":              {command: "exit 3", code: 3},
		"exit 255":            {command: "exit 255", code: 255},
		"exit wraps":          {command: "exit 256"},
		"not found":           {command: "no-such-program 2>/dev/null", code: 127},
		"not executable":      {command: "/dev/null 2>/dev/null", code: 126},
		"exit looks like 128": {command: "exit 137", code: 137},
		"killed":              {command: "kill -KILL $$", code: 137, signal: "SIGKILL"},
		"terminated":          {command: "kill -TERM $$", code: 143, signal: "SIGTERM"},
		"segmentation fault":  {command: "kill -SEGV $$", code: 139, signal: "SIGSEGV"},
		"child killed":        {command: "sh -c 'kill -KILL $$'; exit $?", code: 137, stderr: "\x00"},
		"several lines":       {command: "a=1\nb=2\n\nif true; then\n\techo $a$b\nfi\n", stdout: "12\n"},
		"quotes":              {command: `echo "a'b" 'c"d' "e\"f" \$HOME '$HOME' "  two  "`, stdout: "a'b c\"d e\"f $HOME $HOME   two  \n"},
		"no quoting between":  {command: `printf '%s|' "$(echo 'x  y')" * ; true`, stdout: "x  y|*|"},
		"here-doc":            {command: "cat <<'END'\n$a `b` \"c\"\n\tEND\nEND\necho after", stdout: "$a `b` \"c\"\n\tEND\nafter\n"},
		"binary":              {command: `printf '\000\377\r\n\033[31m\200'`, stdout: "\x00\xff\r\n\x1b[31m\x80"},
		"unicode":             {command: "echo 'ä€🙂'; x=🙂; echo ${#x}", stdout: "ä€🙂\n1\n"},
		"no output":           {command: ""},
		"no newline at end":   {command: "printf x", stdout: "x"},
		"stderr apart":        {command: "echo out; echo err >&2; echo out2; exit 5", stdout: "out\nout2\n", stderr: "err\n", code: 5},
		"syntax error":        {command: "if", code: 2, stderr: "\x00"},
		"stdin is empty":      {command: "cat; read x || echo end", stdout: "end\n"},
		"sentinel-like text":  {command: "echo '__EXIT__:0'; echo 'exit code: 0' >&2; echo '{\"exit_code\":0}'; exit 4", stdout: "__EXIT__:0\n{\"exit_code\":0}\n", stderr: "exit code: 0\n", code: 4},
		"leading dash":        {command: "-x", code: 2, stderr: "\x00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			result, stdout, stderr := run(t, w, c.command)
			is.Equal(stdout, c.stdout)
			if c.stderr == "\x00" { // the shell's own words
				is.True(stderr != "")
			} else {
				is.Equal(stderr, c.stderr)
			}
			is.Equal(result.Reason, wire.Exited)
			is.Equal(result.ExitCode, c.code)
			is.Equal(result.Signal, c.signal)
		})
	}
}

func TestCwdIsInsideTheWorkspace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	base, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	workspace := filepath.Join(base, "workspace")
	for _, dir := range []string{"workspace/a b/c", "workspace/..dots", "workspace2", "outside"} {
		is.NoErr(os.MkdirAll(filepath.Join(base, dir), 0o755))
	}
	is.NoErr(os.WriteFile(filepath.Join(workspace, "file"), nil, 0o644))
	for link, to := range map[string]string{"in": "a b", "absolute": filepath.Join(workspace, "a b"), "out": "../outside",
		"root": "/", "loop": "loop"} {
		is.NoErr(os.Symlink(to, filepath.Join(workspace, link)))
	}
	is.NoErr(os.Symlink(workspace, filepath.Join(base, "alias")))
	w, err := Open(Config{Isolation: unprotected, Workspace: filepath.Join(base, "alias"), Home: t.TempDir()})
	is.NoErr(err)
	t.Cleanup(w.Close)

	for cwd, want := range map[string]struct{ dir, refusal string }{
		"alias":                     {dir: "workspace"},
		"workspace":                 {dir: "workspace"},
		"workspace/a b/c":           {dir: "workspace/a b/c"},
		"workspace/..dots":          {dir: "workspace/..dots"},
		"workspace/in/c":            {dir: "workspace/a b/c"},
		"workspace/absolute":        {dir: "workspace/a b"},
		"workspace/../workspace/in": {dir: "workspace/a b"},
		"workspace2":                {refusal: "outside the workspace"},
		"outside":                   {refusal: "outside the workspace"},
		".":                         {refusal: "outside the workspace"},
		"workspace/..":              {refusal: "outside the workspace"},
		"workspace/out":             {refusal: "outside the workspace"},
		"workspace/root/etc":        {refusal: "outside the workspace"},
		"workspace/in/../../..":     {refusal: "outside the workspace"},
		"workspace/missing":         {refusal: "no such file or directory"},
		"workspace/file":            {refusal: "not a directory"},
		"workspace/loop":            {refusal: "too many levels of symbolic links"},
	} {
		t.Run(cwd, func(t *testing.T) {
			is := is.New(t)
			var stdout, stderr bytes.Buffer
			r := w.request("pwd -P")
			r.Cwd = base + "/" + cwd
			result := w.Exec(t.Context(), r, &stdout, &stderr)
			if want.refusal == "" {
				is.Equal(result.Error, "")
				is.Equal(stdout.String(), filepath.Join(base, want.dir)+"\n")
				return
			}
			is.Equal(result.Reason, wire.Refused)
			is.Equal(result.ExitCode, wire.ExitRefused)
			expect.Contains(t, result.Error, want.refusal) // the reason
			expect.Contains(t, result.Error, r.Cwd)        // and the path
			is.Equal(stdout.Len()+stderr.Len(), 0)
		})
	}
}

func TestSwappingCwdForASymlinkNeverLeavesTheWorkspace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	cwd, spare, outside := filepath.Join(w.workspace, "cwd"), filepath.Join(w.workspace, "spare"), t.TempDir()
	is.NoErr(os.Mkdir(cwd, 0o755))
	stop := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				os.Rename(cwd, spare)
				os.Symlink(outside, cwd)
				os.Remove(cwd)
				os.Rename(spare, cwd)
			}
		}
	})
	var ran, refused int
	// the other may have been stopped in the middle
	for tries := 0; tries < 100 || (ran == 0 || refused == 0) && tries < 30_000; tries++ {
		var stdout bytes.Buffer
		// which asks the kernel; that of bash resolves $PWD, which may be a symlink by then
		r := w.request("exec /bin/pwd -P")
		r.Cwd = cwd
		if w.Exec(t.Context(), r, &stdout, io.Discard).Reason == wire.Refused {
			refused++
			continue
		}
		ran++
		is.True(strings.HasPrefix(stdout.String(), w.workspace+"/"))
	}
	close(stop)
	swapper.Wait()
	t.Log("ran", ran, "refused", refused)
	is.True(ran > 0 && refused > 0) // otherwise there was no race
}

func TestInvalidRequestsAreRefused(t *testing.T) {
	t.Parallel()
	w := open(t)
	for want, spoil := range map[string]func(*wire.Request){
		"request names no exec":             func(r *wire.Request) { r.Exec = "" },
		`cwd "sub" is not an absolute path`: func(r *wire.Request) { r.Cwd = "sub" },
		`cwd "" is not an absolute path`:    func(r *wire.Request) { r.Cwd = "" },
		"workspace /elsewhere is not this":  func(r *wire.Request) { r.Workspace = "/elsewhere" },
		"command contains a NUL byte":       func(r *wire.Request) { r.Command = "echo\x00" },
		"timeout -1 ms is out of range":     func(r *wire.Request) { r.TimeoutMS = -1 },
		"timeout 9223372036854775807 ms":    func(r *wire.Request) { r.TimeoutMS = 1<<63 - 1 },
		"argument list too long":            func(r *wire.Request) { r.Command = strings.Repeat("#", 200_000) },
	} {
		t.Run(want, func(t *testing.T) {
			is := is.New(t)
			r := w.request("touch ran")
			spoil(&r)
			result := w.Exec(t.Context(), r, io.Discard, io.Discard)
			is.Equal(result.Reason, wire.Refused)
			is.Equal(result.ExitCode, wire.ExitRefused)
			expect.Contains(t, result.Error, want)
			_, err := os.Stat(filepath.Join(w.workspace, "ran"))
			is.True(errors.Is(err, os.ErrNotExist))
		})
	}
}

func TestRunningExecIsNotStartedAgain(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	w := open(t)
	r := w.request("echo started; sleep 60")
	r.Workspace = w.config.Workspace
	ctx, cancel := context.WithCancel(t.Context())
	started := newLines()
	first := make(chan wire.Result, 1)
	go func() { first <- w.Exec(ctx, r, started, io.Discard) }()
	is.Equal(started.next(t), "started")
	second := w.Exec(t.Context(), r, io.Discard, io.Discard)
	is.Equal(second.Reason, wire.Refused)
	is.Equal(second.Error, "exec "+r.Exec+" is already running")
	cancel()
	is.Equal((<-first).Reason, wire.Cancelled)
	is.Equal(w.Exec(ctx, w.request("touch ran"), io.Discard, io.Discard).Reason, wire.Refused) // cancelled before it began
}

func TestEnvironmentIsNotInherited(t *testing.T) {
	is := is.New(t)
	for _, name := range []string{"OPENAI_API_KEY", "GITHUB_TOKEN", "AWS_SECRET", "PGPASSWORD", "POCKETCODER_NATS",
		"BASH_ENV", "LD_PRELOAD_X", "SSH_AUTH_SOCK"} {
		t.Setenv(name, "leaked")
	}
	t.Setenv("PATH", "/opt/own/bin:relative:"+os.Getenv("PATH"))
	w := open(t)
	r := w.request("env -0")
	var stdout bytes.Buffer
	is.Equal(w.Exec(t.Context(), r, &stdout, io.Discard).ExitCode, 0)
	expect.Lacks(t, stdout.String(), "leaked")
	got := map[string]string{}
	for _, variable := range strings.Split(strings.TrimSuffix(stdout.String(), "\x00"), "\x00") {
		name, value, _ := strings.Cut(variable, "=")
		got[name] = value
	}
	is.True(strings.HasPrefix(got["PATH"], "/opt/own/bin:"))
	is.True(strings.HasSuffix(got["PATH"], "/bin"))
	expect.Lacks(t, got["PATH"], "relative")
	is.Equal(got["HOME"], w.config.Home)
	is.Equal(got["PWD"], w.workspace)
	is.Equal(got["TERM"], "dumb")
	is.Equal(got["LANG"], "C.UTF-8")
	is.Equal(got["AGENT"], "1")
	is.Equal(got["POCKETCODER_EXEC"], r.Exec)
	is.Equal(got["POCKETCODER_WORKSPACE"], w.workspace)
	for _, known := range []string{"PATH", "HOME", "PWD", "TMPDIR", "SHELL", "USER", "LOGNAME", "LANG", "LC_ALL", "TERM",
		"OPENCODE", "AGENT", "GIT_CONFIG_GLOBAL",
		// the last three are bash's
		"POCKETCODER_EXEC", "POCKETCODER_WORKER", "POCKETCODER_WORKSPACE", "SHLVL", "OLDPWD", "_"} {
		delete(got, known)
	}
	is.Equal(got, map[string]string{})
}

func TestOpenNeedsADirectoryAndAShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for want, c := range map[string]Config{
		`"" is not an absolute path`:   {},
		`"ws" is not an absolute path`: {Workspace: "ws"},
		"no such file or directory":    {Workspace: filepath.Join(dir, "missing")},
		"find shell":                   {Workspace: dir, Shell: "no-such-shell"},
		"make home":                    {Workspace: dir, Home: "/dev/null/home"},
	} {
		t.Run(want, func(t *testing.T) {
			is := is.New(t)
			_, err := Open(c)
			is.True(err != nil)
			expect.Contains(t, err.Error(), want)
		})
	}
}
