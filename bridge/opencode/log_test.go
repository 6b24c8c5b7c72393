package opencode

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func TestLogFileIsLimitedAndKeepsItsEnd(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "opencode.log")
	is.NoErr(os.WriteFile(path, bytes.Repeat([]byte("of an earlier run\n"), logSize/18-1), 0o600))
	log, err := openLog(path)
	is.NoErr(err)
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for i := range 35 {
		n, err := log.Write(fmt.Appendf(chunk, "\nchunk %d\n", i))
		is.NoErr(err)
		is.Equal(n, len(chunk)+len(fmt.Sprintf("\nchunk %d\n", i)))
	}
	is.NoErr(log.Close())
	files, err := filepath.Glob(path + "*")
	is.NoErr(err)
	is.Equal(files, []string{path, path + ".1"})
	for _, f := range files {
		info, err := os.Stat(f)
		is.NoErr(err)
		is.True(info.Size() <= logSize+2*int64(len(chunk)))
	}
	is.True(strings.HasSuffix(expect.ReadFile(t, path+".1")+expect.ReadFile(t, path), "\nchunk 34\n"))
	// a rotation loses nothing of the last file's length
	expect.Contains(t, expect.ReadFile(t, path+".1")+expect.ReadFile(t, path), "\nchunk 25\n")
	is.True(strings.HasSuffix(log.last(), "chunk 34"))
	is.True(len(log.last()) <= 4<<10)
}

func TestLogFileIgnoresWriteErrors(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := filepath.Join(t.TempDir(), "gone")
	is.NoErr(os.Mkdir(dir, 0o700))
	log, err := openLog(filepath.Join(dir, "opencode.log"))
	is.NoErr(err)
	is.NoErr(os.RemoveAll(dir))
	chunk := bytes.Repeat([]byte("x"), 1<<20)
	for range 25 { // past the size at which the file is opened anew, twice
		n, err := log.Write(chunk)
		is.NoErr(err)
		is.Equal(n, len(chunk))
	}
	log.Write([]byte("\nstill remembered"))
	is.True(strings.HasSuffix(log.last(), "still remembered"))
}
