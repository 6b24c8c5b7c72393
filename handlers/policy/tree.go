package policy

import (
	"fmt"
	"path"
	"strings"

	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// Limits of the names below a folder that are checked before a command that reads them all asks, and a search of
// OpenCode.
const (
	maxTree   = 20_000
	maxSearch = 100_000
)

// treeCause returns why a command that reads folders recursively asks: a rule protects a file there, a file may hold
// secrets, or there are too many names to check.
func (e *evaluation) treeCause(k *check) string {
	for _, r := range k.reads {
		same := fmt.Sprintf("%#v %q %t", r, k.in, k.OnlyReads())
		cause, walked := e.walks[same]
		if !walked {
			cause = e.walk(k, r)
			if e.walks == nil {
				e.walks = map[string]string{}
			}
			e.walks[same] = cause
		}
		if cause != "" {
			return fmt.Sprintf("“%s” reads a whole folder: %s", k.Words[0], cause)
		}
	}
	return ""
}

func (e *evaluation) walk(k *check, r program.Tree) (cause string) {
	w := files.Walk{Tree: r, Workspace: e.ask.workspace(), Protected: e.protected(!k.OnlyReads()), Most: maxTree}
	if e.ask.List == nil || r.NoContent && w.Protected == nil {
		return ""
	}
	for _, folder := range k.in {
		if cause := w.From(folder); cause != "" {
			return cause
		}
	}
	return ""
}

// searchCause returns why a search of OpenCode's grep asks. Grep runs ripgrep, which reads hidden names, skips .git and
// ignored files, and follows no symlinks. With include it reads all matching files, also ignored ones.
func (e *evaluation) searchCause(folder string) string {
	a := e.ask
	if a.Type != "grep" || a.List == nil || !files.Within(a.Root, folder) {
		return ""
	}
	// of a file, the folder around it is searched
	if entries, ok := a.workspace().Entries(folder, 1); ok && len(entries) == 0 && folder != a.Root {
		folder = path.Dir(folder)
	}
	w := files.Walk{Tree: program.Tree{Hidden: true, Skips: []string{".git"}}, Workspace: a.workspace(),
		Protected: e.protected(false), Most: maxSearch, SkipsIgnored: true}
	if include := a.Include; include != "" && !strings.HasPrefix(include, "!") {
		w.OnlyOverrides, w.Only = true, program.GlobNames(include)
	}
	if cause := w.Folder(folder); cause != "" {
		return "the search reads all that lies below: " + cause
	}
	return ""
}
