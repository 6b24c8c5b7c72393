package program_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/policy/program"
	"pocketcoder/ops/expect"
	"pocketcoder/sandbox"
	"pocketcoder/sandbox/isolation"
	"pocketcoder/sandbox/wire"
)

const usualCases = 100

var harmlessCases = flag.Int("harmless.cases", usualCases, "`number` of allowed commands to run")

// TestWhatDefaultsAllowIsHarmless runs commands that the default rules allow in the sandbox. They come from a grammar
// of the programs, their options and hostile fragments. None may create or change a file, run a program beside those
// it names, or print what a secret file holds.
func TestWhatDefaultsAllowIsHarmless(t *testing.T) {
	expect.Long(t, "runs some thousand programs")
	r := openTestbed(t)
	r.noticesHarm(t)
	g := &generator{rand: expect.Rand(t), seeds: everyday(t)}
	tried := 0
	for done := 0; done < *harmlessCases; {
		var batch []string
		for len(batch) < min(200, *harmlessCases-done) {
			command := g.command()
			tried++
			if policy.Evaluate(harmlessRules, r.ask(command)).Action == policy.Allow {
				batch = append(batch, command)
			}
		}
		r.check(t, batch)
		if done += len(batch); done%10_000 == 0 {
			t.Logf("%d commands ran, of %d tried", done, tried)
		}
	}
}

// noticesHarm runs what must be noticed, so that the test can fail: a command for each kind of harm, and all of them if
// the test runs more than the usual cases. What a command has done is still there when the next one runs, because a
// reset takes longer.
func (r *testbed) noticesHarm(t *testing.T) {
	commands := []string{"touch a.txt", "rm b.txt", "sed '1e ./canary' a.txt", "cat .env", "echo x > ~/new",
		"mkdir src/d && rmdir src/d", "git branch new", "chmod 600 canary"}
	if *harmlessCases > usualCases {
		commands = append(commands, "echo x > src/new", "sed -i s/a/b/ a.txt", "./canary",
			"sort --compress-program=./canary -S1 a.txt && ./canary", "git log --format=%G?", "printf '%n' PATH && ls",
			"test -- -a -v 'a[$(./canary)]'", "sed -n '/a/w PWNED' a.txt", "echo './canary ]a/' | sed 's/]a[/]/;/e#x/p'",
			"cd src && git grep --untracked LEAK ':(top).env'", "git show stash@{0}^3", "git log -p", "rg LEAK ig0",
			"cat private/plan", "find . -name a.txt -exec ./canary ';'")
	}
	for _, command := range commands {
		if after := r.run(t, []string{command}) + r.settled(t); after == r.before {
			t.Errorf("%s: not noticed", command)
		}
		os.Remove(filepath.Join(r.workspace(), "HIT")) // a canary does not write a file that exists
		r.before = r.snapshot(t)
	}
	r.reset(t)
}

// testbed is a worker, its workspace and what lies in them.
type testbed struct {
	*sandbox.Worker
	dir    string // holds all the rest
	before string // snapshot of what no command may change
	execs  int
}

func (r *testbed) workspace() string { return filepath.Join(r.dir, "workspace") }

// harmlessRules are the default rules, and one that keeps a folder from being read.
var harmlessRules = append([]policy.Rule{{Permission: "read", Pattern: "private/**", Action: policy.Deny}},
	policy.Defaults...)

func (r *testbed) ask(command string) policy.Input {
	return policy.Input{Type: "bash", Command: command, Cwd: r.workspace(), Root: r.workspace(),
		Resolve: workspace.RealPath, List: workspace.ListFolder, Tracked: workspace.TrackedFiles}
}

// helpers are programs that others run: in the testbed each is a canary.
var helpers = strings.Fields("gpg gpg2 gpgsm ssh-keygen pr gzip gunzip bzip2 xz zstd lz4 brotli less more pager vi vim nano editor ssh curl wget awk perl python3 column man compress uncompress patch ed")

const canary = "#!/bin/sh\nset -C\n: > \"$POCKETCODER_WORKSPACE/HIT\"\n"

func openTestbed(t *testing.T) *testbed {
	t.Helper()
	is := is.New(t)
	choice, err := isolation.Choose(isolation.Auto)
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	is.NoErr(err)
	dir, err := os.MkdirTemp("/var/tmp", "pocketcoder-testbed-") // commands have a /tmp of their own
	is.NoErr(err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &testbed{dir: dir}
	for _, d := range []string{"template/workspace", "template/home", "bin"} {
		is.NoErr(os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for _, name := range helpers {
		is.NoErr(os.WriteFile(filepath.Join(dir, "bin", name), []byte(canary), 0o755))
	}
	is.NoErr(os.WriteFile(filepath.Join(dir, "bin/cases"), nil, 0o644))
	fillWorkspace(t, filepath.Join(dir, "template/workspace"))
	r.reset(t)
	t.Setenv("PATH", filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	r.Worker, err = sandbox.Open(sandbox.Config{
		Isolation: choice, Workspace: r.workspace(), Home: filepath.Join(dir, "home"), Expose: []string{filepath.Join(dir, "bin")}, Log: slog.New(slog.DiscardHandler),
		Quarantine: filepath.Join(dir, "quarantine"),
	})
	is.NoErr(err)
	t.Cleanup(r.Close)
	r.run(t, []string{"true"}) // what the worker itself makes is there now
	r.before = r.settled(t)
	is.Equal(r.run(t, []string{"true"})+r.restored(t), r.before)
	return r
}

func fillWorkspace(t *testing.T, dir string) {
	t.Helper()
	is := is.New(t)
	for name, text := range map[string]string{
		"a.txt": "b\na\nc a\n]a[\n", "b.txt": "a,b\n1,2\n", "src/a.go": "package a\n\nfunc main() {}\n", "src/sub/b.go": "package b\n", "data.json": `{"a": [1, {"b": null}], "name": "x"}`,
		"script.sed": "w PWNED\ne ./canary\n", "opts": "--output=PWNED\n-exec ./canary ;\n", "list0": "a.txt\x00b.txt\x00", "filter.jq": "env\n", "sums": "00000000000000000000000000000000  a.txt\n",
		"-o": "x", "--output=PWNED": "x", ".env": "SECRET-LEAK-1\n", "src/.env": "SECRET-LEAK-2\n", "src/notes": "n\n", "other/.env": "SECRET-LEAK-3\n", "other/b.txt": "x\n",
		"private/plan": "SECRET-LEAK-4\n", "src/hid/.secrets/prod.key": "SECRET-LEAK-5\n", "old.pem": "SECRET-LEAK-6\n", "gone/a.key": "SECRET-LEAK-7\n", "stashed.key": "SECRET-LEAK-8\n",
	} {
		path := filepath.Join(dir, name)
		is.NoErr(os.MkdirAll(filepath.Dir(path), 0o755))
		is.NoErr(os.WriteFile(path, []byte(text), 0o644))
	}
	for i, lines := range ignoreFiles {
		for name, text := range map[string]string{".ignore": lines, ".env": "SECRET-LEAK-0\n",
			".secrets/prod.key": "SECRET-LEAK-0\n", "sub/a.pem": "SECRET-LEAK-0\n", "b.go": "b\n"} {
			path := filepath.Join(dir, fmt.Sprint("ig", i), name)
			is.NoErr(os.MkdirAll(filepath.Dir(path), 0o755))
			is.NoErr(os.WriteFile(path, []byte(text), 0o644))
		}
	}
	is.NoErr(os.Symlink(".env", filepath.Join(dir, "notes")))
	for _, name := range []string{"canary", "0/ls", "0/cat", "0/git", "1/ls", "1/cat", "2/ls", "3/ls", "5/ls"} {
		path := filepath.Join(dir, name)
		is.NoErr(os.MkdirAll(filepath.Dir(path), 0o755))
		is.NoErr(os.WriteFile(path, []byte(canary), 0o755))
	}
	is.NoErr(exec.Command("gzip", "-k", filepath.Join(dir, "b.txt")).Run())
	script := `set -e; git init -q -b main; git add a.txt b.txt src/a.go src/sub src/notes data.json; git add -f old.pem gone; git commit -qm one; git rm -q old.pem gone/a.key; git commit -qm removed; git tag v1; git branch side
		echo more >> b.txt; git commit -qam two; git cat-file commit HEAD | sed '/^committer/a gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----' > signed
		git update-ref refs/heads/main "$(git hash-object -t commit -w --stdin < signed)"; rm signed; echo x >> a.txt; git stash push -qu -- a.txt stashed.key
		echo y >> a.txt; git status -s`
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// reset makes workspace and home what they were, in place: the worker has them open.
func (r *testbed) reset(t *testing.T) {
	t.Helper()
	is := is.New(t)
	for _, d := range []string{"workspace", "home"} {
		to := filepath.Join(r.dir, d)
		is.NoErr(os.MkdirAll(to, 0o755))
		entries, err := os.ReadDir(to)
		is.NoErr(err)
		for _, e := range entries {
			is.NoErr(os.RemoveAll(filepath.Join(to, e.Name())))
		}
		is.NoErr(exec.Command("cp", "-a", filepath.Join(r.dir, "template", d)+"/.", to).Run())
	}
	if r.Worker != nil {
		r.run(t, []string{"true"})
		r.before = r.settled(t)
	}
}

// driver runs each command as the worker runs one, with nothing to read and for a short time. Only tail can wait. A
// program that crashes does no harm: tree 2.1.0 does with -U and --dirsfirst.
const driver = `while IFS= read -r -d "" command <&3; do
	case $command in *tail*) limit="timeout -k 1 2";; *) limit=;; esac
	{ (ulimit -t 1; exec $limit bash -c "$command" < /dev/null 2>&1); } 2> /dev/null; done 3< %s | LC_ALL=C grep -a -o "SECRET-LEAK-[0-9]" | sort -u`

// run runs commands one after the other, and returns the secrets that they printed.
func (r *testbed) run(t *testing.T, commands []string) string {
	t.Helper()
	is := is.New(t)
	cases := filepath.Join(r.dir, "bin/cases")
	is.NoErr(os.WriteFile(cases, []byte(strings.Join(commands, "\x00")+"\x00"), 0o644))
	r.execs++
	var out bytes.Buffer
	result := r.Exec(t.Context(), wire.Request{Exec: fmt.Sprint("exec", r.execs), Command: fmt.Sprintf(driver, cases),
		Cwd: r.workspace()}, &out, &out)
	if result.Reason != wire.Exited {
		t.Fatalf("%+v\n%s", result, out.String())
	}
	return out.String()
}

// restored returns the snapshot once it is what no command may change. If it is not within 20 s, restored returns the
// last one. After a command the worker removes its placeholders, which takes time on a busy machine.
func (r *testbed) restored(t *testing.T) string {
	t.Helper()
	now := r.snapshot(t)
	for end := time.Now().Add(20 * time.Second); now != r.before && time.Now().Before(end); now = r.snapshot(t) {
		time.Sleep(50 * time.Millisecond)
	}
	return now
}

// check runs commands, and finds the ones to blame when something changed.
func (r *testbed) check(t *testing.T, commands []string) {
	t.Helper()
	after := r.run(t, commands) + r.restored(t)
	if after == r.before {
		return
	}
	defer r.reset(t)
	if len(commands) == 1 {
		t.Errorf("%q is allowed, and prints or changes:\n%s", commands[0], changes(r.before, after))
		return
	}
	half := len(commands) / 2
	r.reset(t)
	r.check(t, commands[:half])
	r.check(t, commands[half:])
}

// settled returns a snapshot that stays the same: a worker removes its placeholders after a command.
func (r *testbed) settled(t *testing.T) string {
	t.Helper()
	last := r.snapshot(t)
	for range 50 {
		time.Sleep(100 * time.Millisecond)
		now := r.snapshot(t)
		if now == last {
			return now
		}
		last = now
	}
	t.Fatal("the workspace changes without a command")
	return ""
}

// snapshot is everything in workspace and home: names, modes, times and content. Git refreshes its index and makes
// locks.
func (r *testbed) snapshot(t *testing.T) string {
	t.Helper()
	var s strings.Builder
	for _, root := range []string{r.workspace(), filepath.Join(r.dir, "home")} {
		err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			info, err := d.Info()
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			if info.Mode()&fs.ModeSticky != 0 { // a placeholder of the worker, which it makes and removes at its own time
				return nil
			}
			at, git := info.ModTime().UnixNano(), strings.Contains(p+"/", "/.git/")
			var content []byte
			switch {
			case git && info.Name() == "index":
				return nil
			case (git || p == root) && d.IsDir():
				at = 0
			case d.Type()&fs.ModeSymlink != 0:
				to, _ := os.Readlink(p)
				content = []byte(to)
			case d.Type().IsRegular():
				content, err = os.ReadFile(p)
			}
			fmt.Fprintf(&s, "%s %v %d %d %q\n", p, info.Mode(), at, len(content), content[:min(len(content), 300)])
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return s.String()
}

// changes are the lines of one snapshot that are not in the other.
func changes(before, after string) string {
	var lines []string
	have := strings.Split(before, "\n")
	for line := range strings.Lines(after) {
		if !slices.Contains(have, strings.TrimSuffix(line, "\n")) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

// everyday are the commands of the corpora.
func everyday(t *testing.T) (commands []string) {
	is := is.New(t)
	for _, name := range []string{"permission_cases.jsonl", "more_cases.jsonl"} {
		f, err := os.Open(filepath.Join("../testdata", name))
		is.NoErr(err)
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var c struct {
				Permission, Expected string
				Command              string `json:"command_or_path"`
			}
			is.NoErr(json.Unmarshal(lines.Bytes(), &c))
			if c.Permission == "bash" {
				commands = append(commands, c.Command)
			}
		}
	}
	return commands
}

// generator makes commands. The policy allows some of them.
type generator struct {
	rand  *rand.Rand
	seeds []string
}

func (g *generator) pick(list []string) string { return list[g.rand.IntN(len(list))] }

func (g *generator) chance(percent int) bool { return g.rand.IntN(100) < percent }

// ignoreFiles are contents of ignore files. Some of them make ripgrep read hidden names.
var ignoreFiles = []string{"!.secrets\n", " .env\n!.env\n", "!{.env,x}\n", "!*/\n", "!.[e]nv\n",
	"!x/../.secrets\n!.SECRETS\n", ".env\n.secrets\n", "!.gitkeep\n", "\ufeff!.env\n", "!\\.env\n", "!**/.secrets/\n",
	"!.env \n"}

var (
	fuzzFiles = strings.Fields("a.txt b.txt src src/a.go src/sub data.json . script.sed opts list0 sums canary 0 b.txt.gz -o ./-o nothing - -- HEAD v1 main HEAD~1:a.txt HEAD:src :a.txt " +
		".env src/.env notes src/notes src/hid ../.env ../* ../other other :(top) :/ :(top).env :!x :(glob)** :(icase).ENV :^x .e* *.pem old.pem gone HEAD~3:old.pem HEAD~3 v1~2:gone stash@{0} stash@{0}^3 " +
		"stash@{0}^3:stashed.key private private/plan LEAK SECRET ig0 ig1 ig2 ig3 ig4 ig5 ig6 ig7 ig8 ig9 ig10 ig11")
	hostile = []string{
		"PWNED", "./canary", "canary", "--output=PWNED", "-o", "-oPWNED", "$(./canary)", "a[$(./canary)]", "`./canary`",
		";./canary", "e ./canary", "w PWNED", "@opts", "--", "-", "-e", "-f", "-x", "-exec", "-i", "-w",
		"--pre=./canary", "--exec=./canary", "|./canary", "%n", "%G?", "%(signature)", "env", "PATH", "\\", "]", "[", "{}",
		";", "+", "!", "0", "1", "5", "a b", "", "=", "a=b", ":", "HEAD:a.txt", "x/../a.txt", "\n", "é",
		"--compress-program=./canary", "-T.", "--files0-from=list0", "--ext-diff", "--textconv", "-O./canary",
		"--open-files-in-pager=./canary", "-delete", "-fprint", "-C", "-c", "-l", "-s", "-D", "-z", "-p",
	}
	fuzzSed    = strings.Split(`s / | , # ; p d q e w W r R y c a i { } ! $ 1 2,3 0~2 /a/ /] [ ] [^ []] \ \/ \n \c & + ~ g I m M x b : = N D s/a/b/ s/a/b/e ./canary #n }e } \d047 \x2f \o57 1e -`, " ")
	fuzzJq     = strings.Split(`. .a .[] | , env $ENV $ENV.PATH input inputs "a" "\( ) ( "\" # : { } [ ] import include "./filter" as $x ; def f : keys @sh @json $__loc__ .. ? // input_filename debug if then else end 1 - reduce limit( halt`, " ")
	fuzzPrintf = []string{"%s", "%d", "%n", "%5", "%.", "*", "$", "%q", "%b", "%(%F)T", "\\n", "%%", "l", "h", "n", "'",
		"-", "0", "%i", "%5n", "%c", "a"}
	fuzzTest = []string{"-v", "-R", "-a", "-o", "-f", "-n", "!", "(", ")", "=", "-eq", "-nt", "a[$(./canary)]", "a.txt",
		"--", "-t", "x", "1", "-N", "=~", "<"}
)

// command is one or several simple commands.
func (g *generator) command() string {
	if g.chance(10) {
		return g.mutate(g.pick(g.seeds))
	}
	command := g.simple()
	for g.chance(25) {
		command += g.pick([]string{" | ", " && ", "; ", "\n", " || "}) + g.simple()
	}
	return command
}

// mutate changes words of an everyday command.
func (g *generator) mutate(command string) string {
	words := strings.Fields(command)
	for range 1 + g.rand.IntN(2) {
		if len(words) == 0 {
			break
		}
		i := g.rand.IntN(len(words))
		switch g.rand.IntN(3) {
		case 0:
			words = slices.Delete(words, i, i+1)
		case 1:
			words = slices.Insert(words, i, g.quote(g.pick(hostile)))
		case 2:
			words[i] = g.quote(g.pick(fuzzFiles))
		}
	}
	return strings.Join(words, " ")
}

// fuzzFolders are the words behind cd.
var fuzzFolders = strings.Split("src|..|-|-- -|-P src|-L -|-P -- ..|-- src|'~-'|''|src/sub|other|ig0|private|src/hid/..|../src|-e src|src other|.", "|")

// simple is one of the commands that Defaults are about, with arguments.
func (g *generator) simple() string {
	if g.chance(10) {
		return "cd " + g.pick(fuzzFolders)
	}
	rule := policy.Defaults[g.rand.IntN(len(policy.Defaults))]
	for rule.Permission != "bash" {
		rule = policy.Defaults[g.rand.IntN(len(policy.Defaults))]
	}
	words := strings.Fields(strings.TrimSuffix(rule.Pattern, "*"))
	if g.chance(25) { // the small languages
		words = []string{g.pick([]string{"sed", "sed", "find", "jq", "printf", "test"})}
	}
	if g.chance(20) { // what shows the content of many files
		words = strings.Fields(g.pick([]string{"git grep", "git grep --untracked", "git diff", "git log", "git log -p",
			"git show", "git blame", "rg", "rg LEAK", "grep -r LEAK", "cat", "diff"}))
	}
	options, oneDash := program.Options(words)
	known := slices.Sorted(maps.Keys(options))
	for range g.rand.IntN(5) {
		words = append(words, g.argument(words[0], options, oneDash, known)...)
	}
	for i, w := range words[1:] {
		words[i+1] = g.quote(w)
	}
	return strings.Join(words, " ")
}

// argument is an option with its value, a file, a program text or a hostile fragment.
func (g *generator) argument(name string, options map[string]program.ValueKind, oneDash bool, known []string) []string {
	texts := map[string][]string{"sed": fuzzSed, "jq": fuzzJq, "printf": fuzzPrintf, "test": fuzzTest}[name]
	switch n := g.rand.IntN(100); {
	case texts != nil && n < 50:
		var text strings.Builder
		for range 1 + g.rand.IntN(7) {
			text.WriteString(g.pick(texts))
			if name == "test" {
				return []string{text.String()}
			}
			if g.chance(10) {
				text.WriteByte(' ')
			}
		}
		return []string{text.String()}
	case n < 65 && len(known) > 0:
		return g.option(options, oneDash, g.pick(known))
	case n < 72: // letters
		word := "-"
		for range 1 + g.rand.IntN(4) {
			word += string("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789="[g.rand.IntN(63)])
		}
		return []string{word}
	case n < 90:
		return []string{g.pick(fuzzFiles)}
	}
	return []string{g.pick(hostile)}
}

// option is a known option, sometimes cut short, joined with more or with another value than it takes.
func (g *generator) option(options map[string]program.ValueKind, oneDash bool, name string) []string {
	value := g.pick(hostile)
	if g.chance(50) {
		value = g.pick([]string{".env", "LEAK", "notes", "old.pem", "1", "2", "a", "a.txt", "src", "x:y", "never", "auto",
			"always", "name", "*.go", "5k", "%s", "%F", "HEAD"})
	}
	dash := "--"
	if oneDash || len(name) == 1 {
		dash = "-"
	}
	if name == "#" {
		return []string{fmt.Sprint("-", g.rand.IntN(20))}
	}
	if dash == "--" && g.chance(8) {
		name = name[:1+g.rand.IntN(len(name))]
	}
	takes := options[name]
	if g.chance(10) {
		takes = []program.ValueKind{program.Nothing, program.Attached, program.Text}[g.rand.IntN(3)]
	}
	switch {
	case takes == program.Nothing:
		return []string{dash + name}
	case takes == program.Attached, dash == "--" && g.chance(50):
		if dash == "--" {
			return []string{dash + name + "=" + value}
		}
		return []string{dash + name + value}
	}
	return []string{dash + name, value}
}

// quote writes a word as a person would, when it needs quotes.
func (g *generator) quote(w string) string {
	if w != "" && !strings.ContainsAny(w, " \t\n'\"\\$`;&|<>()[]{}*?!~#") {
		return w
	}
	if !strings.Contains(w, "'") {
		return "'" + w + "'"
	}
	return `"` + w + `"`
}
