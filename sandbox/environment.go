package sandbox

import (
	"cmp"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"pocketcoder/sandbox/gitconfig"
	"pocketcoder/sandbox/wire"
)

// Markers in the environment of every process of a command, by which it is found again.
const (
	execMarker      = "POCKETCODER_EXEC"      // the exec id
	workerMarker    = "POCKETCODER_WORKER"    // which worker, see identity
	workspaceMarker = "POCKETCODER_WORKSPACE" // absolute, symlinks resolved
)

var systemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// environment is all a command gets. Of the worker's own only what a command sees of PATH is taken over, so no secret
// can come along, whatever its name.
//
// HOME is neither the user's, whose keys and credentials are no command's business, nor inside the workspace, where
// caches and dot files would end up in the project. It is kept between commands, so that package caches work.
func (w *Worker) environment(r wire.Request) []string {
	name, terminal := userName(), "dumb"
	more := w.proxyEnvironment(r)
	if r.Terminal != nil {
		terminal = cmp.Or(r.Terminal.Kind, terminal)
		more = append(more, "HISTFILE=/dev/null", `PS1=\u:\w\$ `) // what is typed is kept in the log, or nowhere
	}
	return append(more,
		"PATH="+w.path,
		"HOME="+w.config.Home,
		"PWD="+r.Cwd,
		"TMPDIR="+w.confinement.TempDir(),
		"SHELL="+w.config.Shell,
		"USER="+name,
		"LOGNAME="+name,
		"GIT_CONFIG_GLOBAL="+gitconfig.File(w.git),
		"LANG=C.UTF-8",
		"LC_ALL=C.UTF-8",
		"TERM="+terminal,
		"OPENCODE=1", // OpenCode sets these two in its own shell; tools turn prompts and colours off for an agent
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

// commandPath is the worker's path, then what it lacks of the system's. Relative entries would make a command's meaning
// depend on its directory and are left out.
func commandPath(own string) string {
	var dirs []string
	for _, dir := range append(filepath.SplitList(own), systemPath...) {
		if filepath.IsAbs(dir) && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, ":")
}
