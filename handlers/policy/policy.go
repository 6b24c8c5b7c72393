// Package policy decides which permission asks need no person: it compares an ask with the rules people made, and says
// which rules decided, or why none could. It does no I/O, and a clock only ends an evaluation that takes too long:
// what it is given decides what it answers.
//
// Promises: what no rule allows is asked. Deny beats ask beats allow, whatever the order. A rule grants only its own
// permission type. A command is read as bash reads it, and every simple command in it must be allowed; what the engine
// cannot read in full, or what runs or writes more than its words say, is asked, whatever the rules. Paths are
// compared by component after symlinks are resolved; what configures programs is never written, and secrets are never
// read, without a person. An evaluation ends after some seconds, whatever the ask and the workspace are: what is not
// found out by then is asked.
//
// It must not know how an ask arrives, where rules are stored, or what happens after. Package bash reads commands,
// package program knows programs, package files finds where paths lead, and package hostport reads addresses: none of
// them knows rules.
package policy

import (
	"time"

	"pocketcoder/handlers/policy/files"
)

// Action is what a rule says about asks that match it, and what the policy says about an ask.
type Action string

// Deny beats ask, and ask beats allow.
const (
	Allow     Action = "allow"
	AskPerson Action = "ask"
	Deny      Action = "deny"
)

// Rule is about the asks of one permission type that match its pattern.
type Rule struct {
	Permission string `json:"permission"`
	Pattern    string `json:"pattern"`
	Action     Action `json:"action,omitempty"`  // empty is allow
	ID         string `json:"id,omitempty"`      // <collection>/<record>; empty when built in or given at the start
	Version    uint64 `json:"version,omitempty"` // sequence of the event that made it so
}

// Ask is what OpenCode, or a person by a command, wants to do.
type Ask struct {
	Type      string   // bash, edit, write, read, webfetch, network, task, mcp or a tool's own name, …
	Also      string   // write, of an edit that writes the whole file: rules that allow either allow it
	Include   string   // grep: which files are searched, as a glob of ripgrep; empty is all
	Patterns  []string // what it concerns, as OpenCode found it
	Command   string   // bash: the whole command
	Path      string   // read, list, edit, write, grep, glob, lsp: absolute or relative to Cwd
	URL, Tool string
	// external_directory: the tool whose own request is decided for the same paths; empty when there is none
	Own     string
	Address string // network: host:port
	Refused string // a sentence that says why the request is denied, whatever the rules say
	Unsure  string // read: why the file is not known, for a person
	Cwd     string // absolute, symlinks resolved; empty when it is not known: what depends on it is asked
	Root    string // the workspace, absolute, symlinks resolved

	// Resolve gives an absolute, clean path with its symlinks resolved: of what exists, the rest is appended. ok is false
	// when that failed. Nil takes paths as they are.
	Resolve func(path string) (real string, ok bool)

	// List returns the names in a folder, at most so many, and none for what is no folder. ok is false when a folder
	// cannot be read. Nil takes all folders as empty.
	List func(folder string, most int) (entries []files.Entry, ok bool)

	// Tracked returns the absolute paths of the files that git tracks in the repository around a folder; that of a
	// submodule has a slash at its end. ok is false when they are not known, as they are with nil: then all files of the
	// workspace count.
	Tracked func(folder string) (paths []string, ok bool)

	// Ignored reports whether ripgrep skips a path below Root because an ignore file names it. It returns false in doubt.
	// Nil skips nothing.
	Ignored files.Ignored

	// Irregular returns what a resolved path is ("a FIFO") when it is neither a regular file nor a directory. Nil takes
	// every path as regular.
	Irregular func(real string) string

	// Visible reports whether a resolved path outside the workspace exists for OpenCode. Nil is for an OpenCode that is
	// not confined.
	Visible func(real string) bool

	Done <-chan struct{}  // when it is closed, the evaluation ends and the ask is for a person; nil never ends it
	Now  func() time.Time // by which an evaluation ends that takes too long; nil is time.Now

	budget *files.Budget // nil until the evaluation begins
}

// How long an evaluation may take, and how many steps: about one for each name, line of an ignore file or tracked path
// that it compares.
const (
	maxTime  = 2 * time.Second
	maxSteps = 10_000_000
)

// bounded returns the ask with the budget of one evaluation. It keeps a budget that the ask has already.
func (a Ask) bounded() Ask {
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

// workspace returns the file system as the caller shows it.
func (a Ask) workspace() files.Workspace {
	return files.Workspace{Root: a.Root, Resolve: a.Resolve, List: a.List, Tracked: a.Tracked, Ignored: a.Ignored,
		Budget: a.budget}
}

// Verdict is what the policy says about an ask.
type Verdict struct {
	Action Action
	Rules  []Rule // that decided: several for a compound command; none when the engine's own checks did or nothing matched
	Reason string // one sentence a person understands
}

// CheckedRule is one rule that Explain looked at.
type CheckedRule struct {
	Rule    Rule
	Matched bool
	Why     string
}

// Evaluate says what the rules make of an ask.
func Evaluate(rules []Rule, a Ask) Verdict {
	v, _ := Explain(rules, a)
	return v
}
