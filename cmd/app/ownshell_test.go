package app

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/datadir"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/wire"
)

// A program built with -trimpath knows only relative paths of its source. Nothing of the current directory may be
// built.
func TestTheShellIsBuiltFromItsOwnSourceInAHostileDirectory(t *testing.T) {
	is := is.New(t)
	hostile := t.TempDir()
	evil := "package main\n\nfunc main() { println(\"evil\") }\n"
	for name, text := range map[string]string{
		"go.mod": "module pocketcoder\n\ngo 1.26\n", "go.work": "go 1.26\n\nuse .\n",
		"cmd/pocketcoder-shell/main.go": evil, "pocketcoder/go.mod": "module pocketcoder\n\ngo 1.26\n",
		"pocketcoder/cmd/pocketcoder-shell/main.go": evil, "pocketcoder/cmd/pocketcoder/shell.go": evil,
	} {
		is.NoErr(os.MkdirAll(filepath.Dir(filepath.Join(hostile, name)), 0o755))
		is.NoErr(os.WriteFile(filepath.Join(hostile, name), []byte(text), 0o644))
	}
	t.Chdir(hostile)
	shell, err := findOwnShell(t.Context(), datadir.Dir(filepath.Join(hostile, "data")), func(string) {})
	is.NoErr(err)
	var stderr bytes.Buffer
	cmd := exec.Command(shell, "-c", "true")
	cmd.Env, cmd.Stderr = []string{}, &stderr
	is.True(cmd.Run() != nil)
	is.Equal(cmd.ProcessState.ExitCode(), wire.ExitRefused)
	is.Equal(stderr.String(), "pocketcoder-shell: not run: OPENCODE_SESSION_ID is not set, so this is not the command of an agent\n")
}

func TestAMissingShellIsExplained(t *testing.T) {
	is := is.New(t)
	t.Setenv("PATH", t.TempDir())
	_, err := findOwnShell(t.Context(), datadir.Dir(t.TempDir()), func(string) {})
	is.True(err != nil)
	expect.Contains(t, err.Error(), "put the two programs into one directory")
}
