package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/expect"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

// here lists what is in the top directory of the workspace.
func (j *testWorker) here() []string { return j.entries("") }

func TestANewProtectedNameIsQuarantined(t *testing.T) {
	t.Parallel()
	eachProtection(t, func(t *testing.T, choice isolation.Choice) {
		for name, c := range map[string]struct {
			command string
			want    wire.Quarantined
		}{
			"echo":    {"echo use flake > .envrc", wire.Quarantined{Name: ".envrc", Kind: wire.FileKind, Bytes: 10, Text: "use flake\n"}},
			"rename":  {"echo one > sub/a; mv sub/a .npmrc", wire.Quarantined{Name: ".npmrc", Kind: wire.FileKind, Bytes: 4, Text: "one\n"}},
			"link":    {"ln file AGENTS.md", wire.Quarantined{Name: "AGENTS.md", Kind: wire.FileKind, Bytes: 6, Text: "secret"}},
			"symlink": {"ln -s /etc/passwd .mcp.json", wire.Quarantined{Name: ".mcp.json", Kind: wire.LinkKind, Text: "/etc/passwd"}},
			"mkdir": {"mkdir -p sub/v/deep; echo {} > sub/v/deep/a; mv sub/v .vscode", wire.Quarantined{Name: ".vscode", Kind: wire.FolderKind,
				Bytes: 3, Files: 1, Text: "deep/a 3\n"}},
			"binary": {`printf '\0\377' > .exrc`, wire.Quarantined{Name: ".exrc", Kind: wire.FileKind, Bytes: 2}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				is := is.New(t)
				j := newTestWorker(t, choice, nil)
				out, result := j.sh(c.command)
				is.Equal(result.Reason, wire.Exited)
				is.Equal(len(result.Quarantined), 1)
				got := result.Quarantined[0]
				is.True(j.Holds(got.ID))
				got.ID = ""
				is.Equal(got, c.want)
				is.Equal(j.here(), []string{"file", "sub"})
				expect.Contains(t, out, "pocketcoder: "+c.want.Name+" was moved out of the workspace: a person is asked")
			})
		}
	})
}

var _ = slices.Contains[[]string]
var _ = strings.Contains
var _ = os.Getenv
var _ = filepath.Join
