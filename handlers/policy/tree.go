package policy

import (
	"fmt"
	"path"
	"strings"
)

// below says why a command that reads folders with all that lies below them is asked: a rule keeps a file there, it may
// hold secrets, or there is more than can be looked at.
func (e *evaluation) below(k *check) string {
	for _, r := range k.reads {
		w := walk{ask: e.ask, tree: r, rules: e.keeping(k), most: maxTree, left: maxTree, seen: map[string]bool{}}
		if e.ask.List == nil || r.rulesOnly && len(w.rules) == 0 {
			continue
		}
		for _, folder := range k.in {
			if cause := w.from(folder); cause != "" {
				return fmt.Sprintf("“%s” reads a whole folder: %s", k.words[0], cause)
			}
		}
	}
	return ""
}

// searched says why a search of OpenCode's grep is asked: it runs ripgrep, which reads hidden names, skips .git and what ignore
// files name, and follows no symlinks. With include it reads all files that match, ignored ones as well.
func (e *evaluation) searched(folder string) string {
	a := e.ask
	if a.Type != "grep" || a.List == nil || !within(a.Root, folder) {
		return ""
	}
	if entries, ok := a.List(folder, 1); ok && len(entries) == 0 && folder != a.Root { // of a file, the folder around it is searched
		folder = path.Dir(folder)
	}
	w := walk{ask: a, most: maxSearch, left: maxSearch, seen: map[string]bool{}, ignores: true}
	w.hidden, w.skips, w.rules = true, []string{".git"}, e.keepingReads(false)
	if include := a.Include; include != "" && !strings.HasPrefix(include, "!") {
		w.named, w.only = true, includes(include)
	}
	if cause := w.folder(folder); cause != "" {
		return "the search reads all that lies below: " + cause
	}
	return ""
}
