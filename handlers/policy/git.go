package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// What git's sub-commands do. Those in no list run other programs or change what later commands run: a rule does not reach
// them.
var (
	gitLooks = set(`log diff show status blame annotate shortlog describe rev-parse rev-list ls-files ls-tree cat-file grep merge-base name-rev
		show-ref show-branch for-each-ref diff-tree diff-index diff-files check-ignore count-objects whatchanged range-diff cherry version`)
	gitKeeps   = set(`add commit`)
	gitChanges = set(`checkout switch restore reset clean rm mv merge rebase cherry-pick revert stash fetch pull push init ls-remote`)
	gitRemotes = set(`fetch pull push ls-remote`)
)

// gitOptions are those by which any sub-command of git runs a program, reads its configuration elsewhere, or writes a file.
var gitOptions = program{
	known: true,
	danger: []string{"output", "ext-diff", "textconv", "open-files-in-pager", "exec", "upload-pack", "receive-pack", "template", "separate-git-dir", "config",
		"config-env", "paginate", "extcmd", "tool", "gui", "edit-description", "filters", "run", "show-signature", "verify-signatures", "gpg-sign", "interactive",
		"help", "server-option", "pathspec-from-file", "strategy", "repo", "multiple"},
	exact: []string{"text", "filter", "patch"},
	free:  []string{"grep", "author", "committer", "format", "pretty", "message", "date", "since", "until", "after", "before", "sort", "trailer"},
	words: []string{"grep", "author", "committer", "message", "since", "until", "after", "before", "format", "sort"},
}

// gitLetters are the short options of sub-commands: that take a value, of these with a text, and that are dangerous.
var gitLetters = map[string]struct{ valued, text, danger string }{
	"log":         {"SGLnUl", "SGL", "O"},
	"show":        {"SGLnUl", "SGL", "O"},
	"whatchanged": {"SGLnUl", "SGL", "O"},
	"diff":        {"SGUl", "SG", "O"},
	"blame":       {"LS", "L", ""},
	"annotate":    {"LS", "L", ""},
	"add":         {"", "", "e"},
	"commit":      {"mFCct", "m", "S"},
	"stash":       {"m", "m", ""},
	"merge":       {"mFXs", "mX", "Ss"},
	"pull":        {"Xs", "X", "Ss"},
	"rebase":      {"xXs", "X", "xisS"},
	"cherry-pick": {"mX", "mX", "Se"},
	"revert":      {"mX", "mX", "Se"},
	"push":        {"o", "", ""},
	"grep":        {"efABCm", "eABCm", "Of"},
	"ls-remote":   {"o", "", "u"},
}

// gitForces overwrite or delete what is not in git: a rule reaches them only when it names them.
var gitForces = map[string][]string{
	"push":  {"f", "d", "force", "force-with-lease", "force-if-includes", "mirror", "delete", "prune"},
	"reset": {"hard"},
}

// gitQuiet are options before the sub-command that change nothing but how git shows what it found.
var gitQuiet = []string{"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"}

// withoutQuiet gives a git command as a rule's pattern names it.
func withoutQuiet(words []string) []string {
	i := 1
	for words[0] == "git" && i < len(words) && slices.Contains(gitQuiet, words[i]) {
		i++
	}
	if i == 1 {
		return words
	}
	return append([]string{"git"}, words[i:]...)
}

func (k *check) git() string {
	words := withoutQuiet(k.words)
	if len(words) == 1 || len(words) == 2 && words[1] == "--version" {
		return ""
	}
	sub := words[1]
	if strings.HasPrefix(sub, "-") {
		return fmt.Sprintf("%s stands before git's sub-command, where it changes what git runs or which repository it takes", quoted(sub))
	}
	p := gitOptions
	letters := gitLetters[sub]
	p.valued, p.letters = letters.valued, letters.danger
	p.free = append(slices.Clone(p.free), strings.Split(letters.text, "")...)
	if sub == "grep" {
		p.pattern = []string{"e", "f", "and", "or", "not"}
	}
	args := p.read(words[2:])
	for _, a := range args {
		if p.dangerous(a) || slices.Contains(gitForces[sub], a.option) && !k.named[a.word] {
			return fmt.Sprintf("%s makes “git %s” run, read, write or overwrite something else", quoted(a.word), sub)
		}
	}
	if cause := k.gitSub(sub, args); cause != "" {
		return cause
	}
	if sub != "mv" {
		args = slices.DeleteFunc(args, func(a argument) bool { return a.word == "HEAD" }) // a commit, not the file
	}
	return k.files(p.files(args), gitLooks[sub] || gitKeeps[sub])
}

// gitSub says whether a rule that matches reaches a sub-command.
func (k *check) gitSub(sub string, args []argument) string {
	n := positionals(args)
	switch list, isList := gitLists[sub]; {
	case sub == "config" && len(args) == 2 && (args[0].word == "--get" || args[0].word == "get") && plainSetting.MatchString(args[1].word):
		return ""
	case gitLooks[sub], gitKeeps[sub]:
		return ""
	case isList:
		return k.gitList(sub, list, args, n)
	case !gitChanges[sub]:
		return fmt.Sprintf("“git %s” can run other programs, or change what later commands run", sub)
	case !k.named[sub]:
		return fmt.Sprintf("“git %s” changes files, history or a server: a rule reaches it only when it names it", sub)
	case gitRemotes[sub] && len(n) > 0 && !remoteName.MatchString(n[0]):
		return quoted(n[0]) + " is not the plain name of a remote"
	case sub == "push" && slices.ContainsFunc(n, func(ref string) bool {
		return strings.HasPrefix(ref, "+") || strings.HasPrefix(ref, ":") && !k.named[ref]
	}):
		return "“git push” overwrites or deletes on the server"
	}
	return ""
}

// plainSetting are settings of git that hold no secrets.
var plainSetting = regexp.MustCompile(`(?i)^(user\.(name|email)|(core|init|branch|pull|push|commit|diff|merge)\.[\w./-]+)$`)

// remoteName is a remote, without anything that would make it an address.
var remoteName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// gitList is a sub-command that lists or changes, depending on its arguments.
type gitList struct {
	verbs   []string // of the first argument, that only look
	options []string // that make it list whatever its arguments are
	looks   []string // other options that only say how or which to list
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

// gitList says whether a sub-command that lists or changes only lists; what it changes a rule must name, and what it
// configures no rule reaches.
func (k *check) gitList(sub string, list gitList, args []argument, n []string) string {
	lists := len(n) == 0 || slices.Contains(list.verbs, n[0]) || has(args, list.options...)
	for _, a := range args {
		if a.option != "" && !slices.Contains(list.options, a.option) && !slices.Contains(list.looks, a.option) {
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
		if !k.named[a.word] {
			return fmt.Sprintf("“git %s” changes more than it shows: a rule reaches that only when it names %s", sub, quoted(a.word))
		}
	}
	return ""
}
