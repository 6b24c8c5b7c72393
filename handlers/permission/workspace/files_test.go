package workspace

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/handlerstest"
)

func TestFingerprintReadsNothingButRegularFiles(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	is.NoErr(err)
	handlerstest.Write(t, dir+"/a", "0123456789")
	is.NoErr(os.Symlink("loop", dir+"/loop"))
	is.NoErr(os.Symlink("nowhere", dir+"/dead"))
	for path, want := range map[string]events.FileFingerprint{
		dir: {}, "/dev/zero": {}, "/proc/self/environ": {Target: ""}, dir + "/loop": {}, dir + "/a/b": {},
		dir + "/none/new": {Absent: true}, dir + "/dead": {Target: dir + "/nowhere", Absent: true},
	} {
		want.Path = path
		got := fingerprint(path, maxHashed)
		is.Equal(got, want)
	}
	is.Equal(fingerprints([]string{"a", ""}), nil)
	exact, short := fingerprint(dir+"/a", 10), fingerprint(dir+"/a", 9)
	is.Equal([]bool{exact.SHA256 != "", exact.ModifiedNS != 0}, []bool{true, false})
	is.Equal([]any{short.SHA256, short.ModifiedNS != 0, short.Size}, []any{"", true, int64(10)})
}
