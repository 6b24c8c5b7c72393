package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// git decides about a command of git: by its words, by the repositories whose configuration git obeys, and by what it shows.
func (k *check) git() string {
	g, cause := readGit(k.call)
	if cause != "" || g.alone {
		return cause
	}
	if cause := k.otherRepository(g); cause != "" {
		return cause
	}
	if cause := g.cause(); cause != "" {
		return cause
	}
	if cause := k.gitReads(g); cause != "" {
		return cause
	}
	return k.files(g.usage())
}

// otherRepository returns why a command of git is asked that obeys another repository's configuration than the workspace's own:
// git runs programs that a configuration names, and only that of the workspace's repository is protected.
func (k *check) otherRepository(g gitCommand) string {
	sub := g.sub
	if k.ask.List == nil || sub == "version" {
		return ""
	}
	for _, folder := range k.in {
		at, cause := k.ask.locate(folder, ".")
		if cause != "" || !within(k.ask.Root, at.real) {
			return fmt.Sprintf("“git %s” works outside the workspace, where a repository's configuration may make git run programs", sub)
		}
		for dir := at.real; dir != k.ask.Root; dir = path.Dir(dir) {
			if k.isRepository(dir) {
				return fmt.Sprintf("%s is a repository of its own, whose configuration may make git run programs", quoted(k.ask.relative(dir)))
			}
		}
		if k.obeysPrograms() {
			return fmt.Sprintf("the repository's configuration may make “git %s” run programs", sub)
		}
		if !g.entersSubmodules() || k.ask.Tracked == nil {
			continue
		}
		tracked, ok := k.ask.Tracked(folder)
		if !ok && k.isRepository(k.ask.Root) {
			return fmt.Sprintf("the index of the repository cannot be read, so “git %s” may run git in submodules too; --ignore-submodules prevents that", sub)
		}
		for _, name := range tracked {
			if strings.HasSuffix(name, "/") && k.isRepository(strings.TrimSuffix(name, "/")) {
				return fmt.Sprintf("“git %s” also runs git in the submodule %s, whose configuration may name programs; --ignore-submodules prevents that",
					sub, quoted(k.ask.relative(strings.TrimSuffix(name, "/"))))
			}
		}
	}
	return ""
}

// obeysPrograms reports whether the configuration of the workspace's repository may name programs. Its top is the workspace, or
// a folder above.
func (k *check) obeysPrograms() bool {
	for dir := k.ask.Root; ; dir = path.Dir(dir) {
		if k.isRepository(dir) {
			entries, _ := k.ask.List(dir, maxTree)
			config, _ := k.ask.List(dir+"/.git", maxTree)
			return slices.ContainsFunc(entries, func(e Entry) bool { return e.Runs }) || slices.ContainsFunc(config, func(e Entry) bool { return e.Runs })
		}
		if dir == "/" {
			return false
		}
	}
}

// isRepository reports whether git may take a folder for the top of a repository.
func (k *check) isRepository(dir string) bool {
	entries, ok := k.ask.List(dir, maxTree)
	return !ok || slices.ContainsFunc(entries, func(e Entry) bool { return strings.EqualFold(e.Name, ".git") })
}

// relative returns a path as a person names it: from the workspace if it lies there.
func (a Ask) relative(p string) string { return strings.TrimPrefix(p, a.Root+"/") }

// gitReads notes the files in revisions that a command names, and the folders whose files it shows. It returns why content of
// revisions is asked: they may hold files that git no longer tracks.
func (k *check) gitReads(g gitCommand) (cause string) {
	for _, p := range g.revisionPaths() {
		k.inRepository(p)
	}
	content, shows := g.content(k.ask.Root)
	if !shows {
		return ""
	}
	switch onlyTracked := content.onlyLimits && k.tracked(content.limits); {
	case k.ask.List == nil, onlyTracked:
	case content.revisions, slices.ContainsFunc(content.names, func(n string) bool { return !k.exists(n) }):
		return fmt.Sprintf("“git %s” shows files of revisions, which may hold secret ones that git no longer tracks; name tracked files behind “--”", g.sub)
	}
	k.reads = append(k.reads, content.trees...)
	return ""
}

// exists reports whether a path exists in every folder that the command may run in.
func (k *check) exists(p string) bool {
	for _, folder := range k.in {
		at, cause := k.ask.locate(folder, p)
		if cause != "" {
			return false
		}
		if at.lexical == k.ask.Root {
			continue
		}
		entries, ok := k.ask.List(path.Dir(at.lexical), maxTree)
		if !ok || !slices.ContainsFunc(entries, func(e Entry) bool { return e.Name == path.Base(at.lexical) }) {
			return false
		}
	}
	return true
}

// tracked reports whether there are names, and git tracks a file by each of them.
func (k *check) tracked(names []string) bool {
	if k.ask.Tracked == nil {
		return false
	}
	for _, folder := range k.in {
		paths, ok := k.ask.Tracked(folder)
		for _, name := range names {
			if at, cause := k.ask.locate(folder, name); !ok || cause != "" || !slices.Contains(paths, at.lexical) {
				return false
			}
		}
	}
	return len(names) > 0
}

// inRepository notes a path from the top of the repository, which is the folder of the command or one above it.
func (k *check) inRepository(p string) {
	for _, folder := range k.in {
		for top := folder; ; top = path.Dir(top) {
			if at, cause := k.ask.locate(top, p); cause == "" {
				k.places = append(k.places, at)
			}
			if top == "/" {
				break
			}
		}
	}
}
