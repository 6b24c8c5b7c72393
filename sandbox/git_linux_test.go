package sandbox

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// sh runs a command and returns what it printed to both streams, and how it ended.
func (j *testWorker) sh(command string) (string, wire.Result) {
	var out, errs bytes.Buffer
	result := j.Exec(j.t.Context(), j.request(command), &out, &errs)
	return out.String() + errs.String(), result
}

// A command may write to HOME, which later commands share. Files there must not make git run a program, because
// reading a repository needs no approval.
func TestGitIgnoresConfigurationInHome(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, repository(t))
		ran := filepath.Join(j.workspace, "sub", "ran")
		out, result := j.sh("mkdir -p ~/.config/git; for f in ~/.gitconfig ~/.config/git/config; do" +
			" git config --file $f core.fsmonitor 'touch " + ran +
			"; false'; done; cat ~/.gitconfig; echo >> $GIT_CONFIG_GLOBAL; git config --global a.b c")
		expect.Contains(t, out, "fsmonitor")
		is.True(result.ExitCode != 0) // what git reads instead cannot be written
		out, result = j.sh("git status --short")
		is.Equal([]any{result.ExitCode, strings.Contains(out, "?? file")}, []any{0, true})
		_, err := os.Stat(ran)
		is.True(os.IsNotExist(err))
		// with this configuration the program runs
		_, result = j.sh("GIT_CONFIG_GLOBAL=$HOME/.gitconfig git status --short")
		is.Equal(result.ExitCode, 0)
		_, err = os.Stat(ran)
		is.NoErr(err)
	})
}

// Ordinary files that a clone brings along can form a bare repository. Its configuration names a program, and the
// default rules allow `git status` without asking a person.
func TestGitIgnoresABareRepositoryInTheWorkspace(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, choice isolation.Choice) {
		is := is.New(t)
		j := newTestWorker(t, choice, func(workspace string) {
			repository(t)(workspace)
			evil := filepath.Join(workspace, "sub", "evil")
			for _, dir := range []string{"objects", "refs"} {
				is.NoErr(os.MkdirAll(filepath.Join(evil, dir), 0o755))
				is.NoErr(os.WriteFile(filepath.Join(evil, dir, "keep"), nil, 0o644)) // so that git tracks the folder
			}
			is.NoErr(os.WriteFile(filepath.Join(evil, "HEAD"), []byte("ref: refs/heads/main\n"), 0o644))
			config := "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n\tfsmonitor = \"touch " +
				filepath.Join(workspace, "sub", "ran") + "; false\"\n"
			is.NoErr(os.WriteFile(filepath.Join(evil, "config"), []byte(config), 0o644))
		})
		ran := func() bool {
			_, err := os.Stat(filepath.Join(j.workspace, "sub", "ran"))
			return err == nil
		}
		for _, command := range []string{"git status", "git diff", "git log"} {
			out, result := j.sh("cd sub/evil && " + command)
			is.True(result.ExitCode != 0)
			// git diff compares two files then
			is.True(command == "git diff" || strings.Contains(out, "cannot use bare repository"))
			is.True(!ran())
		}
		j.sh("cd sub/evil && git --git-dir=. status") // this call names the repository, which no default rule allows
		is.True(ran())
	})
}

func TestGitConfigurationWorksWithASymlinkedTMPDIR(t *testing.T) {
	is := is.New(t)
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-temp-") // not below /tmp, which commands have one of their own of
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	is.NoErr(os.Mkdir(filepath.Join(dir, "real"), 0o755))
	is.NoErr(os.Symlink("real", filepath.Join(dir, "link")))
	choices := levels(t)
	t.Setenv("TMPDIR", filepath.Join(dir, "link"))
	for _, level := range choices {
		out, result := newTestWorker(t, level, nil).sh("git config --global user.email")
		is.Equal(result.ExitCode, 0)
		expect.Contains(t, out, "@")
	}
}

func TestUnreachableTMPDIRIsReported(t *testing.T) {
	is := is.New(t)
	dir, err := os.MkdirTemp("/dev/shm", "pocketcoder-temp-")
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	choices := levels(t)
	workspace, home := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", dir)
	for _, level := range choices {
		_, err := isolation.Choose(string(level.Level))
		is.True(err != nil && strings.Contains(err.Error(), "test it in TMPDIR: "+dir))
		_, err = Open(Config{Isolation: level, Workspace: workspace, Home: home, Log: slog.New(slog.DiscardHandler)})
		is.True(err != nil)
		is.Equal(err.Error(), "TMPDIR is "+dir+", which commands must not reach: set it to another directory, such as /var/tmp")
		left, err := os.ReadDir(dir)
		is.NoErr(err)
		is.Equal(len(left), 0)
	}
}
