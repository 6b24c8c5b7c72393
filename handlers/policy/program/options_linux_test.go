package program

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/ops/expect"
)

var (
	everyOption = flag.Bool("options.all", false,
		"run every option with every value instead of a random part")
	recordOptions = flag.Bool("options.record", false, "record in testdata that the tables passed -options.all")
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

// TestOptionsTakeTheValuesThatTheTablesSay runs each program with options of its table, and a name behind each that
// no file has. When the program complains about that file, the name was not the value of the option.
func TestOptionsTakeTheValuesThatTheTablesSay(t *testing.T) {
	t.Parallel()
	expect.Long(t, "runs hundreds of programs")
	is := is.New(t)
	dir := t.TempDir()
	runHere(t, dir, "set -e; echo x > a.txt; git init -q; git add .; git -c user.name=a -c user.email=a@b commit -qm one")
	tables := map[string]program{}
	for name, p := range programs {
		if p.options != nil {
			tables[name] = p
		}
	}
	for sub := range gitHarmless {
		if sub != "branch" && sub != "tag" { // those create what the word names
			tables["git "+sub] = gitProgram(strings.Fields(sub))
		}
	}
	checked := []string{missingFile, fmt.Sprint(optionsBefore, optionsBehind)}
	var names, commands []string
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		checked = append(checked, fmt.Sprint(name, tables[name].oneDash, tables[name].options))
		if _, err := exec.LookPath(strings.Fields(name)[0]); err == nil {
			names = append(names, name)
			commands = append(commands, optionCommand(name, "7", optionsBehind[name]), optionCommand(name, "7 8", ""))
		}
	}
	choice := chooseOptions(t, checked)
	complaints := runAll(t, dir, commands)
	type optionCase struct{ name, option, word string }
	var cases []optionCase
	commands = nil
	for i, name := range names {
		one, two, p := complaints[2*i], complaints[2*i+1], tables[name]
		if !misses("7", one) { // a program that does not complain about a missing file tells nothing
			continue
		}
		lastFirst := misses("8", two) && !misses("7", two)
		options := slices.Sorted(maps.Keys(p.options))
		if choice != nil {
			choice.Shuffle(len(options), func(i, j int) { options[i], options[j] = options[j], options[i] })
			options = options[:min(len(options), 3)]
		}
		for _, option := range options {
			word := "--" + option
			if p.oneDash || len(option) == 1 {
				word = "-" + option
			}
			if option == "#" {
				word = "-5"
			}
			switch takes := p.options[option]; {
			case takes == text:
				commands = append(commands, optionCommand(name, word+" 7", optionsBehind[name]))
			case takes != file && !lastFirst:
				commands = append(commands, optionCommand(name, word+" 7 8", ""))
			default:
				continue
			}
			cases = append(cases, optionCase{name, option, word})
		}
	}
	if choice == nil {
		is.True(len(cases) > 2000)
	}
	is.True(len(cases) > 100)
	for i, out := range runAll(t, dir, commands) {
		switch c := cases[i]; {
		case tables[c.name].options[c.option] == text:
			if misses("7", out) {
				t.Errorf("%s %s 7: the file behind it is read, but the table takes it as the value: %s", c.name, c.word, out)
			}
		case misses("8", out) && !misses("7", out):
			t.Errorf("%s %s 7 8: 7 is its value, but the table takes it as a file: %s", c.name, c.word, out)
		}
	}
}

// misses reports whether a program complained in out that there is no such file.
func misses(file, out string) bool { return missingFiles[file].MatchString(out) }

var missingFiles = map[string]*regexp.Regexp{
	"7": regexp.MustCompile(missingFile), "8": regexp.MustCompile(strings.ReplaceAll(missingFile, "7", "8")),
}

// optionCommand is a command of the program, with the words that it needs around these. Only tail needs
// a time limit: some of its options wait for more.
func optionCommand(name, words, behind string) string {
	command := strings.Join([]string{name, optionsBefore[name], words, behind}, " ")
	if name == "tail" {
		return "timeout 5 " + command
	}
	return command
}

// chooseOptions returns the source of a random part of the options, or nil for all of them. It fails when checked,
// which is all that the test would run, differs from what passed with -options.all.
func chooseOptions(t *testing.T, checked []string) *rand.Rand {
	t.Helper()
	is := is.New(t)
	path := filepath.Join("testdata", t.Name()+".sum")
	sum := fmt.Sprintf("%x\n", sha256.Sum256([]byte(strings.Join(checked, "\n"))))
	if *everyOption {
		t.Cleanup(func() {
			if *recordOptions && !t.Failed() {
				is.NoErr(os.WriteFile(path, []byte(sum), 0o644))
			}
		})
		return nil
	}
	if passed := expect.ReadFile(t, path); passed != sum {
		t.Error("the tables have changed: run this test with -options.all -options.record, and commit what it writes to testdata")
	}
	return expect.Rand(t)
}

func runHere(t *testing.T, dir, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "LC_ALL=C", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_SYSTEM=/dev/null", "GIT_PAGER=cat")
	out, err := cmd.CombinedOutput()
	if err != nil && strings.HasPrefix(command, "set -e") {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// runAll runs commands in one shell, because starting one for each takes most of the time. It returns what each
// printed.
func runAll(t *testing.T, dir string, commands []string) []string {
	t.Helper()
	const end = "@end of a command@"
	script := filepath.Join(t.TempDir(), "script") // too long for an argument
	is := is.New(t)
	is.NoErr(os.WriteFile(script, []byte(strings.Join(commands, "; echo '"+end+"'\n")), 0o644))
	outputs := strings.Split(runHere(t, dir, "sh "+script), end+"\n")
	is.Equal(len(outputs), len(commands))
	return outputs
}

// TestGitShowsContentOnlyWithKnownOptions runs sub-commands of git that print no content with their options. Those that
// make git print content must be known to do so.
func TestGitShowsContentOnlyWithKnownOptions(t *testing.T) {
	t.Parallel()
	expect.Long(t, "runs hundreds of programs")
	dir := t.TempDir()
	runHere(t, dir, `set -e; export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
		# git reads an unknown date as now
		export GIT_AUTHOR_DATE=2020-01-01T00:00:00Z GIT_COMMITTER_DATE=2020-01-01T00:00:00Z; git init -q -b main
		printf 'MARK\nsame\nlines\n' > a.txt; git add .; git commit -qm one; git checkout -qb side; echo 'MARK side' >> a.txt; git commit -qam two; git checkout -q main
		echo 'MARK main' >> a.txt; git commit -qam three; git merge -q side || true; printf 'MARK both\nsame\n' > a.txt; git commit -qam four; echo 'MARK stash' >> a.txt; git stash -q; git mv a.txt b.txt
		echo 'MARK now ' >> b.txt`)
	commands := gitContentCommands()
	patterns := gitPatternCommands()
	choice := chooseOptions(t, append(commandsOf(commands), commandsOf(patterns)...))
	if choice != nil {
		commands, patterns = onePerOption(choice, commands), onePerOption(choice, patterns)
	}
	all := commandsOf(commands)
	for i, out := range runAll(t, dir, all) {
		if strings.Contains(out, "MARK") {
			t.Errorf("%s prints content: %s", all[i], out[:min(len(out), 300)])
		}
	}
	// A pattern that the files match and one that they do not: if git then prints different names, it tells whether a
	// file has a content, and gitShows must say so.
	match := commandsOf(patterns)
	var other []string
	for _, command := range match {
		other = append(other, strings.ReplaceAll(command, "^MARK", "^NOPE"))
	}
	outputs := runAll(t, dir, append(slices.Clone(match), other...))
	for i, command := range match {
		matched := strings.ReplaceAll(outputs[i], "^MARK", "")
		if not := strings.ReplaceAll(outputs[len(match)+i], "^NOPE", ""); matched != not {
			t.Errorf("%s prints %q, and with ^NOPE %q", command, matched[:min(len(matched), 300)], not[:min(len(not), 300)])
		}
	}
}

// gitCommand is a command of git with an option.
type gitCommand struct{ option, command string }

func commandsOf(list []gitCommand) (commands []string) {
	for _, c := range list {
		commands = append(commands, c.command)
	}
	return commands
}

// onePerOption chooses one command for each name of an option, over all sub-commands.
func onePerOption(choice *rand.Rand, list []gitCommand) (chosen []gitCommand) {
	seen := map[string]bool{}
	for _, i := range choice.Perm(len(list)) {
		if !seen[list[i].option] {
			seen[list[i].option] = true
			chosen = append(chosen, list[i])
		}
	}
	return chosen
}

// gitContentCommands are the sub-commands that show no content, with each option and each value that gitShows does not
// know to show content.
func gitContentCommands() (commands []gitCommand) {
	values := []string{"", "1", "b.txt", "on", "first-parent", "always", "%B", "1,1:b.txt", "log"}
	for _, sub := range []string{"log", "whatchanged", "stash list", "show -s", "show --stat", "diff --stat HEAD~1",
		"diff --cached --raw", "diff-tree -r HEAD", "diff-index HEAD", "diff-files", "status", "rev-list --all",
		"shortlog HEAD", "ls-files", "ls-tree HEAD", "describe --all", "rev-parse HEAD", "for-each-ref", "name-rev HEAD",
		"cherry HEAD"} {
		words := strings.Fields(sub)
		table := gitProgram(words).options
		for _, option := range slices.Sorted(maps.Keys(table)) {
			takes := table[option]
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
				if knownToShow(words, strings.Fields(form)...) {
					continue
				}
				command := "git " + sub + " " + form
				if strings.Contains(sub, " HEAD") {
					command = "git " + strings.ReplaceAll(sub, " HEAD", " "+form+" HEAD")
				}
				commands = append(commands, gitCommand{option, command})
			}
		}
	}
	return commands
}

// gitPatternCommands are sub-commands with each option that may take the pattern ^MARK.
func gitPatternCommands() (commands []gitCommand) {
	for _, sub := range []string{"log --oneline", "stash list", "show -s", "diff --stat HEAD~1",
		"diff --name-only --no-index a.txt b.txt", "diff --cached --raw", "diff-tree -r HEAD", "diff-index HEAD",
		"diff-files", "rev-list --all", "shortlog HEAD", "status", "ls-files"} {
		words := strings.Fields(sub)
		table := gitProgram(words).options
		for _, option := range slices.Sorted(maps.Keys(table)) {
			form := "--" + option + "=^MARK"
			if len(option) == 1 {
				form = "-" + option + "^MARK"
			}
			if table[option] != nothing && !knownToShow(words, form) {
				commands = append(commands, gitCommand{option,
					"git " + words[0] + " " + form + " " + strings.Join(words[1:], " ")})
			}
		}
	}
	return commands
}

// knownToShow reports whether gitShows knows that the sub-command shows content with these words.
func knownToShow(sub []string, words ...string) bool {
	all := slices.Concat(sub, words)
	args := gitProgram(all).read(all[1:])
	return gitShows(all[0], positionals(args), args)
}
