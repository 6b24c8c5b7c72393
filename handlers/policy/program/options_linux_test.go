package program

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/expect"
)

// optionsBefore and optionsBehind are the words that a program needs around an option so that it opens the file behind
// the option.
var (
	optionsBefore = map[string]string{
		"grep": "-e x", "rg": "-e x", "sed": "-e p", "jq": ".", "tar": "-cf /dev/null", "realpath": "-e", "readlink": "-e -v", "cut": "-b1",
		"git grep": "-e x", "git ls-files": "--error-unmatch", "git cat-file": "-p",
	}
	optionsBehind = map[string]string{"diff": "a.txt", "cmp": "a.txt", "comm": "a.txt", "join": "a.txt"}
)

// missingFile matches the complaint of a program about the file or revision 7, which does not exist.
const missingFile = `(?i)(\b7['’"]?: (no such|cannot (open|stat))|cannot (open|access|read|statx?)( file)?:? ['‘"]?7\b|7 +\[error opening|(path|open) ['‘]?7\b|` +
	`(ambiguous argument|revision|get) '7'|'7' did not match|object name:? '?7\b|7\. skipping|7: not a valid|7 \(No such|unable to (open|read) '?7|(sha1 for|commit) 7\b)`

// TestOptionsTakeTheValuesThatTheTablesSay runs each program with each option of its table, and a name behind it that
// no file has. When the program complains about that file, the name was not the value of the option.
func TestOptionsTakeTheValuesThatTheTablesSay(t *testing.T) {
	t.Parallel()
	expect.Long(t, "runs about 1,500 programs")
	dir := t.TempDir()
	runHere(t, dir, "set -e; echo x > a.txt; git init -q; git add .; git -c user.name=a -c user.email=a@b commit -qm one")
	tested := 0
	for name, p := range programs {
		if _, err := exec.LookPath(name); err == nil && p.options != nil {
			tested += testOptions(t, dir, name, p)
		}
	}
	for sub := range gitHarmless {
		if sub != "branch" && sub != "tag" { // those create what the word names
			tested += testOptions(t, dir, "git "+sub, gitProgram(strings.Fields(sub)))
		}
	}
	is.New(t).True(tested > 500)
}

// testOptions tests the options of one program, and returns how many. It tests none of a program that does not
// complain about a missing file.
func testOptions(t *testing.T, dir, name string, p program) (tested int) {
	run := func(words ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		all := slices.Concat(strings.Fields(name), strings.Fields(optionsBefore[name]), words)
		cmd := exec.CommandContext(ctx, all[0], all[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_CONFIG_SYSTEM=/dev/null", "GIT_PAGER=cat")
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	misses := func(file, out string) bool {
		return regexp.MustCompile(strings.ReplaceAll(missingFile, "7", file)).MatchString(out)
	}
	behind := strings.Fields(optionsBehind[name])
	if !misses("7", run(slices.Concat([]string{"7"}, behind)...)) {
		return 0
	}
	lastFirst := misses("8", run("7", "8")) && !misses("7", run("7", "8"))
	for option, takes := range p.options {
		word := "--" + option
		if p.oneDash || len(option) == 1 {
			word = "-" + option
		}
		if option == "#" {
			word = "-5"
		}
		switch {
		case takes == text:
			if out := run(slices.Concat([]string{word, "7"}, behind)...); misses("7", out) {
				t.Errorf("%s %s 7: the file behind it is read, but the table takes it as the value: %s", name, word, out)
			}
		case takes != file && !lastFirst:
			if out := run(word, "7", "8"); misses("8", out) && !misses("7", out) {
				t.Errorf("%s %s 7 8: 7 is its value, but the table takes it as a file: %s", name, word, out)
			}
		}
		tested++
	}
	return tested
}

func runHere(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_PAGER=cat")
	out, err := cmd.CombinedOutput()
	if err != nil && strings.HasPrefix(command, "set -e") {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// TestGitShowsContentOnlyWithKnownOptions runs sub-commands of git that print no content with each of their options.
// Those that make git print content must be known to do so.
func TestGitShowsContentOnlyWithKnownOptions(t *testing.T) {
	t.Parallel()
	expect.Long(t, "runs about 2,000 programs")
	dir := t.TempDir()
	runHere(t, dir, `set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
		# git reads an unknown date as now
		export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z; git init -q -b main
		printf 'MARK\nsame\nlines\n' > a.txt; git add .; git commit -qm one; git checkout -qb side; echo 'MARK side' >> a.txt; git commit -qam two; git checkout -q main
		echo 'MARK main' >> a.txt; git commit -qam three; git merge -q side || true; printf 'MARK both\nsame\n' > a.txt; git commit -qam four; echo 'MARK stash' >> a.txt; git stash -q; git mv a.txt b.txt
		echo 'MARK now ' >> b.txt`)
	t.Run("pattern", func(t *testing.T) { testGitPatterns(t, dir) })
	values := []string{"", "1", "b.txt", "on", "first-parent", "always", "%B", "1,1:b.txt", "log"}
	for _, sub := range []string{"log", "whatchanged", "stash list", "show -s", "show --stat", "diff --stat HEAD~1",
		"diff --cached --raw", "diff-tree -r HEAD", "diff-index HEAD", "diff-files", "status", "rev-list --all",
		"shortlog HEAD", "ls-files", "ls-tree HEAD", "describe --all", "rev-parse HEAD", "for-each-ref", "name-rev HEAD",
		"cherry HEAD"} {
		words := strings.Fields(sub)
		p := gitProgram(words)
		var commands []string
		for option, takes := range p.options {
			forms := []string{"--" + option}
			if len(option) == 1 {
				forms = []string{"-" + option}
			}
			if takes != nothing {
				plain := forms[0]
				forms = nil
				for _, value := range values {
					switch {
					case len(option) == 1 && takes == attached:
						forms = append(forms, plain+value)
					case len(option) == 1:
						forms = append(forms, plain+" "+value)
					case value == "" && takes == attached:
						forms = append(forms, plain)
					default:
						forms = append(forms, plain+"="+value)
					}
				}
			}
			for _, form := range forms {
				all := slices.Concat(words, strings.Fields(form))
				args := gitProgram(all).read(all[1:])
				if gitShows(all[0], positionals(args), args) {
					continue
				}
				command := "git " + sub + " " + form
				if strings.Contains(sub, " HEAD") {
					command = "git " + strings.ReplaceAll(sub, " HEAD", " "+form+" HEAD")
				}
				commands = append(commands, command)
			}
		}
		// one shell for all: starting one for each would take most of the time
		const end = "@end of a command@"
		outputs := strings.Split(runHere(t, dir, strings.Join(commands, "; echo '"+end+"'\n")), end)
		is.New(t).Equal(len(outputs), len(commands))
		for i, out := range outputs {
			if strings.Contains(out, "MARK") {
				t.Errorf("%s prints content: %s", commands[i], out[:min(len(out), 300)])
			}
		}
	}
}

// testGitPatterns runs sub-commands of git with a pattern that the files match and with one that they do not. If git
// then prints different names, it tells whether a file has a content, and gitShows must say so.
func testGitPatterns(t *testing.T, dir string) {
	for _, sub := range []string{"log --oneline", "stash list", "show -s", "diff --stat HEAD~1",
		"diff --name-only --no-index a.txt b.txt", "diff --cached --raw", "diff-tree -r HEAD", "diff-index HEAD",
		"diff-files", "rev-list --all", "shortlog HEAD", "status", "ls-files"} {
		words := strings.Fields(sub)
		for option, takes := range gitProgram(words).options {
			if takes == nothing {
				continue
			}
			form := "--" + option + "="
			if len(option) == 1 {
				form = "-" + option
			}
			all := append(slices.Clone(words), form+"^MARK")
			if gitShows(all[0], positionals(gitProgram(all).read(all[1:])), gitProgram(all).read(all[1:])) {
				continue
			}
			printed := func(pattern string) string {
				out := runHere(t, dir, "git "+words[0]+" "+form+pattern+" "+strings.Join(words[1:], " "))
				return strings.ReplaceAll(out, pattern, "")
			}
			if match, other := printed("^MARK"), printed("^NOPE"); match != other {
				t.Errorf("git %s %s^MARK prints %q, and with ^NOPE %q", sub, form, match[:min(len(match), 300)],
					other[:min(len(other), 300)])
			}
		}
	}
}
