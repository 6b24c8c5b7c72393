package isolation

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/sandbox/isolation/protection"
)

func TestModesAreChangedWhereAProgramMayWrite(t *testing.T) {
	workspace, home, data := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.MkdirAll(filepath.Join(workspace, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	place := FileAccess{Workspace: workspace, Home: home, Writable: []string{data}}
	for name, c := range map[string]struct {
		path            string
		command, engine bool
	}{
		"the workspace":        {workspace + "/a", true, true},
		"home":                 {home + "/a", true, true},
		"a writable directory": {data + "/bin/tool", true, true},
		"elsewhere":            {"/etc/passwd", false, false},
		"a protected name":     {workspace + "/.vscode/x", false, false},
		"a repository's hook":  {workspace + "/.git/hooks/x", false, false},
		"its objects":          {workspace + "/.git/objects/x", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			is := is.New(t)
			for longRunning, want := range map[bool]bool{false: c.command, true: c.engine} {
				access := place
				access.LongRunning = longRunning
				confinement := Confinement{access: access, protection: protection.Workspace{Dir: workspace,
					LongRunning: longRunning}}
				is.Equal(confinement.mayWrite(c.path), want)
			}
		})
	}
}
