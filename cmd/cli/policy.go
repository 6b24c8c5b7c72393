package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/datadir"
	"pocketcoder/events"
	workspaces "pocketcoder/handlers/permission/workspace"
	"pocketcoder/handlers/policy"
)

const policyUsage = `
  pocketcoder policy allow RULE      allow matching requests from now on; deny RULE and ask RULE too
  pocketcoder policy test 'CMD'      what the rules decide about a command, a file, an address or a tool, and why
  pocketcoder policy replay RULE     what a rule would have allowed so far
  pocketcoder policy list            the rules of the running system, and who created them; --all shows the built-in ones too
  pocketcoder policy why [REQUEST]   explain how a request was decided and why, and what ran then

Examples:

  pocketcoder policy allow 'bash: npm run build*'           every chat may run it
  pocketcoder policy allow 'edit: docs/**' --for 1h         for an hour
  pocketcoder policy deny 'bash: git push*'                 refused without a request
  pocketcoder policy ask 'read: customers/**' --chat ID     one chat asks before it reads these files
  pocketcoder policy disable tool_permissions/8f3kq0z2m4c6x1a   the rule is not used any more
  pocketcoder policy delete tool_permissions/8f3kq0z2m4c6x1a    its decisions stay in the log

ID is one of "policy list": COLLECTION/ID, or that of a record of tool_permissions. A rule applies to new requests. allow,
ask, deny, test, replay, list and why explain themselves with -h.
`

// Policies is the command policy.
var Policies = Group{Name: "policy", Usage: policyUsage, NoCreate: true,
	Former: map[string]string{"pause": "disable", "resume": "enable", "revoke": "delete"},
	Separate: map[string]Command{
		"test":   runPolicyTest,
		"replay": runPolicyReplay,
		"allow":  ruleAdder(policy.Allow),
		"ask":    ruleAdder(policy.AskPerson),
		"deny":   ruleAdder(policy.Deny),
		"list":   runPolicyList,
		"why":    runWhy,
	}}

const policyTestUsage = `pocketcoder policy test 'CMD': what the rules decide about a command, and why. It runs nothing. It uses the rules of the
system that runs on --data, or the default rules if no system runs.

  pocketcoder policy test 'git status && rm -rf /'
  pocketcoder policy test 'npm run build -- --watch' --rules '[{"permission": "bash", "pattern": "npm run build*"}]'
  pocketcoder policy test 'git push -f' --rules rules.json --json
  pocketcoder policy test src/main.go --permission edit --rules '[{"permission": "edit", "pattern": "src/**"}]'
  pocketcoder policy test https://docs.example.org/a --permission webfetch
  pocketcoder policy test api.example.org:443 --permission network
  pocketcoder policy test - < script.sh            the command is read from stdin

A rule is {"permission", "pattern", "action"}. The action is allow (the default), ask or deny. Deny beats ask, and ask beats
allow, whatever their order. A request that no rule allows asks a person.

  bash              git status*       the words of one command; * at the end is any further words. ls* does not allow lsof
  read edit write   docs/**           files: * is any name, ** any folders; relative to the workspace, or absolute;
                                      <workspace> is the whole workspace. write is a file that the shell opens: > docs/a.md
  webfetch          https://docs.example.org/*
  network           *.example.org     a host that a command connects to, on ports 80 and 443; host:port for another port;
                                      *.example.org matches all names below example.org
  mcp task          github_list       exactly this tool or subagent

In a rule that denies or asks, * is any characters: "deny bash: npm run deploy*" also denies npm run deploy:prod. Options
between the words, redirects and variables before the command do not prevent a match, and * may span several commands.

Rules must allow every simple command of a line. Some commands ask whatever the rules say, because they run other programs,
or read or write files that their words do not name: sh, sudo, xargs, $(…), find -exec, sort -o, .git, .env and others.

--json prints {"decision", "rule", "reason"}: the decision is allow, ask or deny; the rule is empty if no rule decided.

Exit status: 0 whatever the decision; 1 when it failed, 2 for wrong usage. An invalid rule is reported on stderr and ignored.
`

// policyAnswer is the output of policy test.
type policyAnswer struct {
	Decision policy.Action `json:"decision"`
	Rule     string        `json:"rule"` // rules of a compound command are separated by ", "
	Reason   string        `json:"reason"`
}

func runPolicyTest(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "policy test", policyTestUsage)
	at := ServerFlags(fs, env)
	permission := fs.String("permission", events.KindBash,
		"`type` of the request: bash, read, edit, write, webfetch, network, mcp, task, …")
	cwd := fs.String("cwd", "", "`directory` in which the command would run; default the workspace")
	workspace := fs.String("workspace", "", "`directory` the assistant works in; --cwd by default, or the current directory")
	given := fs.String("rules", "", "`rules` instead of the stored ones: a JSON array, or the path of a file with one")
	asJSON := fs.Bool("json", false, "print JSON")
	request, err := ParseOne(fs, args, "name the request, for example 'git status'")
	if err != nil {
		return err
	}
	if request == "-" {
		body, err := io.ReadAll(env.Stdin)
		if err != nil {
			return fmt.Errorf("read stdin: %w", err)
		}
		request = strings.TrimSuffix(string(body), "\n")
	}
	rules, err := policyRules(ctx, env, *at, *given)
	if err != nil {
		return err
	}
	in, err := newRequest(*permission, request, *cwd, *workspace)
	if err != nil {
		return err
	}
	v := policy.Evaluate(rules, in)
	if *asJSON {
		return PrintJSON(env.Stdout, policyAnswer{v.Action, ruleNames(v.Rules), v.Reason})
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: %s\n", v.Action, v.Reason)
	if suggested := policy.Suggest(in, nil); err == nil && v.Action == policy.AskPerson && len(suggested) > 0 {
		_, err = fmt.Fprintf(env.Stdout, "to allow it: %s\n", ruleNames(suggested))
	}
	return err
}

// policyRules returns the rules of --rules, or else of the running system, or else the built-in ones. It reports
// invalid rules on stderr.
func policyRules(ctx context.Context, env Environment, at client.Address, given string) ([]policy.Rule, error) {
	if given == "" {
		return runningRules(ctx, at)
	}
	body := []byte(given)
	if !strings.HasPrefix(strings.TrimSpace(given), "[") {
		var err error
		if body, err = os.ReadFile(strings.TrimPrefix(given, "@")); err != nil {
			return nil, WrongUsage(env, "policy test: --rules: %v", err)
		}
	}
	var rules []policy.Rule
	if err := json.Unmarshal(body, &rules); err != nil {
		return nil, WrongUsage(env, `policy test: --rules: want [{"permission": "bash", "pattern": "git status*"}, …]: %v`, err)
	}
	for i, r := range rules {
		if err := r.Check(); err != nil {
			fmt.Fprintf(env.Stderr, "pocketcoder: policy test: rule %d (%s) is invalid and ignored: %v\n", i+1, r, err)
		}
	}
	return rules, nil
}

// runningRules returns the rules of the running system, or the built-in ones if no system runs.
func runningRules(ctx context.Context, at client.Address) ([]policy.Rule, error) {
	s, err := client.Connect(ctx, at)
	if errors.Is(err, datadir.ErrNotRunning) {
		return policy.Defaults, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Rules(ctx)
}

// newRequest returns a request as OpenCode would make it.
func newRequest(permission, request, cwd, workspace string) (policy.Input, error) {
	switch {
	case workspace == "" && cwd == "":
		cwd, workspace = ".", "."
	case cwd == "":
		cwd = workspace
	case workspace == "":
		workspace = cwd
	}
	a := policy.Input{Type: permission, Patterns: []string{request}, Path: request, URL: request, Address: request,
		Resolve: workspaces.RealPath, List: workspaces.ListFolder, Tracked: workspaces.TrackedFiles}
	switch permission {
	case events.KindBash:
		a.Command = request
	case events.KindMCP:
		a.Tool = request
	case events.KindGlob, events.KindGrep: // the argument is a pattern, not a path
		a.Path = ""
	}
	var root, folder bool
	a.Root, root = workspaces.RealPath(datadir.Absolute(workspace))
	a.Cwd, folder = workspaces.RealPath(datadir.Absolute(cwd))
	a.Ignored = workspaces.IgnoredBelow(a.Root)
	if !root || !folder {
		return a, fmt.Errorf("resolve %s and %s: a symlink is broken, or a directory cannot be read", workspace,
			cwd)
	}
	return a, nil
}

func ruleNames(rules []policy.Rule) string {
	var names []string
	for _, r := range rules {
		names = append(names, r.String())
	}
	return strings.Join(names, ", ")
}
