package workspace

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
	"pocketcoder/ops/expect"
)

// OpenCode's grep reads whole folders: what rules keep and what may hold secrets is asked when ripgrep would read it.
func TestASearchAsksForWhatRipgrepWouldRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ignore, file, path, include string
		want                        policy.Action
	}{
		"an include of secrets":           {"", "sub/.env", "", ".env", policy.AskPerson},
		"an include reads ignored files":  {".env", ".env", "", ".env*", policy.AskPerson},
		"an include by folder":            {"", "sub/.env", "", "sub/*.env", policy.AskPerson},
		"an include in braces":            {"", "a.pem", "", "*.{go,pem}", policy.AskPerson},
		"an include of any name":          {"", "a.pem", "", "*.[p]em", policy.AskPerson},
		"an include of other names":       {"", "a.pem", "", "*.{go,md}", policy.Allow},
		"nothing that matches":            {"", "a.go", "", ".env", policy.Allow},
		"an ignored folder":               {"deps/", "deps/a.pem", "", "*.pem", policy.Allow},
		"an ignored folder that matches":  {"deps.pem/", "deps.pem/a.pem", "", "*.pem", policy.AskPerson},
		"all but":                         {"", "sub/.env", "", "!*.go", policy.AskPerson},
		"a secret file":                   {"", "sub/.env", "", "", policy.AskPerson},
		"a folder beside it":              {"", ".env", "sub", "", policy.Allow},
		"a folder with it":                {"", "sub/.env", "sub", "", policy.AskPerson},
		"a file beside it":                {"", "sub/.env", "sub/b.go", "", policy.AskPerson},
		"an ignored file":                 {".env", "sub/.env", "", "", policy.Allow},
		"an ignored ending":               {"*.pem", "sub/a.pem", "", "", policy.Allow},
		"an anchored line":                {"/.env", "sub/.env", "", "", policy.AskPerson},
		"a line with folders":             {"sub/.env", "sub/.env", "", "", policy.Allow},
		"a line that is undone":           {".env\n!sub/.env", "sub/.env", "", "", policy.AskPerson},
		"a line with more than stars":     {".en[v]", "sub/.env", "", "", policy.AskPerson},
		"what a rule keeps":               {"", "private/a.go", "", "", policy.AskPerson},
		"a line that begins with a blank": {" .env", ".env", "", "", policy.AskPerson},
		"a line that ends with a tab":     {".env\t", ".env", "", "", policy.AskPerson},
		"the repository itself":           {"", "a.go", "", "*", policy.Allow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			dir := repository(t, "sub/b.go", c.file)
			git(t, dir, "remote", "add", "origin", "https://me:password@example.org/a.git")
			is.NoErr(os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(c.ignore+"\n"), 0o600))
			metadata, err := json.Marshal(map[string]string{"pattern": "x", "path": c.path, "include": c.include})
			is.NoErr(err)
			in := Input(events.PermissionRequest{Permission: "grep", Patterns: []string{"x"}, Metadata: metadata}, dir)
			rules := append([]policy.Rule{{Permission: "read", Pattern: "private/**", Action: policy.Deny}}, policy.Defaults...)
			v := policy.Evaluate(rules, in)
			if v.Action != c.want {
				t.Errorf("%s: %s", v.Action, v.Reason)
			}
		})
	}
}

func unbounded(int) bool { return true }

func TestLinesOfIgnoreFilesAreCountedBeforeTheyAreCompared(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	dir := t.TempDir()
	is.NoErr(os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	is.NoErr(os.WriteFile(filepath.Join(dir, ".ignore"), []byte("a\nb\nc\n"), 0o600))
	is.NoErr(os.WriteFile(filepath.Join(dir, "sub/.rgignore"), []byte("d\n"), 0o600))
	path, counted := filepath.Join(dir, "sub/c"), 0
	count := func(lines int) bool { counted += lines; return true }
	is.True(IgnoredBelow(dir)(path, false, count))
	is.True(counted >= 4)
	is.True(!IgnoredBelow(dir)(path, false, func(int) bool { return false }))
}

// What IgnoredBelow calls ignored, ripgrep must not read.
func TestIgnoredIsWhatRipgrepSkips(t *testing.T) {
	t.Parallel()
	rg, err := exec.LookPath("rg")
	if err != nil && os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	is := is.New(t)
	names := []string{"a.pem", "sub/a.pem", "sub/deep/.env", "nested/.git/x", "nested/.env", "nested/b.key",
		"undone/.env", "undone/b.key", "sub/b.key", "c/d/e.key", ".env"}
	dir := repository(t, "a")
	for _, name := range names {
		is.NoErr(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		is.NoErr(os.WriteFile(filepath.Join(dir, name), []byte("text\n"), 0o600))
	}
	for file, text := range map[string]string{".gitignore": "/a.pem\n.env\nc/*/e.key\n**/b.key\n",
		"undone/.ignore": "!.env\n", "sub/.rgignore": "deep/\n"} {
		is.NoErr(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	out, err := exec.CommandContext(t.Context(), rg, "--no-config", "--hidden", "-l", "--glob=!**/.git/**", "text",
		dir).Output()
	is.NoErr(err)
	ignored, skipped := IgnoredBelow(dir), 0
	for _, name := range names {
		path := filepath.Join(dir, name)
		if ignored(path, false, unbounded) {
			skipped++
			if strings.Contains(string(out), path+"\n") {
				t.Errorf("%s is read", name)
			}
		}
	}
	is.True(skipped >= 4)
	is.True(ignored(filepath.Join(dir, "sub/deep"), true, unbounded))
}

var ignoreRounds = flag.Int("ignore.rounds", 80, "`number` of workspaces with random ignore files")

// TestRipgrepSkipsWhatIsIgnored writes random ignore files and compares IgnoredBelow with what ripgrep lists, as
// OpenCode calls it.
func TestRipgrepSkipsWhatIsIgnored(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	programs, err := filepath.Glob(filepath.Join(os.Getenv("HOME"),
		".cache/pocketcoder/npm/ripgrep-*/node_modules/@vscode/ripgrep-*/bin/rg"))
	is.NoErr(err)
	if rg, err := exec.LookPath("rg"); err == nil {
		programs = append(programs, rg)
	}
	if len(programs) == 0 && os.Getenv("CI") == "" {
		t.Skip("ripgrep is not installed")
	}
	is.True(len(programs) > 0)
	g := ignoreGenerator{expect.Rand(t)}
	skipped := 0
	for round := range *ignoreRounds {
		above := expect.MemoryDir(t)
		root, ok := RealPath(filepath.Join(above, "workspace"))
		is.True(ok)
		written := g.workspace(t, root)
		start := filepath.Join(root, g.pick("", "", "sub", "sub/deep", "nested"))
		rg := programs[round%len(programs)]
		cmd := exec.CommandContext(t.Context(), rg, "--no-config", "--hidden", "--files", "--no-messages",
			"--glob=!**/.git/**", ".")
		cmd.Dir, cmd.Env = start, append(os.Environ(), "HOME="+above, "XDG_CONFIG_HOME="+above)
		out, _ := cmd.Output() // it fails when it finds nothing
		listed := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			listed[filepath.Join(start, strings.TrimSuffix(line, "\n"))] = true
		}
		ignored := IgnoredBelow(root)
		for _, name := range ignoreNames {
			path := filepath.Join(root, name)
			if !strings.HasPrefix(path, start+"/") {
				continue
			}
			is := ignored(path, false, unbounded)
			for dir := filepath.Dir(path); dir != start; dir = filepath.Dir(dir) {
				is = is || ignored(dir, true, unbounded)
			}
			if is && listed[path] {
				t.Fatalf("%s from %s: %s is listed, not ignored\n%s", rg, start, path, written)
			}
			if is {
				skipped++
			}
		}
	}
	t.Logf("%d files are ignored", skipped)
	is.True(skipped > 0) // it ignores something at all; how much depends on the seed: usually about 50, 18 were seen
}

// ignoreNames are the files of a workspace of the test above.
var ignoreNames = strings.Fields(".env a.pem b sub/.env sub/a.pem sub/b sub/deep/.env sub/deep/b nested/.env nested/b nested/sub/a.pem .secrets/prod.key .secrets/.env A.PEM sub/x.env [a] !b #c {b,a}")

type ignoreGenerator struct{ *rand.Rand }

func (g ignoreGenerator) pick(from ...string) string { return from[g.IntN(len(from))] }

// workspace makes the files and up to four ignore files, and returns what they hold.
func (g ignoreGenerator) workspace(t *testing.T, root string) (written string) {
	t.Helper()
	write := func(name, text string) {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range ignoreNames {
		write(name, "text\n")
	}
	for _, repository := range []string{".", "nested", ".."} {
		if g.IntN(3) > 0 {
			write(repository+"/.git/HEAD", "ref: refs/heads/main\n")
		}
	}
	for range 1 + g.IntN(4) {
		file := filepath.Join(g.pick("", "", "sub", "sub/deep", "nested", ".secrets", ".."),
			g.pick(".gitignore", ".gitignore", ".ignore", ".rgignore", ".git/info/exclude", "git/ignore"))
		var text strings.Builder
		if g.IntN(20) == 0 {
			text.WriteString(g.pick("\ufeff", "\x00", "\xff\n"))
		}
		for range 1 + g.IntN(3) {
			text.WriteString(g.line())
		}
		write(file, text.String())
		written += fmt.Sprintf("%s: %q\n", file, text.String())
	}
	return written
}

// line is a line of an ignore file, mostly of the kind that matches something.
func (g ignoreGenerator) line() string {
	name := g.pick(".env", ".env", "a.pem", "b", "sub", "deep", "nested", ".secrets", "prod.key", "*.pem", ".e*", "*",
		"**", "*b", "sub/.env", "/.env", "sub/b", "sub/deep/", "*/b", "sub/*", "**/b", "deep/**", "sub/**/b", "A.PEM")
	if g.IntN(2) == 0 {
		return name + g.pick("\n", "\n", "\r\n")
	}
	for g.IntN(4) == 0 {
		i := g.IntN(len(name) + 1)
		name = name[:i] + g.pick(" ", "\\", "/", "*", "**", "**/", "?", "[", "]", "[^x]", "[!a]", "[a-z]", "{", "}", "{b,x}",
			",", "!", "#", ".", "..", "./", "\t", "\\ ", "\\#", "\\!", "\xff", "\x00", "\u00a0", "é", "\r", "$", "-", "^") +
			name[i:]
	}
	return g.pick("", "", "", "", "!", "/", " ", "\t", "!!", "!/", "#", "\\", "./", "**/") + name +
		g.pick("", "", "", "", "/", " ", "\t", "\\ ", "\r", " \r", "//", "/*", "/**") +
		g.pick("\n", "\n", "\n", "\n", "\r\n", "\r", "\v", "\u2028\n")
}
