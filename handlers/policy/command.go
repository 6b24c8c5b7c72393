package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/bash"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// bash evaluates a command: every simple command in it, and every file that the shell opens for it.
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
	e.matching(Allow, []string{events.KindBash}, func(r *compiledRule) bool { return mentions(s, r) })
	if cause != "" {
		return askFor(cause)
	}
	var verdict = Verdict{Action: Allow}
	for _, c := range commands {
		rules, cause := e.commandRules(c)
		if cause == "" && s.Detached {
			var also []Rule
			also, cause = e.detachRules(c)
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

// mentions reports whether a rule that allows matches any simple command of the text.
func mentions(s bash.Script, r *compiledRule) bool {
	return slices.ContainsFunc(s.All, func(words []string) bool {
		if strings.Contains(words[0], "/") {
			words = append([]string{path.Base(words[0])}, words[1:]...)
		}
		return matchCommand(r.words, words)
	})
}

// forbids reports whether a rule that denies or asks matches any simple command of the text, or the whole text.
func forbids(s bash.Script, text string, r *compiledRule) bool {
	return r.coversAll() || program.Glob(strings.Join(r.words, " "), text) ||
		slices.ContainsFunc(s.All, func(words []string) bool { return matchesWidely(r.words, words) })
}

// forbidCommand evaluates the rules that deny or ask, for every simple command of the text and every file that it
// opens.
func (e *evaluation) forbidCommand(s bash.Script) (v Verdict, done bool) {
	a := e.ask
	text := strings.Join(strings.Fields(a.Command), " ")
	types := []string{events.KindBash, events.KindEdit, events.KindWrite, events.KindRead}
	return e.forbid(types, func(r *compiledRule) bool {
		if r.Permission == events.KindBash || r.Permission == "*" {
			return forbids(s, text, r)
		}
		return slices.ContainsFunc(s.Redirects, func(to bash.Redirect) bool {
			at, cause := a.workspace().Locate(a.Cwd, to.Target)
			return to.Writes == writes(r.Permission) && (r.coversAll() || cause == "" && r.covers(a.lower(at)))
		})
	})
}

func matchCommand(pattern, words []string) bool {
	return len(words) > 0 && (matchesNarrowly(pattern, words) || matchesNarrowly(pattern, program.WithoutQuiet(words)))
}

// commandRules returns the rules that allow a command and the files that the shell opens for it. cause is why they do
// not.
func (e *evaluation) commandRules(c bash.LocatedCommand) (rules []Rule, cause string) {
	cause = "no rule allows " + display.Quote(c.Text)
	for _, r := range e.rules {
		if !r.allows(events.KindBash) || !matchCommand(r.words, c.Words) {
			continue
		}
		k := check{Call: program.Call{Words: c.Words, Named: wordSet(r.words), Piped: c.Piped}, ask: e.ask, in: c.Folders}
		if cause = k.cause(); cause == "" {
			cause = e.protectedArgument(&k)
		}
		if cause == "" {
			cause = e.treeCause(&k)
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
		opened, cause = e.redirectRules(c, to)
		rules = append(rules, opened...)
	}
	return rules, cause
}

// protectedArgument returns why an argument names a file that another rule protects from reading, or from writing if
// the program may write.
func (e *evaluation) protectedArgument(k *check) string {
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

// protected returns a function that says why a rule protects a location from reading, or with alsoWrites from writing.
// It returns nil if there is no such rule. A rule that covers all files is meant for other tools. It is skipped,
// because it would make every command ask.
func (e *evaluation) protected(alsoWrites bool) func(files.Location) (cause string) {
	var rules []*compiledRule
	for _, r := range e.rules {
		keeps := r.Permission == events.KindRead || writes(r.Permission) && alsoWrites
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
			if r.covers(low) {
				return display.QuotePath(low.Lexical) + " is protected by a rule: " + r.String()
			}
		}
		return ""
	}
}

// redirectRules returns the rules that allow the shell to open a file.
func (e *evaluation) redirectRules(c bash.LocatedCommand, to bash.Redirect) (rules []Rule, cause string) {
	a := e.ask
	if c.Moved && to.Writes {
		return nil, "it changes the folder and then writes " + display.Quote(to.Target)
	}
	permission, may := events.KindRead, a.workspace().MayRead
	if to.Writes {
		permission, may = events.KindWrite, a.workspace().MayWrite
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

// detachRules returns the rule that allows an allowed command to run detached. Its pattern begins with the word detach.
func (e *evaluation) detachRules(c bash.LocatedCommand) (rules []Rule, cause string) {
	words := append([]string{bash.DetachWord}, c.Words...)
	for _, r := range e.rules {
		if r.allows(events.KindBash) && len(r.words) > 0 && r.words[0] == bash.DetachWord &&
			matchesNarrowly(r.words, words) {
			return []Rule{r.Rule}, ""
		}
	}
	return nil, "no rule allows " + display.Quote(c.Text) + " to run on by itself: that takes one for “" +
		bash.DetachWord + " …” too"
}

// suggestDetached adds, for each suggested rule, the rule that allows the command to run detached.
func suggestDetached(rules []Rule, plain []bash.Command) []Rule {
	for _, c := range plain {
		patterns := suggestions(c.Words, nil)
		if len(patterns) == 0 {
			return nil
		}
		rules = append(rules,
			Rule{Permission: events.KindBash, Pattern: bash.DetachWord + " " + patterns[0], Action: Allow})
	}
	return rules
}
