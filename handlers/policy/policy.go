// Package policy decides which permission asks need no person: it compares an ask with allow rules, and says which
// rule allowed it. It is pure: no I/O, no clock; what it is given decides what it answers.
//
// Promises: what no rule matches is asked, never allowed. An empty rule matches nothing. An ask without a pattern is
// asked. A rule grants only its own permission type, and for a command only the command it names: a rule never reaches
// past a shell operator.
//
// It must not know how an ask arrives, where rules are stored, or what happens after.
package policy

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Ask is what OpenCode wants to do.
type Ask struct {
	Type     string   // bash, read, edit, …
	Patterns []string // what it concerns, as OpenCode found it
	Command  string   // bash: the whole command
	Paths    []string // read, list: the files behind the patterns, absolute, symlinks resolved; nil when that failed
	Root     string   // the workspace, absolute, symlinks resolved
}

// Rule allows asks of one permission type: those whose patterns equal Pattern, or begin with what stands before a
// closing "*". Inside is the pattern of the default rules: every path lies in the workspace.
type Rule struct {
	Permission string
	Pattern    string
}

// Inside, as a rule's pattern, matches what stays inside the workspace.
const Inside = "<workspace>"

// Defaults allow looking around inside the workspace, and the model's own notes.
var Defaults = []Rule{
	{"read", Inside}, {"list", Inside}, {"glob", Inside}, {"grep", Inside},
	{"todowrite", "*"}, {"todoread", "*"},
}

// ParseRule reads "permission: pattern", as a person writes it.
func ParseRule(s string) (Rule, error) {
	permission, pattern, found := strings.Cut(s, ":")
	r := Rule{Permission: strings.TrimSpace(permission), Pattern: strings.TrimSpace(pattern)}
	switch {
	case !found || r.Permission == "" || r.Pattern == "":
		return Rule{}, fmt.Errorf("parse rule %q: want \"permission: pattern\", such as \"bash: git status\"", s)
	case strings.Contains(strings.TrimSuffix(r.Pattern, "*"), "*"):
		return Rule{}, fmt.Errorf("parse rule %q: a * stands only at the end of the pattern", s)
	case strings.ContainsAny(r.Permission, "* "):
		return Rule{}, fmt.Errorf("parse rule %q: a rule is for one permission, without *", s)
	}
	return r, nil
}

func (r Rule) String() string { return r.Permission + ": " + r.Pattern }

// Evaluate gives the first rule that allows the ask; ok is false when a person must be asked.
func Evaluate(rules []Rule, a Ask) (rule Rule, ok bool) {
	for _, r := range rules {
		if r.allows(a) {
			return r, true
		}
	}
	return Rule{}, false
}

func (r Rule) allows(a Ask) bool {
	if r.Permission == "" || r.Permission != a.Type || r.Pattern == "" || len(a.Patterns) == 0 {
		return false
	}
	if r.Pattern == Inside {
		return a.inside()
	}
	if a.Type == "bash" {
		return r.allowsCommand(a.Command)
	}
	for _, p := range a.Patterns {
		if !r.matches(p) {
			return false
		}
	}
	return true
}

func (r Rule) matches(s string) bool {
	if prefix, open := strings.CutSuffix(r.Pattern, "*"); open {
		return strings.HasPrefix(s, prefix)
	}
	return s == r.Pattern
}

// shellSyntax are the bytes with which a command can become more than its words: operators, substitutions, redirects,
// quotes, globs, comments, assignments and line ends. A "*" rule speaks only of plain words.
const shellSyntax = ";&|<>$`(){}[]*?!#~=\\\"'\n\r\t\v\f\x00"

// allowsCommand compares the whole command, not the patterns OpenCode cut out of it. A word before the "*" is a whole
// word: "ls*" is about ls, not lsof.
func (r Rule) allowsCommand(command string) bool {
	prefix, open := strings.CutSuffix(r.Pattern, "*")
	if !open {
		return command == r.Pattern
	}
	prefix = strings.TrimSuffix(prefix, " ")
	if prefix == "" || strings.ContainsAny(command, shellSyntax) {
		return false
	}
	return command == prefix || strings.HasPrefix(command, prefix+" ")
}

// inside says whether an ask about looking stays in the workspace: by real path for files, by pattern for searches,
// whose directory OpenCode asks about separately when it lies outside.
func (a Ask) inside() bool {
	if a.Type == "glob" || a.Type == "grep" {
		for _, p := range a.Patterns {
			if a.Type == "glob" && (filepath.IsAbs(p) || strings.Contains(p, "..")) {
				return false
			}
		}
		return true
	}
	if a.Root == "" || len(a.Paths) != len(a.Patterns) {
		return false
	}
	for _, p := range a.Paths {
		rel, err := filepath.Rel(a.Root, p)
		if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
			return false
		}
	}
	return true
}
