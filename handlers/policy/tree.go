package policy

import (
	"fmt"
	"path"
	"strings"

	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// How many names below a folder are looked at before a command that reads them all is asked, and a search of
// OpenCode's own.
const (
	maxTree   = 20_000
	maxSearch = 100_000
)

// below says why a command that reads folders with all that lies below them is asked: a rule keeps a file there, it may
// hold secrets, or there is more than can be looked at.
func (e *evaluation) below(k *check) string {
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

// searched says why a search of OpenCode's grep is asked: it runs ripgrep, which reads hidden names, skips .git and
// what ignore files name, and follows no symlinks. With include it reads all files that match, ignored ones as well.
func (e *evaluation) searched(folder string) string {
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
