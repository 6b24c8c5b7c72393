package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

func TestQuarantineTakesANewProtectedName(t *testing.T) {
	t.Parallel()
	cases := []struct {
		command string
		want    wire.Quarantined
	}{
		{"echo use flake > .envrc", wire.Quarantined{Name: ".envrc", Kind: wire.FileKind, Bytes: 10, Text: "use flake\n"}},
		{"echo one > sub/a; mv sub/a .npmrc",
			wire.Quarantined{Name: ".npmrc", Kind: wire.FileKind, Bytes: 4, Text: "one\n"}},
		{"ln file AGENTS.md", wire.Quarantined{Name: "AGENTS.md", Kind: wire.FileKind, Bytes: 6, Text: "secret"}},
		{"ln -s /etc/passwd .mcp.json", wire.Quarantined{Name: ".mcp.json", Kind: wire.LinkKind, Text: "/etc/passwd"}},
		{"mkdir -p sub/v/deep; echo {} > sub/v/deep/a; ln -s a sub/v/b; mv sub/v .vscode",
			wire.Quarantined{Name: ".vscode", Kind: wire.FolderKind, Bytes: 4, Files: 2, Text: "b -> a\ndeep/a 3\n"}},
		{"mkdir -m 0 .idea", wire.Quarantined{Name: ".idea", Kind: wire.FolderKind}},
		{`printf '\0\377' > .exrc`, wire.Quarantined{Name: ".exrc", Kind: wire.FileKind, Bytes: 2}},
		{"echo one > .yarnrc; while [ -e .yarnrc ]; do :; done; echo two > .yarnrc",
			wire.Quarantined{Name: ".yarnrc", Kind: wire.FileKind, Bytes: 4, Text: "two\n"}},
		{"head -c 20000 /dev/zero | tr '\\0' a > .nvimrc", wire.Quarantined{Name: ".nvimrc", Kind: wire.FileKind, Bytes: 20000,
			Text: strings.Repeat("a", wire.MaxQuarantineText), Cut: true}},
	}
	var commands []string
	want := map[string]wire.Quarantined{}
	for _, c := range cases {
		commands = append(commands, c.command)
		want[c.want.Name] = c.want
	}
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, nil)
		out, result := j.sh(strings.Join(commands, "\n"))
		is.Equal([]any{result.Reason, result.ExitCode}, []any{wire.Exited, 0})
		is.Equal(len(result.Quarantined), len(cases))
		for _, got := range result.Quarantined {
			is.True(j.Holds(got.ID))
			got.ID = ""
			is.Equal(got, want[got.Name])
			expect.Contains(t, out, "pocketcoder: "+got.Name+" was moved out of the workspace: a person is asked")
		}
		is.Equal(j.entries(""), []string{"file", "sub"})
	})
}

// A background command can run for days, so the worker must report names before the end.
func TestQuarantineReportsWhileACommandRuns(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	j := newTestWorker(t, needLevel(t, isolation.Bwrap), nil)
	r := j.request("echo use flake > .envrc; until [ -e sub/go ]; do sleep 0.01; done")
	var out bytes.Buffer
	done := make(chan wire.Result)
	go func() { done <- j.Exec(t.Context(), r, &out, &out) }()
	report := func() []wire.Quarantined {
		return j.Handle(t.Context(), wire.Request{Op: wire.Report, Exec: r.Exec}, io.Discard, io.Discard).Quarantined
	}
	var got []wire.Quarantined
	expect.Eventually(t, "the name is reported", func() bool { got = report(); return len(got) > 0 })
	is.Equal([]any{len(got), got[0].Name, got[0].Text}, []any{1, ".envrc", "use flake\n"})
	is.Equal(len(report()), 0)
	is.NoErr(os.WriteFile(filepath.Join(j.workspace, "sub/go"), nil, 0o644))
	is.Equal(len((<-done).Quarantined), 0)
	expect.Contains(t, out.String(), "pocketcoder: .envrc was moved out of the workspace: a person is asked")
}

func TestQuarantineLeavesOrdinaryWorkAlone(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			repository(t)(workspace)
			is.NoErr(os.WriteFile(filepath.Join(workspace, "AGENTS.md"), []byte("be kind"), 0o644))
			is.NoErr(os.Mkdir(filepath.Join(workspace, ".vscode"), 0o755))
		})
		out, result := j.sh("echo n > new.txt; mkdir folder; git add -A && git commit -qm one && git status --short && git log --format='%s|%an|%ae'")
		is.Equal([]any{result.ExitCode, len(result.Quarantined)}, []any{0, 0})
		commit := strings.Split(strings.TrimSpace(out), "|") // with the user's identity
		is.True(len(commit) == 3 && commit[0] == "one" && commit[1] != "" && strings.Contains(commit[2], "@"))

		// while a command runs, the names inside and outside are the same
		list, err := exec.Command("ls", "-la", "--time-style=+", j.workspace).Output()
		is.NoErr(err)
		out, _ = j.sh("ls -la --time-style=+")
		// a command sees the owner and the sizes of mounts differently
		is.Equal(listedNames(out), listedNames(string(list)))
	})
}

// listedNames returns mode and name of each line of ls -la.
func listedNames(list string) (names []string) {
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 5 {
			names = append(names, f[0]+" "+f[len(f)-1])
		}
	}
	return names
}

func TestQuarantineStopsALoop(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, repository(t))
		_, result := j.sh("while :; do echo > .envrc 2>/dev/null; done")
		is.Equal(result.Reason, wire.ProtectedName)
		is.Equal(len(result.Quarantined), 1)
		is.Equal(j.entries(""), []string{".git", "file", "sub"})
		if j.mounts {
			return
		}
		before, err := os.ReadFile(filepath.Join(j.workspace, ".git/config"))
		is.NoErr(err)
		_, result = j.sh("while :; do echo > .git/config; sleep 0.01; done")
		is.Equal(result.Reason, wire.ProtectedName)
		after, err := os.ReadFile(filepath.Join(j.workspace, ".git/config"))
		is.NoErr(err)
		is.Equal(string(after), string(before))
	})
}

func TestQuarantineKeepsAndDismisses(t *testing.T) {
	t.Parallel()
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, nil)
		op := func(op wire.Op, item string) string {
			return j.Handle(t.Context(), wire.Request{Op: op, Item: item}, io.Discard, io.Discard).Error
		}
		text := func() string {
			text, err := os.ReadFile(filepath.Join(j.workspace, ".envrc"))
			if err != nil {
				return "none"
			}
			return string(text)
		}
		create := func() string {
			_, result := j.sh("echo one > .envrc; chmod 750 .envrc")
			is.Equal(len(result.Quarantined), 1)
			// on a busy machine the processes of bubblewrap may still be ending: until then, what a person creates is taken
			expect.Eventually(t, "no process of the command is left", func() bool {
				j.mu.Lock()
				defer j.mu.Unlock()
				return len(j.trees) == 0
			})
			return result.Quarantined[0].ID
		}
		for range 2 { // it is repeated until its answer arrives
			is.Equal(op(wire.Dismiss, "unknown"), "")
		}
		expect.Contains(t, op(wire.Keep, "unknown"), "has no item unknown")

		id := create()
		is.Equal(op(wire.Dismiss, id), "")
		is.True(!j.Holds(id))
		is.Equal(text(), "none")

		id = create()
		is.NoErr(os.WriteFile(filepath.Join(j.workspace, ".envrc"), []byte("mine"), 0o644))
		expect.Contains(t, op(wire.Keep, id), "a file has this name now")
		is.Equal(text(), "mine")
		is.NoErr(os.Remove(filepath.Join(j.workspace, ".envrc")))
		for range 2 {
			is.Equal(op(wire.Keep, id), "")
		}
		is.Equal(text(), "one\n")

		_, result := j.sh("cat .envrc; echo two > .envrc || mv file .envrc") // it is protected now
		is.Equal(len(result.Quarantined), 0)
		is.Equal(text(), "one\n")
		is.Equal(op(wire.Keep, id), "") // a repetition that comes late
		is.Equal(text(), "one\n")
	})
}

// A command must not change what a person has read and kept, through another name of the file or while it runs longer.
func TestQuarantineKeepsWhatAPersonHasRead(t *testing.T) {
	t.Parallel()
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, nil)
		out, done := newLines(), make(chan wire.Result, 1)
		wait := j.program + " " + attemptName + " 'wait sub/%s'; "
		go func() {
			command := strings.ReplaceAll(wait, "%s", "kept") + "echo evil > .envrc; sleep 0.2; rm .envrc; " +
				strings.ReplaceAll(wait, "%s", "end")
			r := j.request(command)
			r.Loopback = "chat1"
			result := j.Exec(t.Context(), r, out, io.Discard)
			fmt.Fprintf(out, "%+v\n", result) // ends a wait for a line of a command that failed
			done <- result
		}()
		is.Equal(out.next(t), "waiting")
		r := j.request("echo good > sub/a; ln sub/a .envrc")
		r.Loopback = "chat1"
		result := j.Exec(t.Context(), r, io.Discard, io.Discard)
		is.Equal(len(result.Quarantined), 1)
		is.Equal(result.Quarantined[0].Text, "good\n")
		j.sh("echo evil > sub/a")
		is.NoErr(j.quarantine.Keep(result.Quarantined[0].ID))
		is.NoErr(os.WriteFile(filepath.Join(j.workspace, "sub/kept"), nil, 0o644))
		is.Equal(out.next(t), "ok")
		is.Equal(out.next(t), "waiting")
		expect.Eventually(t, "it is put back", func() bool {
			text, err := os.ReadFile(filepath.Join(j.workspace, ".envrc"))
			return err == nil && string(text) == "good\n"
		})
		is.NoErr(os.WriteFile(filepath.Join(j.workspace, "sub/end"), nil, 0o644))
		is.Equal((<-done).Reason, wire.Exited)
	})
}
