package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

func TestGitConfigurationOfAKilledWorkerIsRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	temporary, elsewhere := t.TempDir(), t.TempDir()
	is.NoErr(os.WriteFile(gitConfigFile(elsewhere), nil, 0o600))
	killed, lock, err := makeGitConfig(temporary, "person")
	is.NoErr(err)
	is.NoErr(lock.Close()) // as the kernel does
	is.NoErr(os.Symlink(elsewhere, filepath.Join(temporary, "pocketcoder-git-1.locked")))
	living, lock, err := makeGitConfig(temporary, "person")
	is.NoErr(err)
	defer lock.Close()
	// a process of another test that starts may hold its lock for a moment
	expect.Eventually(t, "the directory is gone", func() bool {
		removeUnlockedGitConfigs(temporary)
		_, err := os.Stat(killed)
		return os.IsNotExist(err)
	})
	for _, dir := range []string{living, elsewhere} {
		_, err = os.Stat(gitConfigFile(dir))
		is.NoErr(err)
	}
}
