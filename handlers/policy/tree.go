package policy

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// How many names below a folder are looked at before a command that reads them all is asked, and a search of OpenCode's own.
const (
	maxTree   = 20_000
	maxSearch = 100_000
)

// Kind is what a name in a folder is.
type Kind byte

// Everything that is neither a folder nor a symlink is a file.
const (
	File Kind = iota
	Folder
	Link
)

// Entry is a name in a folder.
type Entry struct {
	Name  string
	Kind  Kind
	Plain bool     // its name is a secret one, but its content was read and holds none
	Runs  bool     // of a .git/config, or of a .git that is a file: git may run programs that a configuration names
	Shows []string // of an ignore file: the hidden names that it makes ripgrep read; see ShownNames
}

// trees says when a program reads a folder with all that lies below it.
type trees struct {
	options   []string // one of these makes it do so
	always    bool     // it does so without an option
	here      bool     // it reads the current folder when its arguments name none
	follows   []string // options with which it follows symlinks below; "*" is always
	visible   []string // options without which it skips names that begin with a dot; nil skips none
	skips     []string // options that name folders to skip
	only      []string // options that name the files to read
	rulesOnly bool     // it shows no content: what rules keep counts, what may hold secrets does not
}

// treeReads is what one command reads with all that lies below.
type treeReads struct {
	folders        []string // as the command names them
	hidden, follow bool
	rulesOnly      bool
	shown          bool     // of hidden names, only what an ignore file shows
	tracked        bool     // only what git tracks; without folders all of it
	skips          []string // names of folders
	only           []string // patterns of names; nil is all
}

// plainGlob is a pattern for names that all programs read alike.
var plainGlob = regexp.MustCompile(`^[A-Za-z0-9_.*-]+$`)

// readsTrees notes which folders the command reads with all that lies below.
func (k *check) readsTrees(p program, args []argument) {
	t := p.trees
	if !t.always && !has(args, t.options...) || k.words[0] == "rg" && has(args, "files", "type-list") {
		return
	}
	r := treeReads{rulesOnly: t.rulesOnly, hidden: t.visible == nil || has(args, t.visible...), follow: slices.Contains(t.follows, "*") || has(args, t.follows...)}
	for _, a := range p.files(args) {
		r.folders = append(r.folders, a.value)
	}
	if len(r.folders) == 0 && t.here && !(k.piped && k.words[0] == "rg") {
		r.folders = []string{"."}
	}
	if k.words[0] == "rg" {
		r.ripgrep(args)
	}
	onlyAll := has(args, "exclude", "exclude-from")
	for _, a := range args {
		switch {
		case slices.Contains(t.skips, a.option) && plainGlob.MatchString(a.value) && !strings.Contains(a.value, "*"):
			r.skips = append(r.skips, a.value)
		case slices.Contains(t.only, a.option):
			onlyAll = onlyAll || !plainGlob.MatchString(a.value)
			r.only = append(r.only, a.value)
		}
	}
	if onlyAll {
		r.only = nil
	}
	k.reads = append(k.reads, r)
}

// visibleTypes are the types of ripgrep that name no file with secrets. With any other type it may read hidden ones.
var visibleTypes = set("c cpp cs css go h html java js kotlin md markdown php py python rust swift ts")

// ripgrep notes that rg reads hidden names that match a glob or a type, and only those that match a glob.
func (r *treeReads) ripgrep(args []argument) {
	r.shown = !r.hidden
	limits, all := false, has(args, "iglob", "glob-case-insensitive")
	for _, a := range args {
		switch a.option {
		case "iglob":
			r.hidden = r.hidden || !strings.HasPrefix(a.value, "!")
		case "g", "glob":
			if strings.HasPrefix(a.value, "!") {
				continue
			}
			names := includes(a.value)
			limits, all, r.hidden = true, all || names == nil, true
			r.only = append(r.only, names...)
		case "t", "type":
			r.hidden = r.hidden || !visibleTypes[a.value]
		case "type-add", "type-clear":
			r.hidden = true
		}
	}
	if !limits || all {
		r.only = nil
	}
}

// plainIgnored is a line of an ignore file that all versions of ripgrep read alike.
var plainIgnored = regexp.MustCompile(`^[A-Za-z0-9_./*-]*$`)

// ShownNames returns the hidden names, in lower case, that an ignore file with this text makes ripgrep read: a line with ! overrides
// that it skips hidden names. It returns "*" for a line that may show any hidden name.
func ShownNames(text string) (names []string) {
	for _, line := range strings.Split(text, "\n") {
		pattern, negated := strings.CutPrefix(strings.TrimSpace(strings.TrimPrefix(line, "\ufeff")), "!")
		if !negated {
			continue
		}
		pattern = strings.TrimRight(pattern, "/")
		name := pattern[strings.LastIndexByte(pattern, '/')+1:]
		switch {
		case !plainIgnored.MatchString(pattern), strings.HasPrefix(name, "*"), strings.HasPrefix(name, ".") && strings.Contains(name, "*"):
			return []string{"*"}
		case strings.HasPrefix(name, "."):
			names = append(names, strings.ToLower(name))
		}
	}
	return names
}

// Options of git with which a sub-command shows the content of files, and those with which one that does so shows less.
var (
	gitPatches = []string{"p", "u", "patch", "U", "unified", "W", "function-context", "L", "c", "cc", "dd", "word-diff", "color-words", "word-diff-regex", "binary",
		"patch-with-stat", "patch-with-raw", "inter-hunk-context", "diff-merges", "check", "full-index"}
	gitNames = []string{"stat", "numstat", "shortstat", "name-only", "name-status", "summary", "s", "no-patch", "quiet", "raw", "dirstat", "compact-summary"}
)

// revisionPath is a file in a revision: HEAD:go.mod, :2:go.mod.
var revisionPath = regexp.MustCompile(`^[^:(]*:(\d:)?[A-Za-z0-9_.][A-Za-z0-9_./ -]*$`)

// gitObject is a name of an object. git show writes a file's object in full, also with --stat and the like.
var gitObject = regexp.MustCompile(`(?i)(^|-g)[0-9a-f]{4,64}(\^\{.*)?$`)

// gitReads notes the files in revisions that a sub-command names, and whether it shows the content of files it does not name.
// It returns why content of revisions is asked: they may hold files that git no longer tracks.
func (k *check) gitReads(sub string, words []string, args []argument) (cause string) {
	named := positionals(args)
	for _, n := range named {
		for i := range n {
			if n[i] == ':' {
				k.inRepository(n[i+1:])
			}
		}
	}
	if !gitShows(sub, named, args) {
		return ""
	}
	onlyPaths := len(named) > 0 && !slices.ContainsFunc(named, func(n string) bool { return !revisionPath.MatchString(n) })
	if onlyPaths && (sub == "show" || sub == "cat-file") {
		return ""
	}
	var limits []string
	if i := slices.Index(words, "--"); i >= 0 {
		limits = words[i+1:]
		named = named[:len(named)-len(limits)]
	}
	if sub == "grep" && !has(args, "e", "and", "or", "not") { // the first word is the pattern, also behind --
		if len(named) == 0 {
			limits = nil
		} else {
			named = named[1:]
		}
	}
	all := slices.Concat(named, limits)
	if slices.ContainsFunc(limits, patterned) {
		limits = nil
	}
	switch plain := sub != "stash" && sub != "range-diff" && !has(args, "follow") && k.tracked(limits); {
	case k.ask.List == nil:
	case k.gitRevisions(sub, named, args) && !plain:
		return fmt.Sprintf("“git %s” shows files of revisions, which may hold secret ones that git no longer tracks; name tracked files behind “--”", sub)
	}
	k.reads = append(k.reads, treeReads{tracked: true, hidden: true, folders: limits})
	switch outside := func(n string) bool { return strings.HasPrefix(n, "/") || strings.HasPrefix(n, "..") }; {
	case has(args, "no-index", "untracked"):
		if all = append(all, "."); slices.ContainsFunc(all, patterned) {
			all = []string{k.ask.Root}
		}
		k.reads = append(k.reads, treeReads{hidden: true, folders: all})
	case sub == "diff" && slices.ContainsFunc(all, outside): // outside its repository git compares the files themselves
		k.reads = append(k.reads, treeReads{hidden: true, folders: all})
	}
	return ""
}

// patterned reports whether git may take a word for a pattern of paths.
func patterned(word string) bool { return strings.ContainsAny(word, ":*?[\\") }

// gitShows reports whether a sub-command shows the content of files.
func gitShows(sub string, named []string, args []argument) bool {
	switch sub {
	case "show", "diff", "range-diff":
		return has(args, gitPatches...) || !has(args, gitNames...) || sub == "show" && slices.ContainsFunc(named, gitObject.MatchString)
	case "grep", "cat-file":
		return true
	case "status":
		return has(args, "v", "verbose")
	case "log", "whatchanged", "stash", "diff-tree", "diff-index", "diff-files", "reflog":
		return has(args, gitPatches...)
	}
	return false
}

// gitRevisions reports whether a sub-command that shows content reads it from revisions, not only from the index and the workspace.
func (k *check) gitRevisions(sub string, named []string, args []argument) bool {
	switch sub {
	case "diff-files":
		return false
	case "grep", "diff":
		return sub == "diff" && has(args, "cached", "staged", "merge-base") || slices.ContainsFunc(named, func(n string) bool { return !k.exists(n) })
	}
	return true
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

// below says why a command that reads folders with all that lies below them is asked: a rule keeps a file there, it may
// hold secrets, or there is more than can be looked at.
func (e *evaluation) below(k *check) string {
	for _, r := range k.reads {
		w := walk{ask: e.ask, treeReads: r, rules: e.keeping(k), most: maxTree, left: maxTree, seen: map[string]bool{}}
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

// walk looks at what lies below folders.
type walk struct {
	treeReads
	ask   Ask
	rules []*compiled
	most  int
	left  int
	seen  map[string]bool
	shows []string // hidden names that it reads all the same

	ignores bool // it skips what ignore files name
	named   bool // it reads a file that only matches although an ignore file names it
}

func (w *walk) from(folder string) string {
	if w.tracked {
		return w.index(folder)
	}
	for _, name := range w.folders {
		at, cause := w.ask.locate(folder, name)
		if cause == "" && !within(w.ask.Root, at.real) {
			continue // no folder of the workspace: its arguments were looked at already
		}
		for dir := at.real; cause == "" && w.shown && !w.hidden && dir != w.ask.Root; {
			dir = path.Dir(dir)
			entries, _ := w.ask.List(dir, w.left+1)
			w.show(entries)
		}
		if cause == "" {
			cause = w.folder(at.real)
		}
		if cause != "" {
			return cause
		}
	}
	return ""
}

// index looks at what git tracks, or at the whole workspace where that is not known.
func (w *walk) index(folder string) string {
	var paths []string
	known := false
	if w.ask.Tracked != nil {
		paths, known = w.ask.Tracked(folder)
	}
	if !known {
		return w.folder(w.ask.Root)
	}
	var limits []string
	for _, name := range w.folders {
		if at, cause := w.ask.locate(folder, name); cause == "" {
			limits = append(limits, at.lexical)
		}
	}
	for _, p := range paths {
		if len(limits) < len(w.folders) || len(limits) == 0 || slices.ContainsFunc(limits, func(limit string) bool { return within(limit, p) }) {
			if cause := w.file(place{p, p}, false); cause != "" {
				return cause
			}
		}
	}
	return ""
}

func (w *walk) folder(folder string) string {
	if w.seen[folder] {
		return ""
	}
	w.seen[folder] = true
	entries, ok := w.ask.List(folder, w.left+1)
	if !ok {
		return quoted(folder) + " cannot be listed"
	}
	w.show(entries)
	for _, entry := range entries {
		if w.left--; w.left < 0 {
			return fmt.Sprintf("there are more than %d files, too many to check for protected ones", w.most)
		}
		if w.skipsHidden(entry.Name) || entry.Kind == Folder && slices.Contains(w.skips, entry.Name) {
			continue
		}
		if entry.Kind == Folder && w.ignored(folder, entry) {
			continue
		}
		if cause := w.entry(folder, entry); cause != "" && !w.ignored(folder, entry) {
			return cause
		}
	}
	return ""
}

// show notes the hidden names that the ignore files among entries make ripgrep read.
func (w *walk) show(entries []Entry) {
	for _, entry := range entries {
		for _, name := range entry.Shows {
			switch {
			case !w.shown:
			case name == "*":
				w.hidden = true
			case !slices.Contains(w.shows, name):
				w.shows = append(w.shows, name)
			}
		}
	}
}

func (w *walk) skipsHidden(name string) bool {
	return !w.hidden && strings.HasPrefix(name, ".") && !slices.Contains(w.shows, strings.ToLower(name))
}

// ignored reports whether an ignore file keeps a name from being read.
func (w *walk) ignored(folder string, entry Entry) bool {
	switch {
	case !w.ignores || w.ask.Ignored == nil:
		return false
	case w.named && (entry.Kind != Folder || w.only == nil || slices.ContainsFunc(w.only, func(pattern string) bool { return glob(pattern, entry.Name) })):
		return false
	}
	return w.ask.Ignored(path.Join(folder, entry.Name), entry.Kind == Folder)
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

// includes returns patterns for the names of the files that an include of ripgrep matches, or nil when it may match any.
func includes(include string) (names []string) {
	for _, pattern := range expandBraces(include) {
		name := pattern[strings.LastIndexByte(pattern, '/')+1:]
		if !plainGlob.MatchString(name) {
			return nil
		}
		names = append(names, name)
	}
	return names
}

// expandBraces returns the alternatives of a pattern with one pair of braces, and every other pattern as it is.
func expandBraces(pattern string) (all []string) {
	head, rest, opened := strings.Cut(pattern, "{")
	list, tail, closed := strings.Cut(rest, "}")
	if !opened || !closed || strings.ContainsAny(head+tail, `{}\`) || strings.ContainsAny(list, `{\`) {
		return []string{pattern}
	}
	for _, part := range strings.Split(list, ",") {
		all = append(all, head+part+tail)
	}
	return all
}

func (w *walk) entry(folder string, entry Entry) string {
	at := place{lexical: path.Join(folder, entry.Name)}
	at.real = at.lexical
	switch entry.Kind {
	case Link:
		if !w.follow {
			return ""
		}
		var ok bool
		if at.real, ok = w.ask.resolve(at.lexical); !ok || !within(w.ask.Root, at.real) {
			return quotedPath(at.lexical) + " leads outside the workspace"
		}
	case File:
		if w.only != nil && !slices.ContainsFunc(w.only, func(pattern string) bool { return glob(pattern, entry.Name) }) {
			return ""
		}
	}
	cause := w.file(at, entry.Plain)
	if cause == "" && entry.Kind != File {
		cause = w.folder(at.real)
	}
	return cause
}

// file says why one file, or a folder by its name, is not read without a person.
func (w *walk) file(at place, plain bool) string {
	if !w.rulesOnly && !plain {
		if cause := w.ask.mayRead(at); cause != "" {
			return cause
		}
	}
	if len(w.rules) == 0 {
		return ""
	}
	low := w.ask.lower(at)
	for _, r := range w.rules {
		if r.keeps(low) {
			return quotedPath(at.lexical) + " is protected by a rule: " + r.String()
		}
	}
	return ""
}
