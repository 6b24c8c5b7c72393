package mcp

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

// The names were resolved before, and a command has changed the directory since.
func TestALinkThatAppearsLateLeadsToNoOtherDirectory(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	directory, outside := t.TempDir(), t.TempDir()
	is.NoErr(os.WriteFile(filepath.Join(outside, "key"), []byte("another's"), 0o600))
	is.NoErr(os.Symlink(filepath.Join(outside, "key"), filepath.Join(directory, "key")))
	is.NoErr(os.Symlink(outside, filepath.Join(directory, "out")))
	is.NoErr(syscall.Mkfifo(filepath.Join(directory, "pipe"), 0o600))
	for name, want := range map[string]string{"key": "cannot be opened", "out/key": "cannot be opened",
		"pipe": "is not a regular file"} {
		content, err := readFile(directory, name)
		is.Equal(len(content), 0)
		expect.Contains(t, err.Error(), want)
	}
}
