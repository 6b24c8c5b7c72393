package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

// tmux is the tmux server of a system's data directory, which the system stops with itself.
type tmux struct{ path, socket string }

func tmuxFor(t *testing.T, data datadir.Dir) tmux {
	t.Helper()
	v := tmux{expect.Program(t, "tmux"), data.Path("tmux", "socket")}
	if err := os.MkdirAll(filepath.Dir(v.socket), 0o700); err != nil {
		t.Fatal(err)
	}
	return v
}

func (v tmux) output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, v.path, append([]string{"-S", v.socket, "-f", os.DevNull}, args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (v tmux) run(ctx context.Context, args ...string) error {
	_, err := v.output(ctx, args...)
	return err
}

// windows returns the names of a chat's windows.
func (v tmux) windows(ctx context.Context, chat string) ([]string, error) {
	out, err := v.output(ctx, "list-windows", "-t", "="+chat, "-F", "#{window_name}")
	return strings.Fields(out), err
}

// screenOf returns the content of a chat's window, with its history.
func (v tmux) screenOf(t *testing.T, chat, window string) string {
	t.Helper()
	out, err := v.output(t.Context(), "capture-pane", "-p", "-J", "-S", "-", "-t", "="+chat+":"+window)
	is.New(t).NoErr(err)
	return out
}

// hostileOutput would change a terminal if it reached it unescaped.
var hostileOutput = []string{
	"\x1b]0;evil-title\x07", "\x1b]2;evil-title\x1b\\", "\x1bkevil-name\x1b\\", "\x1b]52;c;ZXZpbA==\x07",
	"\x1b]8;;https://evil.example\x07link\x1b]8;;\x07",
	"\x1bPtmux;\x1b\x1b]52;c;ZXZpbA==\x07\x1b\\", "\x1b_evil-apc\x1b\\", "\x1b[2J\x1b[H", "\x9b2J", "\u202eevil",
}

func attachShowsARunningCommand(t *testing.T, p *process) {
	is := is.New(t)
	v := tmuxFor(t, p.data)
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, "hostile"), []byte(strings.Join(hostileOutput, "\n")+"\n"), 0o600))
	chat := p.chat(t, bash(`echo begun; cat hostile; while [ ! -e go ]; do sleep 0.05; done; echo went on; false`))
	p.approve(t, chat, 0)

	s := p.attach(t) // the one with the newest activity
	s.awaitText("begun")
	expect.Eventually(t, "all that was printed is shown", func() bool {
		return strings.Contains(v.screenOf(t, chat, "0"), "<U+202E>evil")
	})
	ran := rows[projections.ShownExecution](t, p, "executions", chat)[0]
	is.Equal(ran.Status, events.ExecutionRunning) // it still runs
	second := p.attach(t, chat)
	second.awaitText("begun")
	is.NoErr(os.WriteFile(filepath.Join(p.workspace, "go"), nil, 0o600))
	s.awaitText("went on")
	s.awaitText("exit 1")
	second.awaitText("went on")

	shown := v.screenOf(t, chat, "0")
	for _, text := range []string{"the assistant · approved by operator", `$ echo begun;`, "␛]0;evil-title␇",
		"␛]52;c;ZXZpbA==␇", "␛Ptmux;", "␛[2J␛[H", "<0x9B>2J"} {
		if !strings.Contains(shown, text) {
			t.Errorf("%q is not shown in\n%s", text, shown)
		}
	}
	for _, raw := range hostileOutput {
		expect.Lacks(t, s.seen.String(), raw) // it did not reach the terminal
	}
	// titles, the clipboard and links are left alone by tmux too
	for _, code := range []string{"\x1b]0;", "\x1b]2;", "\x1b]52;", "\x1b]8;"} {
		expect.Lacks(t, s.seen.String(), code)
	}
	title, err := v.output(t.Context(), "display-message", "-p", "-t", "="+chat+":0", "#{window_name}|#{pane_title}")
	is.NoErr(err)
	expect.Lacks(t, title, "evil")
	buffers, err := v.output(t.Context(), "list-buffers")
	is.NoErr(err)
	is.Equal(buffers, "")

	s.pressAfterPrefix(v, chat, "d")
	s.awaitExit()
	second.pressAfterPrefix(v, chat, "d")
	second.awaitExit()
	p.stop()
	is.True(v.run(t.Context(), "has-session", "-t", "="+chat) != nil) // it ends with the system
}

// boundKeys is the number of keys with a binding: those of the viewer's settings, and the ten digits.
const boundKeys = 22 + 10

func TestViewerKeysRunNoProgramOnTheHost(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	v := tmuxFor(t, p.data)
	t.Cleanup(func() { v.run(context.Background(), "kill-server") })
	chat := p.create(t, "viewed")
	s := p.attach(t, chat)
	s.awaitText("the commands of chat " + chat)

	// otherwise tmux would treat fast keys as pasted text
	is.NoErr(v.run(t.Context(), "set-option", "-g", "assume-paste-time", "0"))
	keys, err := v.output(t.Context(), "list-keys")
	is.NoErr(err)
	is.Equal(strings.Count(keys, "\n"), boundKeys) // nothing of tmux's own

	// Between two clicks with the right button: tmux would take them for a double click, say so 300 ms later as if a key
	// were pressed, and forget a C-b of that moment.
	leftClick := "\x1b[<0;5;40M\x1b[<0;5;40m"
	mark := filepath.Join(t.TempDir(), "ran")
	for _, attempt := range []string{
		"\x02:run-shell 'touch " + mark + "'\r", "\x02!", "\x02:display-popup 'touch " + mark + "'\r",
		"\x02\"touch " + mark + "\r", "\x02%touch " + mark + "\r",
		"\x02s:run-shell 'touch " + mark + "'\r", "\x02w:run-shell 'touch " + mark + "'\r",
		"\x02D:run-shell 'touch " + mark + "'\r", "\x02=", "\x02f", "\x02.", "\x02,", "\x02$",
		"\x02[:run-shell 'touch " + mark + "'\r|touch " + mark + "\rq", "\x1b[<2;5;5M\x1b[<2;5;5m", leftClick,
		"\x1b[<2;5;40M", "\x02\x1a", "\x02L", "\x02)", "\x02(", "\x02C", "\x02?", "\x02t",
		"touch " + mark + "\r", "\x02]", "\x02&y", "\x02x",
	} {
		if keys, isCommand := strings.CutPrefix(attempt, "\x02"); isCommand {
			s.pressAfterPrefix(v, chat, keys)
		} else {
			s.typeText(attempt)
		}
	}
	s.pressAfterPrefix(v, chat, "d")
	s.awaitExit()
	names, err := v.windows(t.Context(), chat)
	is.NoErr(err)
	is.Equal(names, []string{"transcript"})                // the session has only this window
	expect.Lacks(t, v.screenOf(t, chat, "0"), "run-shell") // the window ignores typed text

	for _, made := range [][]string{{"new-window", "-t", "=" + chat + ":", "-n", "default"},
		{"new-window", "-t", "=" + chat + ":", "-n", "line", "touch " + mark}} {
		// the pane stays, so that its end can be checked
		stays := []string{"set-option", "-p", "-t", "=" + chat + ":=" + made[4], "remain-on-exit", "on"}
		// what tmux would run without a command, or through its shell, is this program
		is.NoErr(v.run(t.Context(), slices.Concat(made, []string{";"}, stays)...))
		screen := ""
		defer func() {
			if t.Failed() {
				state, err := v.output(context.Background(), "list-panes", "-s", "-t", "="+chat, "-F",
					"#W dead=#{pane_dead} status=#{pane_dead_status} signal=#{pane_dead_signal} #{pane_current_command}")
				t.Logf("window %s shows %q; the panes: %s %v", made[4], screen, state, err)
			}
		}()
		expect.Eventually(t, "it refuses", func() bool {
			screen = v.screenOf(t, chat, made[4])
			return strings.Contains(screen, "pocketcoder")
		})
	}
	_, err = os.Stat(mark)
	is.True(os.IsNotExist(err))
}

func TestEachSubagentAtWorkHasAWindow(t *testing.T) {
	expect.Long(t, "has two turns and a tmux")
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	v := tmuxFor(t, p.data)
	script := call("task", map[string]any{"description": "look after it", "subagent_type": "general",
		"prompt": bash("echo from below")})
	chat := p.chat(t, script+"\n@@next\n@@say all done")
	p.approve(t, chat, 0)
	request := p.awaitRequest(t, chat, 1)
	s := p.attach(t, chat)
	s.awaitText("subagent general: look after it")
	name := "general-" + request.SessionID[len(request.SessionID)-4:]
	windows := func() []string {
		names, err := v.windows(t.Context(), chat)
		is.NoErr(err)
		return names
	}
	expect.Eventually(t, "it has a window", func() bool { return len(windows()) == 2 && windows()[1] == name })
	s.pressAfterPrefix(v, chat, "n")
	// tmux can miss the end of the window's program, so the window must not depend on it
	is.NoErr(v.run(t.Context(), "respawn-pane", "-k", "-t", "="+chat+":="+name, "--", "sleep", "600"))
	p.decide(t, chat, request, events.Authorized, "")
	p.turnEnds(t, chat)
	expect.Eventually(t, "its window is gone", func() bool { return len(windows()) == 1 })
	expect.Eventually(t, "the first window shows its commands", func() bool {
		return strings.Contains(v.screenOf(t, chat, "0"), "subagent general · approved by operator") &&
			strings.Contains(v.screenOf(t, chat, "0"), "    $ echo from below")
	})
}

func TestAttachReportsMissingRequirements(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := startAPI(t)
	tmuxFor(t, p.data)
	_, _, err := runApp(t, "attach", "--data", string(p.data))
	expect.Contains(t, err.Error(), "it needs a terminal")
	mistyped := filepath.Join(t.TempDir(), "mistyped")
	for _, c := range []struct{ data, chat, want string }{
		{mistyped, "nosuchchat", "pocketcoder up"},
		{string(p.data), "nosuchchat", "there is no chat nosuchchat"},
		{filepath.Join(t.TempDir(), strings.Repeat("x", 100)), "c1", "choose a shorter --data"},
	} {
		p := process{data: datadir.Dir(c.data)}
		s := p.attach(t, c.chat)
		s.awaitText(c.want)
		s.awaitExit()
	}
	_, err = os.Stat(mistyped)
	is.True(os.IsNotExist(err)) // it is not created
	cmd := exec.Command(pocketcoder(t), "attach")
	cmd.Env = []string{"PATH=" + t.TempDir(), "HOME=" + t.TempDir()}
	s := startTerminal(t, cmd)
	s.awaitText("apt install tmux")
	s.awaitExit()
}

func TestViewerSessionOfADeletedChatEnds(t *testing.T) {
	t.Parallel()
	p := startAPI(t)
	v := tmuxFor(t, p.data)
	t.Cleanup(func() { v.run(context.Background(), "kill-server") })
	chat := p.create(t, "viewed")
	s := p.attach(t, chat)
	s.awaitText("the commands of chat " + chat)
	p.admin(t).do(t, "DELETE", recordPath("chats", chat), nil)
	s.awaitExit()
	expect.Eventually(t, "the session is gone", func() bool {
		return v.run(t.Context(), "has-session", "-t", "="+chat) != nil
	})
}
