package program

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Options of git with which a sub-command shows the content of files, and those with which one that does so shows less.
var (
	gitPatches = []string{"p", "u", "patch", "U", "unified", "W", "function-context", "L", "c", "cc", "dd", "word-diff",
		"color-words", "word-diff-regex", "binary",
		"patch-with-stat", "patch-with-raw", "inter-hunk-context", "diff-merges", "check", "full-index"}
	// Options that search files for a pattern. Which names git then prints depends on the content of the files.
	gitSearches = []string{"S", "G", "I", "find-object", "anchored"}
	gitNames    = []string{"stat", "numstat", "shortstat", "name-only", "name-status", "summary", "s", "no-patch",
		"quiet", "raw", "dirstat", "compact-summary"}
)

// revisionPath matches a file in a revision: HEAD:go.mod, :2:go.mod.
var revisionPath = regexp.MustCompile(`^[^:(]*:(\d:)?[A-Za-z0-9_.][A-Za-z0-9_./ -]*$`)

// gitObject matches the name of an object. git show prints the whole object of a file, also with --stat and similar
// options.
var gitObject = regexp.MustCompile(`(?i)(^|-g)[0-9a-f]{4,64}(\^\{.*)?$`)

// GitContent is the content of files that a git command shows.
type GitContent struct {
	Trees      []Tree
	Limits     []string // the paths after --; none if git may take one of them as a pattern
	OnlyLimits bool     // if git tracks the files in Limits, only their content is shown
	Revisions  bool     // the content is from revisions, which may hold files that git no longer tracks
	Names      []string // revisions, unless a file has the same name
}

// RevisionPaths returns the paths of files in revisions that the command names, relative to the top of the repository.
func (g Git) RevisionPaths() (paths []string) {
	for _, n := range positionals(g.args) {
		for i := range n {
			if n[i] == ':' {
				paths = append(paths, n[i+1:])
			}
		}
	}
	return paths
}

// Content returns the content of files that the command shows, besides files that it names in a revision. all is a
// folder with everything that git may search. ok is false if the command shows no content.
func (g Git) Content(all string) (c GitContent, ok bool) {
	named := positionals(g.args)
	if !gitShows(g.Sub, named, g.args) {
		return c, false
	}
	onlyPaths := len(named) > 0 && !slices.ContainsFunc(named, func(n string) bool { return !revisionPath.MatchString(n) })
	if onlyPaths && (g.Sub == "show" || g.Sub == "cat-file") {
		return c, false
	}
	if i := slices.Index(g.words, "--"); i >= 0 {
		c.Limits = g.words[i+1:]
		named = named[:len(named)-len(c.Limits)]
	}
	if g.Sub == "grep" && !has(g.args, "e", "and", "or", "not") { // the first word is the pattern, also behind --
		if len(named) == 0 {
			c.Limits = nil
		} else {
			named = named[1:]
		}
	}
	paths := slices.Concat(named, c.Limits)
	if slices.ContainsFunc(c.Limits, patterned) {
		c.Limits = nil
	}
	c.OnlyLimits = g.Sub != "stash" && g.Sub != "range-diff" && !has(g.args, "follow")
	switch g.Sub {
	case "diff-files":
	case "grep", "diff":
		c.Revisions = g.Sub == "diff" && has(g.args, "cached", "staged", "merge-base")
		c.Names = named
	default:
		c.Revisions = true
	}
	if (c.Revisions || len(c.Names) > 0) && slices.ContainsFunc(c.Limits, mayBeFolder) {
		c.OnlyLimits = false
	}
	c.Trees = []Tree{{Tracked: true, Hidden: true, Folders: c.Limits}}
	switch outside := func(n string) bool { return strings.HasPrefix(n, "/") || strings.HasPrefix(n, "..") }; {
	case has(g.args, "no-index", "untracked"):
		if paths = append(paths, "."); slices.ContainsFunc(paths, patterned) {
			paths = []string{all}
		}
		c.Trees = append(c.Trees, Tree{Hidden: true, Folders: paths})
	// outside its repository git compares the files themselves
	case g.Sub == "diff" && slices.ContainsFunc(paths, outside):
		c.Trees = append(c.Trees, Tree{Hidden: true, Folders: paths})
	}
	return c, true
}

// mayBeFolder reports whether a path of a file may have been a folder in an old revision. Git then shows the files in
// it.
func mayBeFolder(p string) bool {
	name := path.Base(p)
	return strings.HasPrefix(name, ".") || len(path.Ext(name)) < 2
}

// patterned reports whether git may take a word as a pattern of paths.
func patterned(word string) bool { return strings.ContainsAny(word, ":*?[\\") }

// gitShows reports whether a sub-command shows the content of files, or tells whether it matches a pattern.
func gitShows(sub string, named []string, args []Argument) bool {
	searches := has(args, gitSearches...)
	switch sub {
	case "show", "diff", "range-diff":
		return searches || has(args, gitPatches...) || !has(args, gitNames...) || has(args, "no-index") ||
			sub == "show" && slices.ContainsFunc(named, gitObject.MatchString)
	case "grep", "cat-file":
		return true
	case "status":
		return has(args, "v", "verbose")
	case "log", "whatchanged", "stash", "diff-tree", "diff-index", "diff-files", "reflog":
		return searches || has(args, gitPatches...)
	}
	return false
}
