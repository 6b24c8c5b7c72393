package isolation

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"
)

func TestErrorOfALoopbackHasTheErrorOfBubblewrap(t *testing.T) {
	is := is.New(t)
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	is.NoErr(os.WriteFile(filepath.Join(dir, "bwrap"), []byte("#!/bin/sh\necho 'bwrap: no namespaces' >&2\nexit 1\n"), 0o755))
	_, err := NewLoopback()
	is.True(err != nil)
	is.Equal(err.Error(), "create a network namespace with bubblewrap: read its pid: EOF (bwrap: no namespaces)")
}
