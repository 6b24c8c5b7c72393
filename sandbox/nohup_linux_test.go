package sandbox

import (
	"os"
	"os/exec"
	"testing"

	"github.com/matryer/is"
)

func TestCommandsDoNotInheritIgnoredSignals(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	worker := exec.Command("sh", "-c", `trap "" HUP INT; exec "$0"`, os.Args[0])
	worker.Env = append(os.Environ(), "SANDBOX_TEST_WORKSPACE="+t.TempDir(),
		`SANDBOX_TEST_COMMAND=for s in HUP INT; do trap "echo heard $s" $s; kill -$s $$; done; kill -HUP $PPID; kill -INT $PPID; echo the worker lives`)
	out, err := worker.Output()
	is.NoErr(err)
	is.Equal(string(out), "heard HUP\nheard INT\nthe worker lives\n")
}
