package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"pocketcoder/handlers/policy/bash"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// bash decides about a command: every simple command in it, and every file the shell opens for it.
func (e *evaluation) bash() Verdict {
	a := e.ask
	s := bash.Read(a.Command)
	if v, done := e.forbidCommand(s); done {
		return v
	}
	cause, commands := s.Cause, []bash.LocatedCommand(nil)
	if cause == "" {
		commands, cause = s.Follow(a.workspace(), a.Cwd)
	}
	e.matching(Allow, []string{"bash"}, func(r *compiledRule) bool { return mentions(s, r) })
	if cause != "" {
		return askFor(cause)
	}
	var verdict = Verdict{Action: Allow}
	for _, c := range commands {
		rules, cause := e.allowing(c)
		if cause == "" && s.Detached {
			var also []Rule
			also, cause = e.detaching(c)
			rules = append(rules, also...)
		}
		if cause != "" {
			return askFor(cause)
		}
		for _, r := range rules {
			if !slices.Contains(verdict.Rules, r) {
				verdict.Rules = append(verdict.Rules, r)
			}
		}
	}
	var names []string
	for _, r := range verdict.Rules {
		names = append(names, r.String())
	}
	verdict.Reason = "rules allow all of it: " + strings.Join(names, ", ")
	if len(names) == 1 {
		verdict.Reason = "a rule allows it: " + names[0]
	}
	return verdict
}

// mentions says whether a rule matches a command anywhere in the text.
func mentions(s bash.Script, r *compiledRule) bool {
	return r.everything() || slices.ContainsFunc(s.All, func(words []string) bool {
		if strings.Contains(words[0], "/") {
			words = append([]string{path.Base(words[0])}, words[1:]...)
		}
		return matchCommand(r.words, words)
	})
}

// forbidCommand looks for rules that deny or ask, at every command anywhere in the text and every file it opens.
func (e *evaluation) forbidCommand(s bash.Script) (v Verdict, done bool) {
	a := e.ask
	return e.forbid([]string{"bash", "edit", "write", "read"}, func(r *compiledRule) bool {
		if r.Permission == "bash" || r.Permission == "*" {
			return mentions(s, r)
		}
		return slices.ContainsFunc(s.Redirects, func(to bash.Redirect) bool {
			at, cause := a.workspace().Locate(a.Cwd, to.Target)
			return to.Writes == writes(r.Permission) && (r.everything() || cause == "" && r.keeps(a.lower(at)))
		})
	})
}

func matchCommand(pattern, words []string) bool {
	return len(words) > 0 && (matchWords(pattern, words) || matchWords(pattern, program.WithoutQuiet(words)))
}

// allowing gives the rules that allow a command and the files the shell opens for it, or the cause why they do not.
func (e *evaluation) allowing(c bash.LocatedCommand) (rules []Rule, cause string) {
	cause = "no rule allows " + display.Quote(c.String())
	for _, r := range e.rules {
		if !r.allows("bash") || !matchCommand(r.words, c.Words) {
			continue
		}
		k := check{Call: program.Call{Words: c.Words, Named: map[string]bool{}, Piped: c.Piped}, ask: e.ask, in: c.Folders}
		for _, word := range r.words {
			k.Named[word], k.Named[strings.TrimRight(word, "*")] = true, true
		}
		if cause = k.cause(); cause == "" {
			cause = e.kept(&k)
		}
		if cause == "" {
			cause = e.below(&k)
		}
		if cause == "" {
			rules = append(rules, r.Rule)
			break
		}
	}
	for _, to := range c.Redirects {
		if cause != "" {
			break
		}
		var opened []Rule
		opened, cause = e.opening(c, to)
		rules = append(rules, opened...)
	}
	return rules, cause
}

// kept looks whether an argument names a file that another rule keeps from being read, or, by a program that may write,
// from being written.
func (e *evaluation) kept(k *check) string {
	protected := e.protected(!k.OnlyReads())
	if protected == nil {
		return ""
	}
	places := k.places
	for _, word := range k.Words[1:] {
		for _, folder := range k.in {
			if at, cause := e.ask.workspace().Locate(folder, word); cause == "" {
				places = append(places, at)
			}
		}
	}
	for _, at := range places {
		if cause := protected(at); cause != "" {
			return cause
		}
	}
	return ""
}

// protected returns a function that says why a rule keeps a place from being read, or, with alsoWrites, from being
// written. It returns nil when there is no such rule. Rules that keep all files are for other tools: they would ask
// for every command.
func (e *evaluation) protected(alsoWrites bool) func(files.Location) (cause string) {
	var rules []*compiledRule
	for _, r := range e.rules {
		keeps := r.Permission == "read" || writes(r.Permission) && alsoWrites
		if keeps && r.wrong == nil && r.action() != Allow && r.Pattern != Inside && strings.Trim(r.Pattern, "*/") != "" {
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return nil
	}
	return func(at files.Location) string {
		low := e.ask.lower(at)
		for _, r := range rules {
			if r.keeps(low) {
				return display.QuotePath(low.Lexical) + " is protected by a rule: " + r.String()
			}
		}
		return ""
	}
}

// opening gives the rules that allow the shell to open a file.
func (e *evaluation) opening(c bash.LocatedCommand, to bash.Redirect) (rules []Rule, cause string) {
	a := e.ask
	if c.Moved && to.Writes {
		return nil, "it changes the folder and then writes " + display.Quote(to.Target)
	}
	permission, may := "read", a.workspace().MayRead
	if to.Writes {
		permission, may = "write", a.workspace().MayWrite
	}
	for _, folder := range c.Folders {
		at, cause := a.workspace().Locate(folder, to.Target)
		if cause == "" {
			cause = may(at)
		}
		if cause != "" {
			return nil, cause
		}
		i := slices.IndexFunc(e.rules, func(r *compiledRule) bool {
			return r.allows(permission) && r.path.matches(at.Real, a.Root)
		})
		if i < 0 {
			return nil, fmt.Sprintf("no rule allows the shell to %s %s", permission, display.Quote(to.Target))
		}
		e.looked[i].Matched, e.looked[i].Why = true, "matches "+display.Quote(to.Target)
		rules = append(rules, e.rules[i].Rule)
	}
	return rules, ""
}
