// Package policy decides permission requests that need no person. It compares a request with the rules, and returns the
// verdict and the rules that it follows from. It does no I/O. A clock only ends an evaluation that takes too long.
//
// Promises:
//   - A request that no rule allows asks a person. Deny beats ask, and ask beats allow, whatever the order.
//   - A rule allows only requests of its own permission type.
//   - A command is parsed as bash parses it, and every simple command in it must be allowed. A command asks, whatever
//     the rules, if the parser cannot read all of it, or if it runs or writes more than its words show.
//   - Paths are compared by component after symlinks are resolved. Only a person allows writing the configuration of
//     programs or reading secrets.
//   - An address that a person could take for another one is refused.
//   - An evaluation ends after some seconds. If a part of the request is still unknown, it asks.
//
// It must not know how a request arrives, where rules are stored, or what happens after the verdict. Its packages bash
// and program know no rules.
package policy

import (
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/files"
)

// Action is the effect of a rule, and the verdict on a request.
type Action string

// Deny beats ask, and ask beats allow.
const (
	Allow     Action = "allow"
	AskPerson Action = "ask"
	Deny      Action = "deny"
)

// Rule is a rule for requests of one permission type that match its pattern.
type Rule struct {
	Permission string `json:"permission"`
	Pattern    string `json:"pattern"`
	Action     Action `json:"action,omitempty"`  // empty is allow
	ID         string `json:"id,omitempty"`      // <collection>/<record>; empty for rules that are not stored
	Version    uint64 `json:"version,omitempty"` // sequence of the event that stored it
}

// Input is a permission request as the policy evaluates it.
type Input struct {
	Type      string   // bash, edit, write, read, webfetch, network, task, mcp or a tool's own name, …
	Also      string   // also write, for an edit that replaces the whole file: a rule for either allows it
	Include   string   // grep: glob of the files to search; empty for all
	Patterns  []string // as OpenCode reports them
	Command   string   // bash: the whole command
	Path      string   // read, list, edit, write, grep, glob, lsp: absolute or relative to Cwd
	URL, Tool string
	// external_directory: the tool whose own request is decided for the same paths; empty when there is none
	Own     string
	Address string // network: host:port
	Refused string // a sentence that says why the request is denied, whatever the rules say
	Unsure  string // read: why the file is not known, for a person
	Hidden  string // why a part of the request is not known, for a person: then no rule allows it
	Cwd     string // absolute, symlinks resolved; empty if unknown, which makes the policy ask
	Root    string // the workspace, absolute, symlinks resolved

	// Resolve returns a path with its symlinks resolved. It resolves the part that exists and appends the rest. ok is
	// false if that fails. Nil leaves paths unchanged.
	Resolve func(path string) (real string, ok bool)

	// List returns at most so many names of a folder, none if it is not a folder. ok is false if the folder cannot be
	// read. Nil takes all folders as empty.
	List func(folder string, most int) (entries []files.Entry, ok bool)

	// Tracked returns the absolute paths of the files that git tracks in the repository around a folder; the path of a
	// submodule ends with a slash. ok is false if they are not known; then all files of the workspace count. Nil returns
	// false.
	Tracked func(folder string) (paths []string, ok bool)

	// Ignored reports whether ripgrep skips a path below Root because of an ignore file. It returns false in doubt. Nil
	// skips nothing.
	Ignored files.Ignored

	// Irregular returns what a resolved path is ("a FIFO") if it is neither a regular file nor a directory. Nil takes
	// every path as regular.
	Irregular func(real string) string

	// Visible reports whether a resolved path outside the workspace exists for OpenCode. Nil is for an OpenCode that is
	// not confined.
	Visible func(real string) bool

	Done <-chan struct{}  // ends the evaluation when it is closed, and a person decides; may be nil
	Now  func() time.Time // clock for the time limit of an evaluation; nil is time.Now

	budget *files.Budget // set when the evaluation begins
}

// How long an evaluation may take, and how many steps: about one for each name, line of an ignore file or tracked path
// that it compares.
const (
	maxTime  = 2 * time.Second
	maxSteps = 10_000_000
)

// bounded returns the request with a budget for one evaluation. It keeps an existing budget.
func (a Input) bounded() Input {
	if a.budget != nil {
		return a
	}
	now := a.Now
	if now == nil {
		now = time.Now
	}
	end := now().Add(maxTime)
	a.budget = files.NewBudget(maxSteps, func() bool {
		select {
		case <-a.Done:
			return true
		default:
			return now().After(end)
		}
	})
	return a
}

// workspace returns the file system of the request.
func (a Input) workspace() files.Workspace {
	return files.Workspace{Root: a.Root, Resolve: a.Resolve, List: a.List, Tracked: a.Tracked, Ignored: a.Ignored,
		Budget: a.budget}
}

// Verdict is the policy's verdict on a request.
type Verdict struct {
	Action Action
	Rules  []Rule // that decided; none if a built-in check did, or no rule matched
	Reason string // a sentence for a person
}

// CheckedRule is a rule that Explain has checked.
type CheckedRule struct {
	Rule    Rule
	Matched bool
	Why     string
}

// Evaluate returns the policy's verdict on a request.
func Evaluate(rules []Rule, a Input) Verdict {
	v, _ := Explain(rules, a)
	return v
}

// OwnTools are the names of PocketCoder's own tools (bridge/mcp) that are allowed by default. What they lead to has
// requests of its own, and send_file sends only what the rules for read allow.
var OwnTools = []string{"handoff", "assign", "send_message", "check_inbox", "list_workers", "check_worker",
	"stop_worker", "ask_person", "send_file", "propose", "mcp_status", "mcp_catalog", "mcp_request", "list_tasks"}

// AskedTools are the names of PocketCoder's own tools about which a person is asked by default: they change what
// runs later without a person.
var AskedTools = []string{"schedule_task", "pause_task", "resume_task", "cancel_task"}

// Defaults allow reading in the workspace, the model's own notes, and PocketCoder's own tools. Commands
// that run the project's code (go test, npm, make) need a rule of a person.
var Defaults = slices.Concat(ownTools(), []Rule{
	{Permission: events.KindRead, Pattern: Inside}, {Permission: events.KindList, Pattern: Inside},
	{Permission: events.KindGlob, Pattern: Inside}, {Permission: events.KindGrep, Pattern: Inside},
	{Permission: events.KindTodowrite, Pattern: "*"}, {Permission: events.KindTodoread, Pattern: "*"},
}, commands(
	"git status*", "git log*", "git diff*", "git show*", "git branch*", "git blame*", "git rev-parse*", "git ls-files*",
	"git describe*", "git shortlog*",
	"git remote*", "git tag*", "git grep*", "git merge-base*", "git stash list*",
	"cd*", "ls*", "cat*", "head*", "tail*", "wc*", "nl*", "cut*", "tr*", "sort*", "uniq*", "comm*", "diff*", "cmp*",
	"stat*", "file*", "du*", "tree*",
	"grep*", "rg*", "find*", "sed*", "jq*", "pwd*", "echo*", "printf*", "true*", "false*", "test*", "which*", "type*",
	"basename*", "dirname*", "realpath*", "readlink*",
	"date*", "uname*", "whoami*", "id*", "nproc*", "seq*", "md5sum*", "sha256sum*",
))

func ownTools() (rules []Rule) {
	for _, name := range OwnTools {
		rules = append(rules, Rule{Permission: events.KindMCP, Pattern: events.OwnTools + name})
	}
	return rules
}

func commands(patterns ...string) (rules []Rule) {
	for _, p := range patterns {
		rules = append(rules, Rule{Permission: events.KindBash, Pattern: p})
	}
	return rules
}
