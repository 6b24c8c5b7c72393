package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// bash decides about a command: every simple command in it, and every file the shell opens for it.
func (e *evaluation) bash() Verdict {
	a := e.ask
	s := readCommand(a.Command)
	if v, done := e.forbidCommand(s); done {
		return v
	}
	cause := s.cause
	if cause == "" {
		cause = e.settle(&s)
	}
	e.matching(Allow, []string{"bash"}, s.mentions)
	if cause != "" {
		return asked(cause)
	}
	var verdict = Verdict{Action: Allow}
	for _, c := range s.plain {
		rules, cause := e.allowing(c)
		if cause == "" && s.detached {
			var also []Rule
			also, cause = e.detaching(c)
			rules = append(rules, also...)
		}
		if cause != "" {
			return asked(cause)
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
func (s script) mentions(r *compiled) bool {
	return r.everything() || slices.ContainsFunc(s.all, func(words []string) bool {
		if strings.Contains(words[0], "/") {
			words = append([]string{path.Base(words[0])}, words[1:]...)
		}
		return matchCommand(r.words, words)
	})
}

// forbidCommand looks for rules that deny or ask, at every command anywhere in the text and every file it opens.
func (e *evaluation) forbidCommand(s script) (v Verdict, done bool) {
	a := e.ask
	return e.forbid([]string{"bash", "edit", "write", "read"}, func(r *compiled) bool {
		if r.Permission == "bash" || r.Permission == "*" {
			return s.mentions(r)
		}
		return slices.ContainsFunc(s.redirs, func(to redirect) bool {
			at, cause := a.locate(a.Cwd, to.target)
			return to.writes == writes(r.Permission) && (r.everything() || cause == "" && r.keeps(a.lower(at)))
		})
	})
}

func matchCommand(pattern, words []string) bool {
	return len(words) > 0 && (matchWords(pattern, words) || matchWords(pattern, withoutQuiet(words)))
}

// settle puts each command in the folders it may run in: a cd moves those behind it, for certain only behind &&.
func (e *evaluation) settle(s *script) (cause string) {
	a := e.ask
	switch {
	case a.Root == "":
		return "the workspace is not known"
	case a.Cwd == "":
		return "the folder it would run in is not known"
	case !within(a.Root, a.Cwd):
		return "it would run in " + quoted(a.Cwd) + ", outside the workspace"
	}
	in, ever, moved := []string{a.Cwd}, []string{a.Cwd}, false
	for i := range s.plain {
		c := &s.plain[i]
		if i > 0 && c.line != s.plain[i-1].line {
			in = ever
		}
		c.folder, c.moved = in, moved
		if len(c.words) == 0 || c.words[0] != "cd" {
			continue
		}
		next, cause := a.enter(in, c.words[1:])
		if cause != "" {
			return cause
		}
		moved = true
		if ever = union(ever, next); len(ever) > 16 { // each cd may double them
			return "it changes the folder more often than can be followed"
		}
		if c.sure {
			in = next
		} else {
			in = ever
		}
	}
	return ""
}

// enter gives the folders a cd leads to.
func (a Ask) enter(from, words []string) (folders []string, cause string) {
	if len(words) != 1 || strings.HasPrefix(words[0], "-") || words[0] == "" {
		return nil, quoted("cd "+strings.Join(words, " ")) + " leads where its words do not say"
	}
	for _, folder := range from {
		at, cause := a.locate(folder, words[0])
		switch {
		case cause != "":
			return nil, cause
		case !within(a.Root, at.real) || at.real != at.lexical && strings.Contains(words[0], ".."):
			return nil, quoted(words[0]) + " is outside the workspace"
		}
		folders = union(folders, []string{at.real})
	}
	return folders, ""
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// allowing gives the rules that allow a command and the files the shell opens for it, or the cause why they do not.
func (e *evaluation) allowing(c command) (rules []Rule, cause string) {
	cause = "no rule allows " + quoted(c.String())
	for _, r := range e.rules {
		if !r.allows("bash") || !matchCommand(r.words, c.words) {
			continue
		}
		k := check{ask: e.ask, words: c.words, in: c.folder, named: map[string]bool{}}
		for _, word := range r.words {
			k.named[word], k.named[strings.TrimRight(word, "*")] = true, true
		}
		if cause = k.cause(); cause == "" {
			cause = e.kept(&k)
		}
		if cause == "" {
			rules = append(rules, r.Rule)
			break
		}
	}
	for _, to := range c.redirs {
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
	var places []lowered
	for _, word := range k.words[1:] {
		for _, folder := range k.in {
			if at, cause := e.ask.locate(folder, word); cause == "" {
				places = append(places, e.ask.lower(at))
			}
		}
	}
	onlyReads := k.onlyReads()
	for _, r := range e.rules {
		if r.wrong != nil || r.action() == Allow || r.Permission != "read" && (!writes(r.Permission) || onlyReads) || r.Pattern == Inside || strings.Trim(r.Pattern, "*/") == "" {
			continue
		}
		if i := slices.IndexFunc(places, r.keeps); i >= 0 {
			return quoted(places[i].lexical) + " is what a rule keeps: " + r.String()
		}
	}
	return ""
}

// opening gives the rules that allow the shell to open a file.
func (e *evaluation) opening(c command, to redirect) (rules []Rule, cause string) {
	a := e.ask
	if c.moved && to.writes {
		return nil, "it changes the folder and then writes " + quoted(to.target)
	}
	permission, may := "read", a.mayRead
	if to.writes {
		permission, may = "write", a.mayWrite
	}
	for _, folder := range c.folder {
		at, cause := a.locate(folder, to.target)
		if cause == "" {
			cause = may(at)
		}
		if cause != "" {
			return nil, cause
		}
		i := slices.IndexFunc(e.rules, func(r *compiled) bool { return r.allows(permission) && r.path.matches(at.real, a.Root) })
		if i < 0 {
			return nil, fmt.Sprintf("no rule allows the shell to %s %s", permission, quoted(to.target))
		}
		e.looked[i].Matched, e.looked[i].Why = true, "matches "+quoted(to.target)
		rules = append(rules, e.rules[i].Rule)
	}
	return rules, ""
}
