package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/matryer/is"

	"pocketcoder/cmd/cli"
	workspaces "pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
	"pocketcoder/ops/expect"
)

// policyTest runs policy test in process, with nothing running.
func policyTest(t testing.TB, stdin string, args ...string) (stdout, stderr string, err error) {
	var out, errs strings.Builder
	env := cli.Environment{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, Getenv: func(string) string {
		return ""
	}}
	err = run(t.Context(), env, append([]string{"policy", "test", "--data", "testdata/nothing-runs-here"}, args...))
	return out.String(), errs.String(), err
}

// TestPolicyTestReproducesTheCorpus runs every case in a workspace of its own in place of /workspace, with real
// symlinks.
func TestPolicyTestReproducesTheCorpus(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	temp, ok := workspaces.RealPath(t.TempDir())
	is.True(ok)
	for _, name := range []string{"permission_cases.jsonl", "more_cases.jsonl"} {
		f, err := os.Open(filepath.Join("../../handlers/policy/testdata", name))
		is.NoErr(err)
		defer f.Close()
		lines := bufio.NewScanner(f)
		for i := 0; lines.Scan(); i++ {
			corpusCase(t, lines.Text(), filepath.Join(temp, name, strconv.Itoa(i), "workspace"))
		}
		is.NoErr(lines.Err())
	}
}

func corpusCase(t *testing.T, line, workspace string) {
	is := is.New(t)
	inPlace, err := json.Marshal(workspace)
	is.NoErr(err)
	line = strings.ReplaceAll(line, `"/workspace"`, string(inPlace))
	line = strings.ReplaceAll(line, "/workspace/", workspace+"/")
	var c struct {
		ID, Permission, Expected, Cwd string
		Action                        string                            `json:"rule_action"`
		Target                        string                            `json:"rule_target"`
		Asked                         string                            `json:"command_or_path"`
		Extra                         []struct{ Action, Target string } `json:"extra_rules"`
		Symlinks                      []struct{ Link, To string }
	}
	is.NoErr(json.Unmarshal([]byte(line), &c))
	rules := []policy.Rule{{Permission: c.Action, Pattern: c.Target}}
	for _, extra := range c.Extra {
		rules = append(rules, policy.Rule{Permission: extra.Action, Pattern: extra.Target})
	}
	for i := range rules {
		if action, permission, two := strings.Cut(rules[i].Permission, " "); two {
			rules[i].Action, rules[i].Permission = policy.Action(action), permission
		}
	}
	for _, s := range c.Symlinks {
		is.NoErr(os.MkdirAll(filepath.Dir(s.Link), 0o700))
		if strings.HasPrefix(s.To, workspace) {
			is.NoErr(os.MkdirAll(filepath.Dir(s.To), 0o700))
		}
		is.NoErr(os.Symlink(s.To, s.Link))
	}
	body, err := json.Marshal(rules)
	is.NoErr(err)
	stdout, _, err := policyTest(t, "", "--json", "--permission", c.Permission, "--cwd", c.Cwd, "--workspace", c.Cwd,
		"--rules", string(body), "--", c.Asked)
	is.NoErr(err)
	var got struct {
		Decision policy.Action
		Reason   string
	}
	is.NoErr(json.Unmarshal([]byte(stdout), &got))
	if got.Decision == policy.AskPerson && strings.Contains(got.Reason, "files of revisions") {
		return // git tracks nothing here, because the workspace is no repository
	}
	if string(got.Decision) != c.Expected {
		t.Errorf("%s: %q: %s (%s), want %s", c.ID, c.Asked, got.Decision, got.Reason, c.Expected)
	}
}

func TestPolicyTestShowsTheReasonAndASuggestedRule(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	stdout, stderr, err := policyTest(t, "", "git status && rm -rf /")
	is.NoErr(err) // whatever the decision
	is.Equal(stderr, "")
	is.Equal(stdout, "ask: no rule allows “rm -rf /”\n")

	stdout, _, err = policyTest(t, "", "git status")
	is.NoErr(err)
	is.Equal(stdout, "allow: a rule allows it: bash: git status*\n") // a default rule

	stdout, _, err = policyTest(t, "", "npm run build")
	is.NoErr(err)
	is.Equal(stdout, "ask: no rule allows “npm run build”\nto allow it: bash: npm run build *\n")

	stdout, _, err = policyTest(t, "ls |\n sh\n", "-", "--json", "--rules", "[]")
	is.NoErr(err)
	is.Equal(stdout, "{\n  \"decision\": \"ask\",\n  \"rule\": \"\",\n  \"reason\": \"no rule allows “ls”\"\n}\n")
}

func TestPolicyTestReadsRulesFromAFile(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	path := filepath.Join(t.TempDir(), "rules.json")
	is.NoErr(os.WriteFile(path, []byte(`[{"permission": "bash", "pattern": "make*"}, {"permission": "bash", "pattern": "ls; id"}, {"permission": "bash", "pattern": "rm*", "action": "deny"}]`), 0o600))
	for _, given := range []string{path, "@" + path} {
		stdout, stderr, err := policyTest(t, "", "make test && (rm x)", "--rules", given)
		is.NoErr(err)
		is.Equal(stdout, "deny: a rule denies it: deny bash: rm*\n")
		is.Equal(stderr, "pocketcoder: policy test: rule 2 (bash: ls; id) is invalid and ignored: column 3: ';' is shell syntax; a rule is for one command\n")
	}
}

func TestPolicyTestOfWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"ls", "id"}, {"ls", "--rules", "{}"}, {"ls", "--rules", "/nowhere/rules.json"},
		{"ls", "--rules", "[1]"}, {"ls", "--nonsense"}} {
		is := is.New(t)
		_, stderr, err := policyTest(t, "", args...)
		is.Equal(err, cli.ErrUsage)
		is.True(stderr != "") // says what is wrong
	}
	is := is.New(t)
	var errs strings.Builder
	env := cli.Environment{Stdout: &errs, Stderr: &errs, Getenv: func(string) string { return "" }}
	is.Equal(run(t.Context(), env, []string{"policy", "nonsense", "--data", t.TempDir()}), cli.ErrUsage)
	expect.Contains(t, errs.String(), `"nonsense"`)
	is.Equal(run(t.Context(), env, []string{"policy"}), cli.ErrUsage)
}

func TestPolicyTestFindsTheWorkspace(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	temp, ok := workspaces.RealPath(t.TempDir())
	is.True(ok)
	is.NoErr(os.MkdirAll(filepath.Join(temp, "real/src"), 0o700))
	is.NoErr(os.Symlink("real", filepath.Join(temp, "link")))
	for _, c := range [][]string{ // arguments, and what is decided
		{"allow", "--workspace", temp + "/link", "--cwd", temp + "/real/src"},
		{"allow", "--workspace", temp + "/link"},
		{"allow", "--cwd", temp + "/link"},
		{"allow", "--workspace", temp + "/absent"}, // it need not exist
		{"ask", "--workspace", temp + "/link", "--cwd", temp},
	} {
		stdout, _, err := policyTest(t, "", append([]string{"ls"}, c[1:]...)...)
		is.NoErr(err)
		is.Equal(strings.SplitN(stdout, ":", 2)[0], c[0])
	}
}

func TestPolicyRulesOfWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"allow"}, {"allow", "ls"}, {"allow", "bash: ls; id"}, {"allow", "deny bash: ls"}, {"deny", "bash:"}, {"ask", "bash: ls", "--for", "-1h"}, {"ask", "bash: ls", "--for", "soon"},
		{"allow", "bash: ls", "bash: id"}, {"allow", "doom_loop: *"},
	} {
		is := is.New(t)
		var errs strings.Builder
		env := cli.Environment{Stdout: &errs, Stderr: &errs, Getenv: func(string) string { return "" }}
		err := run(t.Context(), env, append([]string{"policy", args[0], "--data", "testdata/nothing-runs-here"}, args[1:]...))
		is.Equal(err, cli.ErrUsage) // args
		is.True(errs.String() != "")
	}
}
