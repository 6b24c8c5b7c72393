package handlers

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/events"
	"pocketcoder/handlers/policy"
)

// OpenCode's grep reads whole folders: what rules keep and what may hold secrets is asked when ripgrep would read it.
func TestASearchAsksForWhatRipgrepWouldRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ignore, file, path, include string
		want                        policy.Action
	}{
		"an include of secrets":          {"", "sub/.env", "", ".env", policy.AskPerson},
		"an include reads ignored files": {".env", ".env", "", ".env*", policy.AskPerson},
		"an include by folder":           {"", "sub/.env", "", "sub/*.env", policy.AskPerson},
		"an include in braces":           {"", "a.pem", "", "*.{go,pem}", policy.AskPerson},
		"an include of any name":         {"", "a.pem", "", "*.[p]em", policy.AskPerson},
		"an include of other names":      {"", "a.pem", "", "*.{go,md}", policy.Allow},
		"nothing that matches":           {"", "a.go", "", ".env", policy.Allow},
		"an ignored folder":              {"deps/", "deps/a.pem", "", "*.pem", policy.Allow},
		"an ignored folder that matches": {"deps.pem/", "deps.pem/a.pem", "", "*.pem", policy.AskPerson},
		"all but":                        {"", "sub/.env", "", "!*.go", policy.AskPerson},
		"a secret file":                  {"", "sub/.env", "", "", policy.AskPerson},
		"a folder beside it":             {"", ".env", "sub", "", policy.Allow},
		"a folder with it":               {"", "sub/.env", "sub", "", policy.AskPerson},
		"a file beside it":               {"", "sub/.env", "sub/b.go", "", policy.AskPerson},
		"an ignored file":                {".env", "sub/.env", "", "", policy.Allow},
		"an ignored ending":              {"*.pem", "sub/a.pem", "", "", policy.Allow},
		"an anchored line":               {"/.env", "sub/.env", "", "", policy.AskPerson},
		"a line with folders":            {"sub/.env", "sub/.env", "", "", policy.Allow},
		"a line that is undone":          {".env\n!sub/.env", "sub/.env", "", "", policy.AskPerson},
		"a line with more than stars":    {".en[v]", "sub/.env", "", "", policy.AskPerson},
		"what a rule keeps":              {"", "private/a.go", "", "", policy.AskPerson},
		"the repository itself":          {"", "a.go", "", "*", policy.Allow},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			dir := repository(t, "sub/b.go", c.file)
			git(t, dir, "remote", "add", "origin", "https://me:password@example.org/a.git")
			is.NoErr(os.WriteFile(filepath.Join(dir, ".gitignore"), []byte(c.ignore+"\n"), 0o600))
			metadata, err := json.Marshal(map[string]string{"pattern": "x", "path": c.path, "include": c.include})
			is.NoErr(err)
			g := Gate{}
			in := g.askOn(events.PermissionAsk{Permission: "grep", Patterns: []string{"x"}, Metadata: metadata}, dir)
			rules := append([]policy.Rule{{Permission: "read", Pattern: "private/**", Action: policy.Deny}}, policy.Defaults...)
			v := policy.Evaluate(rules, in)
			if v.Action != c.want {
				t.Errorf("%s: %s", v.Action, v.Reason)
			}
		})
	}
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
	names := []string{"a.pem", "sub/a.pem", "sub/deep/.env", "nested/.git/x", "nested/.env", "nested/b.key", "undone/.env", "undone/b.key", "sub/b.key", "c/d/e.key", ".env"}
	dir := repository(t, "a")
	for _, name := range names {
		is.NoErr(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		is.NoErr(os.WriteFile(filepath.Join(dir, name), []byte("text\n"), 0o600))
	}
	for file, text := range map[string]string{".gitignore": "/a.pem\n.env\nc/*/e.key\n**/b.key\n", "undone/.ignore": "!.env\n", "sub/.rgignore": "deep/\n"} {
		is.NoErr(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	out, err := exec.CommandContext(t.Context(), rg, "--no-config", "--hidden", "-l", "--glob=!**/.git/**", "text", dir).Output()
	is.NoErr(err)
	ignored, skipped := IgnoredBelow(dir), 0
	for _, name := range names {
		path := filepath.Join(dir, name)
		if ignored(path, false) {
			skipped++
			if strings.Contains(string(out), path+"\n") {
				t.Errorf("%s is read", name)
			}
		}
	}
	is.True(skipped >= 4)
	is.True(ignored(filepath.Join(dir, "sub/deep"), true))
}
