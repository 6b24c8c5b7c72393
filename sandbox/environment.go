package sandbox

import (
	"cmp"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"pocketcoder/sandbox/wire"
)

// Markers in the environment of every process of a command. The worker finds the process by them.
const (
	execMarker      = "POCKETCODER_EXEC"      // the exec id
	workerMarker    = "POCKETCODER_WORKER"    // the worker, see identity
	workspaceMarker = "POCKETCODER_WORKSPACE" // absolute, symlinks resolved
)

var systemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// environment returns the whole environment of a command. Of the worker's environment it uses only PATH, so no secret
// can leak, whatever its name.
//
// HOME is not the user's home, which has keys and credentials, and not in the workspace, where caches and dot files
// would appear in the project. It is the same for all commands, so that package caches work.
func (w *Worker) environment(r wire.Request) []string {
	name, terminal := userName(), "dumb"
	more := w.proxyEnvironment(r)
	if r.Terminal != nil {
		terminal = cmp.Or(r.Terminal.Kind, terminal)
		more = append(more, "HISTFILE=/dev/null", `PS1=\u:\w\$ `) // a shell history would be a second, unredacted record
	}
	return append(more,
		"PATH="+w.path,
		"HOME="+w.config.Home,
		"PWD="+r.Cwd,
		"TMPDIR="+w.confinement.TempDir(),
		"SHELL="+w.config.Shell,
		"USER="+name,
		"LOGNAME="+name,
		"GIT_CONFIG_GLOBAL="+gitConfigFile(w.git),
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
		"TERM="+terminal,
		"OPENCODE=1", // as in OpenCode's own shell; tools disable prompts and colours for an agent
		"AGENT=1",
		execMarker+"="+r.Exec,
		workerMarker+"="+w.id.marker,
		workspaceMarker+"="+w.workspace,
	)
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "user"
}

// commandPath returns the worker's PATH and the missing directories of the system. It omits relative entries, which
// would depend on the command's directory.
func commandPath(own string) string {
	var dirs []string
	for _, dir := range append(filepath.SplitList(own), systemPath...) {
		if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}
