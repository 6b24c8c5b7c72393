package ops

import (
	"os"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/bridge/opencode"
)

// A container that had another OpenCode than the bridge knows would install the right one at every start.
func TestTheImageInstallsTheVersionsTheBridgeKnows(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	text, err := os.ReadFile("Dockerfile")
	is.NoErr(err)
	for _, want := range []string{"opencode-ai@" + opencode.Version, "@vscode/ripgrep@" + opencode.RipgrepVersion} {
		if !strings.Contains(string(text), want) {
			t.Errorf("Dockerfile does not install %s", want)
		}
	}
}
