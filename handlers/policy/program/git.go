package program

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"pocketcoder/handlers/policy/display"
)

// What git's sub-commands do. Those in no list run other programs or change what later commands run: a rule does not
// reach them.
var (
	gitLooks = set(`log diff show status blame annotate shortlog describe rev-parse rev-list ls-files ls-tree cat-file grep merge-base name-rev
		show-ref show-branch for-each-ref diff-tree diff-index diff-files check-ignore count-objects whatchanged range-diff cherry version`)
	gitKeeps   = set(`add commit`)
	gitChanges = set(`checkout switch restore reset clean rm mv merge rebase cherry-pick revert stash fetch pull push init ls-remote`)
	gitRemotes = set(`fetch pull push ls-remote`)
)

// gitOptions are the options with which any sub-command of git runs a program, reads another configuration, or writes a
// file.
var gitOptions = program{
	known: true,
	danger: []string{"output", "ext-diff", "textconv", "open-files-in-pager", "exec", "upload-pack", "receive-pack", "template", "separate-git-dir", "config",
		"config-env", "paginate", "extcmd", "tool", "gui", "edit-description", "filters", "run", "show-signature",
		"verify-signatures", "gpg-sign", "interactive",
		"help", "server-option", "pathspec-from-file", "strategy", "repo", "multiple"},
	exact: []string{"text", "filter", "patch"},
	free:  []string{"grep", "author", "committer", "format", "pretty", "message", "date", "since", "until", "after", "before", "sort", "trailer"},
	words: []string{"grep", "author", "committer", "message", "since", "until", "after", "before", "format", "sort"},
}

// gitLetters are the short options of sub-commands: that take a value, of these with a text, and that are dangerous.
var gitLetters = map[string]struct{ valued, text, danger string }{
	"add":         {"", "", "e"},
	"commit":      {"mFCct", "m", "S"},
	"stash":       {"m", "m", ""},
	"merge":       {"mFXs", "mX", "Ss"},
	"pull":        {"Xs", "X", "Ss"},
	"rebase":      {"xXs", "X", "xisS"},
	"cherry-pick": {"mX", "mX", "Se"},
	"revert":      {"mX", "mX", "Se"},
	"push":        {"o", "", ""},
	"ls-remote":   {"o", "", "u"},
}

// The harmless options of the sub-commands of git that only look, by what they have in common.
const (
	gitDiffs = `p u patch s no-patch U=? unified=? raw patch-with-raw indent-heuristic no-indent-heuristic minimal patience histogram diff-algorithm= anchored=
		stat=? compact-summary numstat shortstat dirstat=? summary patch-with-stat z name-only name-status color=? no-color color-moved=? no-color-moved
		color-moved-ws= word-diff=? word-diff-regex= color-words=? no-renames rename-empty no-rename-empty check ws-error-highlight= full-index binary abbrev=?
		B=? break-rewrites=? M=? find-renames=? C=? find-copies=? find-copies-harder D irreversible-delete l= diff-filter= S= G= find-object= pickaxe-all
		pickaxe-regex R relative=? no-relative a text ignore-cr-at-eol ignore-space-at-eol b ignore-space-change w ignore-all-space ignore-blank-lines I=
		inter-hunk-context= W function-context exit-code quiet no-ext-diff no-textconv src-prefix= dst-prefix= no-prefix default-prefix line-prefix=
		ita-invisible-in-index ignore-submodules=? X=? no-index cached staged merge-base`
	gitLogs = `# n= max-count= skip= since= after= until= before= author= committer= grep= i regexp-ignore-case E extended-regexp F fixed-strings P perl-regexp
		basic-regexp all-match invert-grep all branches=? tags=? remotes=? glob= exclude= not merges no-merges min-parents=? max-parents=? first-parent reverse
		date-order author-date-order topo-order graph no-graph oneline abbrev-commit no-abbrev-commit pretty=? format=? decorate=? no-decorate source follow full-history dense sparse simplify-merges simplify-by-decoration ancestry-path boundary left-right cherry-mark
		cherry-pick cherry left-only right-only walk-reflogs g date= relative-date parents children c cc m t r no-walk=? notes=? no-notes L: log-size
		no-expand-tabs expand-tabs=? clear-decorations mailmap no-mailmap use-mailmap no-use-mailmap abbrev=? diff-merges= no-diff-merges dd
		no-color color=? z`
	gitDecorates = `decorate-refs= decorate-refs-exclude=`
	gitBlames    = `b root show-stats L= l t p porcelain line-porcelain incremental s e show-email w M=? C=? score-debug f show-name n show-number date= since= abbrev=?
		reverse first-parent ignore-rev= color-lines color-by-age minimal c progress no-progress`
	gitRefs = `count= sort= format= color=? points-at= merged=? no-merged=? contains=? no-contains=? ignore-case`
)

// gitHarmless are the harmless options of each sub-command. Every other option asks.
var gitHarmless = map[string]options{
	"log": harmless(gitDiffs, gitLogs, gitDecorates), "whatchanged": harmless(gitDiffs, gitLogs, gitDecorates), "show": harmless(gitDiffs, gitLogs, gitDecorates), "stash list": harmless(gitDiffs, gitLogs, gitDecorates),
	"diff": harmless(gitDiffs, "1 2 3 0 base ours theirs no-color-moved-ws"), "range-diff": harmless(gitDiffs, gitLogs, "creation-factor= no-dual-color"),
	"diff-tree": harmless(gitDiffs, "r t root m c cc v pretty=? format=? no-commit-id always"), "diff-index": harmless(gitDiffs, "m"), "diff-files": harmless(gitDiffs, "1 2 3 0 c cc q"),
	"rev-list": harmless(gitLogs, "count objects header timestamp disk-usage=?"), "shortlog": harmless(gitLogs, "s n e c summary numbered email committer group= w=?"),
	"status": harmless(`s short b branch show-stash porcelain=? long v verbose u=? untracked-files=? ignore-submodules=? ignored=? z column=? no-column ahead-behind
		no-ahead-behind renames no-renames find-renames=?`),
	"blame": harmless(gitBlames), "annotate": harmless(gitBlames),
	"describe": harmless("all tags contains abbrev=? candidates= exact-match long match= exclude= always first-parent dirty=?"),
	"rev-parse": harmless(`abbrev-ref=? short=? verify q quiet show-toplevel show-prefix show-cdup git-dir git-common-dir is-inside-work-tree is-inside-git-dir
		is-bare-repository is-shallow-repository absolute-git-dir symbolic symbolic-full-name all branches=? tags=? remotes=? glob=? exclude=? revs-only no-revs
		flags no-flags not show-superproject-working-tree`),
	"ls-files": harmless(`c cached d deleted m modified o others i ignored s stage u unmerged k killed z t v f directory no-empty-directory exclude-standard x=
		exclude= eol full-name abbrev=? error-unmatch deduplicate format=`),
	"ls-tree":  harmless("d r t l long z name-only name-status object-only full-name full-tree abbrev=? format="),
	"cat-file": harmless("t s e p"),
	"grep": harmless(`# cached untracked no-index no-exclude-standard exclude-standard a text no-textconv i ignore-case I r recursive no-recursive max-depth= w
		word-regexp v invert-match h H full-name E extended-regexp G basic-regexp P perl-regexp F fixed-strings n line-number column l files-with-matches
		name-only L files-without-match o only-matching c count color=? no-color break heading p show-function C= context= A= after-context= B= before-context=
		W function-context e= and or not all-match q quiet m= max-count= threads= z null`),
	"merge-base":   harmless("a all octopus independent is-ancestor fork-point"),
	"name-rev":     harmless("tags refs= exclude= all name-only no-undefined always"),
	"show-ref":     harmless("head heads branches tags d dereference s hash=? verify q quiet abbrev=?"),
	"show-branch":  harmless("a all r remotes list"),
	"for-each-ref": harmless(gitRefs), "branch": harmless(gitRefs, "a all r remotes v verbose i q l list show-current column=? no-column no-color abbrev=? no-abbrev"),
	"tag":           harmless(gitRefs, "i l list n=? column=? no-column no-color"),
	"check-ignore":  harmless("q quiet v verbose n non-matching no-index"),
	"count-objects": harmless("v verbose H human-readable"),
	"cherry":        harmless("v verbose abbrev=?"),
	"version":       harmless("build-options"),
}

// gitForces are options that overwrite or delete data that git does not hold. A rule must name them.
var gitForces = map[string][]string{
	"push":  {"f", "d", "force", "force-with-lease", "force-if-includes", "mirror", "delete", "prune"},
	"reset": {"hard"},
}

// gitQuiet are options before the sub-command that only change how git shows its result.
var gitQuiet = []string{"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"}

// WithoutQuiet returns a git command without the options that only change how git shows its result. It returns other
// commands unchanged.
func WithoutQuiet(words []string) []string {
	i := 1
	for words[0] == "git" && i < len(words) && slices.Contains(gitQuiet, words[i]) {
		i++
	}
	if i == 1 {
		return words
	}
	return append([]string{"git"}, words[i:]...)
}

type Git struct {
	call    Call
	Alone   bool     // no sub-command is given
	Sub     string   // the sub-command
	words   []string // words after the sub-command
	args    []Argument
	program program
}

// ReadGit parses a git command. cause is why git may parse it in another way.
func ReadGit(c Call) (g Git, cause string) {
	words := WithoutQuiet(c.Words)
	if len(words) == 1 || len(words) == 2 && words[1] == "--version" {
		return Git{Alone: true}, ""
	}
	sub := words[1]
	if strings.HasPrefix(sub, "-") {
		return Git{}, fmt.Sprintf("%s stands before git's sub-command, where it changes what git runs or which repository it takes", display.Quote(sub))
	}
	if i := slices.Index(words, "--"); i >= 0 {
		// stash list takes the -- away before it hands the rest to git log, which then reads options there
		if j := slices.IndexFunc(words[i+1:], func(w string) bool { return strings.HasPrefix(w, "-") }); j >= 0 {
			return Git{}, fmt.Sprintf("%s follows --, but “git %s” may still read it as an option", display.Quote(words[i+1+j]),
				sub)
		}
	}
	p := gitProgram(words[1:])
	return Git{call: c, Sub: sub, words: words[2:], args: p.read(words[2:]), program: p}, ""
}

// Cause returns why the words of the command are not harmless.
func (g Git) Cause() string {
	for i, a := range g.args {
		changes := g.Sub == "branch" || g.Sub == "tag" // the rule covers the names after these
		switch {
		case a.unknown && !changes:
			return fmt.Sprintf("%s is not an option of “git %s” that is known to be harmless", display.Quote(a.Word), g.Sub)
		case g.program.dangerous(a), a.unknown && gitOptions.dangerous(a),
			slices.Contains(gitForces[g.Sub], a.option) && !g.call.Named[a.Word]:
			return fmt.Sprintf("%s makes “git %s” run, read, write or overwrite something else", display.Quote(a.Word), g.Sub)
		case gitFormats[a.option] && gitVerifies.MatchString(a.Value):
			return display.Quote(a.Word) + " makes git run a program that checks signatures"
		case a.option == "L" && strings.Contains(a.Value, ":"): // lines of a file
			g.args[i].text, g.args[i].Value = false, a.Value[strings.LastIndexByte(a.Value, ':')+1:]
		}
	}
	if cause := gitMagic(g.Sub, g.words, g.args); cause != "" {
		return cause
	}
	return g.subCause()
}

// Usage returns the arguments that may name files, and reports whether the sub-command changes none of them.
func (g Git) Usage() (files []Argument, readsOnly bool) {
	args := g.args
	if g.Sub != "mv" {
		// a commit, not the file
		args = slices.DeleteFunc(slices.Clone(args), func(a Argument) bool { return a.Word == "HEAD" })
	}
	return g.program.files(args), gitLooks[g.Sub] || gitKeeps[g.Sub]
}

// EntersSubmodules reports whether the command also runs git in submodules.
func (g Git) EntersSubmodules() bool {
	return gitEnters[g.Sub] && !slices.ContainsFunc(g.args, func(a Argument) bool {
		return a.option == "ignore-submodules" && (a.Value == "" || a.Value == "all" || a.Value == "dirty")
	})
}

// ShowsURLs reports whether the command shows the URLs of remotes.
func (g Git) ShowsURLs() bool { return g.Sub == "remote" && len(g.args) > 0 || g.Sub == "ls-remote" }

// gitEnters are the sub-commands that also run git in submodules.
var gitEnters = set(`status diff diff-files diff-index describe add commit checkout switch restore reset rm mv merge rebase cherry-pick revert stash pull`)

// gitMagic returns why an argument that begins with ":" asks. Git may take it as a pathspec with magic, which starts at
// the top of the repository and matches more than its words. Only show and cat-file take a plain file of the index.
func gitMagic(sub string, words []string, args []Argument) string {
	if gitRemotes[sub] {
		return "" // a refspec
	}
	for _, n := range positionals(args) {
		inIndex := (sub == "show" || sub == "cat-file") && revisionPath.MatchString(n) && !slices.Contains(words, "--")
		if strings.HasPrefix(n, ":") && !inIndex {
			return display.Quote(n) + " may make git look at more files than it names"
		}
	}
	return ""
}

// gitFormats are the options with an output format.
var gitFormats = set("format pretty sort group")

// gitVerifies matches the fields of a format that verify a signature.
var gitVerifies = regexp.MustCompile(`%[-+ ]?G|signature`)

// gitProgram describes the arguments of a sub-command of git, which is the first word.
func gitProgram(words []string) program {
	sub := words[0]
	p := gitOptions
	p.options = gitHarmless[sub]
	if sub == "stash" && len(words) > 1 && words[1] == "list" {
		p.options = gitHarmless["stash list"]
	}
	letters := gitLetters[sub]
	p.valued, p.letters = letters.valued, letters.danger
	p.free = append(slices.Clone(p.free), strings.Split(letters.text, "")...)
	if sub == "grep" {
		p.pattern = []string{"e", "and", "or", "not"}
	}
	return p
}

// subCause returns why a sub-command is asked: it changes or reaches out, and the caller does not approve that by name.
func (g Git) subCause() string {
	sub, args, n := g.Sub, g.args, positionals(g.args)
	switch list, isList := gitLists[sub]; {
	case sub == "config" && len(args) == 2 && (args[0].Word == "--get" || args[0].Word == "get") &&
		plainSetting.MatchString(args[1].Word):
		return ""
	case gitLooks[sub], gitKeeps[sub]:
		return ""
	case isList:
		return g.listCause(sub, list, args, n)
	case !gitChanges[sub]:
		return fmt.Sprintf("“git %s” can run other programs, or change what later commands run", sub)
	case !g.call.Named[sub]:
		return fmt.Sprintf("“git %s” changes files, history or a server: a rule reaches it only when it names it", sub)
	case gitRemotes[sub] && len(n) > 0 && !remoteName.MatchString(n[0]):
		return display.Quote(n[0]) + " is not the plain name of a remote"
	case sub == "push" && slices.ContainsFunc(n, func(ref string) bool {
		return strings.HasPrefix(ref, "+") || strings.HasPrefix(ref, ":") && !g.call.Named[ref]
	}):
		return "“git push” overwrites or deletes on the server"
	}
	return ""
}

// plainSetting matches settings of git without secrets.
var plainSetting = regexp.MustCompile(`(?i)^(user\.(name|email)|(core|init|branch|pull|push|commit|diff|merge)\.[\w./-]+)$`)

// remoteName matches the name of a remote, which cannot be an address.
var remoteName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// gitList is a sub-command that lists or changes, depending on its arguments.
type gitList struct {
	verbs   []string // first arguments that only list
	options []string // options that make it list, whatever its arguments are
	looks   []string // other options that only affect the list
}

var gitLists = map[string]gitList{
	"branch": {
		options: []string{"l", "list", "contains", "no-contains", "merged", "no-merged", "points-at", "show-current"},
		looks:   []string{"a", "r", "v", "i", "q", "all", "remotes", "verbose", "sort", "format", "column", "no-column", "color", "no-color", "ignore-case", "abbrev", "no-abbrev"},
	},
	"tag": {
		options: []string{"l", "list", "n", "contains", "no-contains", "merged", "no-merged", "points-at"},
		looks:   []string{"i", "sort", "format", "column", "no-column", "color", "no-color", "ignore-case"},
	},
	"remote":    {verbs: []string{"get-url"}, looks: []string{"v", "verbose", "all"}},
	"reflog":    {verbs: []string{"show", "exists"}, looks: []string{"n", "oneline", "all", "date", "format", "pretty", "max-count", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}},
	"worktree":  {verbs: []string{"list"}, looks: []string{"porcelain", "v", "verbose", "z"}},
	"submodule": {verbs: []string{"status", "summary"}, looks: []string{"cached", "recursive", "quiet", "q"}},
	"notes":     {verbs: []string{"list", "show"}},
	"bisect":    {verbs: []string{"log"}},
}

// listCause says whether a sub-command that lists or changes only lists; what it changes a rule must name, and what it
// configures no rule reaches.
func (g Git) listCause(sub string, list gitList, args []Argument, n []string) string {
	lists := len(n) == 0 || slices.Contains(list.verbs, n[0]) || has(args, list.options...)
	for _, a := range args {
		if a.unknown || a.option != "" && !slices.Contains(list.options, a.option) && !slices.Contains(list.looks, a.option) {
			lists = false
		}
	}
	switch {
	case lists:
		return ""
	case sub != "branch" && sub != "tag":
		return fmt.Sprintf("“git %s” can change what later commands run", sub)
	}
	for _, a := range args {
		if !g.call.Named[a.Word] {
			return fmt.Sprintf("“git %s” changes more than it shows: a rule reaches that only when it names %s", sub,
				display.Quote(a.Word))
		}
	}
	return ""
}

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
