package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// gitCause checks a git command: its words, the repositories whose configuration git reads, and the content that it
// shows.
func (k *check) gitCause() string {
	g, cause := program.ReadGit(k.Call)
	if cause != "" || g.Alone {
		return cause
	}
	if cause := k.otherRepository(g); cause != "" {
		return cause
	}
	if cause := g.Cause(); cause != "" {
		return cause
	}
	if k.ask.List != nil && g.ShowsURLs() && k.ask.workspace().HoldsSecrets() {
		return fmt.Sprintf("“git %s” shows the URLs of remotes, and the repository's configuration may hold secrets", g.Sub)
	}
	if cause := k.addGitReads(g); cause != "" {
		return cause
	}
	return k.filesCause(g.Usage())
}

// otherRepository returns why a git command asks if it uses a repository other than the workspace's own. Git runs
// programs that a configuration names, and only the configuration of the workspace's repository is protected.
func (k *check) otherRepository(g program.Git) string {
	sub := g.Sub
	if k.ask.List == nil || sub == "version" {
		return ""
	}
	ws := k.ask.workspace()
	for _, folder := range k.in {
		at, cause := ws.Locate(folder, ".")
		if cause != "" || !files.Within(k.ask.Root, at.Real) {
			return fmt.Sprintf("“git %s” works outside the workspace, where a repository's configuration may make git run programs", sub)
		}
		for dir := at.Real; dir != k.ask.Root; dir = path.Dir(dir) {
			if ws.IsRepository(dir) {
				return fmt.Sprintf("%s is a repository of its own, whose configuration may make git run programs",
					display.Quote(k.ask.relative(dir)))
			}
		}
		if ws.NamesPrograms() {
			return fmt.Sprintf("the repository's configuration may make “git %s” run programs", sub)
		}
		if !g.EntersSubmodules() || k.ask.Tracked == nil {
			continue
		}
		tracked, ok := ws.TrackedFiles(folder)
		if !ok && ws.IsRepository(k.ask.Root) {
			return fmt.Sprintf("the index of the repository cannot be read, so “git %s” may run git in submodules too; --ignore-submodules prevents that", sub)
		}
		for _, name := range tracked {
			if strings.HasSuffix(name, "/") && ws.IsRepository(strings.TrimSuffix(name, "/")) {
				return fmt.Sprintf("“git %s” also runs git in the submodule %s, whose configuration may name programs; --ignore-submodules prevents that",
					sub, display.Quote(k.ask.relative(strings.TrimSuffix(name, "/"))))
			}
		}
	}
	return ""
}

// relative returns a path relative to the workspace if it lies there.
func (a Input) relative(p string) string { return strings.TrimPrefix(p, a.Root+"/") }

// addGitReads adds the files in revisions that a git command names, and the folders whose files it shows. cause is why
// a person must decide about content of revisions, which may hold files that git no longer tracks.
func (k *check) addGitReads(g program.Git) (cause string) {
	ws := k.ask.workspace()
	for _, p := range g.RevisionPaths() {
		for _, folder := range k.in {
			k.places = append(k.places, ws.InRepository(folder, p)...)
		}
	}
	content, shows := g.Content(k.ask.Root)
	if !shows {
		return ""
	}
	untracked := func(folder string) bool { return !ws.Tracks(folder, content.Limits) }
	missing := func(name string) bool {
		return slices.ContainsFunc(k.in, func(folder string) bool { return !ws.Exists(folder, name) })
	}
	switch {
	case k.ask.List == nil:
	case content.OnlyLimits && len(content.Limits) > 0 && !slices.ContainsFunc(k.in, untracked):
	case content.Revisions || slices.ContainsFunc(content.Names, missing):
		return fmt.Sprintf("“git %s” shows files of revisions, which may hold secret ones that git no longer tracks; name tracked files behind “--”", g.Sub)
	}
	k.reads = append(k.reads, content.Trees...)
	return ""
}

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
	if a.Type != events.KindGrep || a.List == nil || !files.Within(a.Root, folder) {
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
