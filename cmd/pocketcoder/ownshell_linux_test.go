package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"
	"golang.org/x/sys/unix"

	"pocketcoder/events"
	"pocketcoder/ops/expect"
	"pocketcoder/projections"
)

func (p *process) ownShell(t *testing.T, args ...string) *terminalSession {
	t.Helper()
	cmd := exec.Command(pocketcoder(t), append([]string{"sandbox", "shell", "--data", string(p.data)},
		args...)...)
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	return startTerminal(t, cmd)
}

func TestOwnShellRunsInsideTheIsolationAndIsRecorded(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	p := sharedSystem(t)
	chat := p.create(t, "shell")
	person := p.ownShell(t, chat)
	person.typeText("pwd; stty size; ls " + p.data.Path("keys") + "\n")
	person.awaitText(p.workspace)
	person.awaitText("40 120")
	is.NoErr(unix.IoctlSetWinsize(int(person.person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 132}))
	is.NoErr(person.cmd.Process.Signal(unix.SIGWINCH))
	person.typeText("until stty size | grep '50 132'; do sleep 0.05; done\n")
	person.awaitText("50 132")
	if run := rows[projections.ShownExecution](t, p, "executions", chat)[0]; run.Isolation != "none" {
		person.awaitText("cannot access") // of the data directory nothing is there but HOME
	}
	person.typeText("exit 7\n")
	person.awaitExit()
	is.Equal(person.cmd.ProcessState.ExitCode(), 7)
	d := p.finished(t, chat, 0)
	is.Equal([]any{d.ExitCode, d.Reason}, []any{7, ""})
	expect.Contains(t, d.Stdout.Text, "40 120")
	is.Equal(p.event(t, chat, "exec.requested", nil).Actor, events.UserActor("operator"))
	stdout, _, code := p.cli(t, "", "replay", chat)
	is.Equal(code, 0)
	expect.Contains(t, stdout, "(a person's own shell)")

	private := p.ownShell(t, "--private", "--", chat)
	private.typeText("echo not'' recorded\n")
	private.awaitText("not recorded")
	is.NoErr(private.cmd.Process.Signal(unix.SIGHUP)) // as when the window is closed
	private.awaitExit()
	d = p.finished(t, chat, 1)
	is.Equal([]any{d.Reason, d.Stdout}, []any{"cancelled", events.Output{}})
	_, err := os.Stat(p.data.Path("home", ".bash_history"))
	is.True(errors.Is(err, fs.ErrNotExist)) // the shell keeps nothing of it either
}

// Shells end before the search for what they changed does: it is found out on the way down, or said that there was no
// time for that.
func shellChangesAreKnown(t *testing.T, p *process) (after func(*testing.T, *process)) {
	chat := p.create(t, "shell")
	person := p.ownShell(t, chat)
	person.typeText("echo mine > file; echo do''ne\n")
	person.awaitText("done")
	output := p.output // of this start
	return func(t *testing.T, p *process) {
		is := is.New(t)
		is.Equal(p.finished(t, chat, 0).Reason, "cancelled")
		var changed events.ExecChanged
		for _, e := range p.history(t, chat) {
			if e.Subject.Kind == changed.Kind() {
				d, err := events.Decode(e)
				is.NoErr(err)
				changed = d.(events.ExecChanged)
			}
		}
		reported := strings.Contains(output.String(), "list changed files")
		found := slices.ContainsFunc(changed.Files, func(f events.Artifact) bool { return f.Path == "file" })
		is.True(reported || found) // among what other commands changed meanwhile
	}
}
