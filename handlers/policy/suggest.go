package policy

import (
	"path"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/bash"
	"pocketcoder/handlers/policy/files"
	"pocketcoder/handlers/policy/program"
)

// Suggest returns the smallest sensible rules that would have allowed a request, besides Defaults. For a command it
// suggests one rule for each simple command that Defaults do not allow, and prefers OpenCode's own proposals (always,
// such as "git push *"). It returns nil if no rules would allow the request.
func Suggest(a Input, always []string) []Rule {
	a = a.bounded() // one budget for all tries
	var rules []Rule
	switch t := a.Type; {
	case about(t) == events.AboutCommand:
		rules = suggestCommands(a, always)
	case about(t) == events.AboutPath:
		if at, cause := a.workspace().Locate(a.Cwd, a.Path); cause == "" {
			if pattern := suggestPath(a, at); pattern != "" {
				rules = []Rule{{Permission: t, Pattern: pattern}}
			}
		}
	case about(t) == events.AboutSearch:
		rules = []Rule{{Permission: t, Pattern: Inside}}
	case about(t) == events.AboutURL:
		if u, cause := readURL(a.URL); cause == "" {
			host := u.host
			if _, port := SplitPort(strings.SplitN(a.URL, "/", 4)[2]); port != "" {
				host += ":" + port
			}
			rules = []Rule{{Permission: t, Pattern: u.scheme + "://" + host + "/*"}}
		}
	case about(t) == events.AboutHost:
		if at, err := ParseAddress(a.Address); err == nil {
			rules = []Rule{{Permission: t, Pattern: at.String()}}
			if at.Web() {
				rules[0].Pattern = Bracketed(at.Host)
			}
		}
	case about(t) == events.AboutNothing:
		rules = []Rule{{Permission: t, Pattern: "*"}}
	case t == events.KindTask, t == events.KindSkill:
		for _, name := range a.Patterns {
			rules = append(rules, Rule{Permission: t, Pattern: name})
		}
		rules = rules[:min(1, len(rules))]
	case a.Tool != "":
		rules = []Rule{{Permission: events.KindMCP, Pattern: a.Tool}}
	default:
		rules = []Rule{{Permission: events.KindMCP, Pattern: t}}
	}
	for i := range rules {
		rules[i].Action = Allow
	}
	if len(rules) == 0 || Evaluate(append(slices.Clone(Defaults), rules...), a).Action != Allow {
		return nil
	}
	return rules
}

// suggestPath suggests a pattern for the files in the folder of a file, or for the file alone if the folder is the
// workspace itself. It suggests nothing for a name with *.
func suggestPath(a Input, at files.Location) string {
	folder := path.Dir(at.Real)
	switch {
	case strings.Contains(at.Real, "*"):
		return ""
	case !files.Within(a.Root, at.Real):
		return at.Real
	case folder == a.Root:
		return strings.TrimPrefix(at.Real, a.Root+"/")
	}
	return strings.TrimPrefix(folder, a.Root+"/") + "/*"
}

// suggestCommands tries the patterns for each simple command, from the most general to the exact one, and takes the
// first that allows the command.
func suggestCommands(a Input, always []string) (rules []Rule) {
	s := bash.Read(a.Command)
	if s.Cause != "" {
		return nil
	}
	commands, cause := s.Follow(a.workspace(), a.Cwd)
	if cause != "" {
		return nil
	}
	for _, c := range commands {
		if permitted(a, c, rules) {
			continue
		}
		patterns := suggestions(c.Words, always)
		i := slices.IndexFunc(patterns, func(pattern string) bool {
			return permitted(a, c, []Rule{{Permission: events.KindBash, Pattern: pattern}})
		})
		if i < 0 {
			return nil
		}
		rules = append(rules, Rule{Permission: events.KindBash, Pattern: patterns[i], Action: Allow})
	}
	if s.Detached {
		return suggestDetached(rules, s.Plain)
	}
	return rules
}

// permitted reports whether these rules and Defaults allow one command.
func permitted(a Input, c bash.LocatedCommand, rules []Rule) bool {
	e := evaluation{ask: a}
	for _, r := range slices.Concat(Defaults, rules) {
		e.rules = append(e.rules, compile(r))
	}
	e.looked = make([]CheckedRule, len(e.rules))
	_, cause := e.commandRules(c)
	return cause == ""
}

// suggestions returns patterns for a command: OpenCode's patterns that match it and name more than the program, then
// its first words, one more each time, and last the whole command.
func suggestions(words []string, always []string) (patterns []string) {
	for _, p := range always {
		if pattern, wrong := bashPattern(p); wrong == nil && len(pattern) > 0 && pattern[0] != "*" &&
			matchCommand(pattern, words) {
			patterns = append(patterns, p)
		}
	}
	words = program.WithoutQuiet(words)
	least := 1 // number of words that name the action
	if program.TakesSubCommand(words[0]) {
		least = 2
	}
	if len(words) > 1 && slices.Contains([]string{"run", "run-script", "compose"}, words[1]) {
		least = 3
	}
	var shown []string
	for _, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\"'*;&|<>()$`\n") {
			break
		}
		if shown = append(shown, w); len(shown) >= least {
			patterns = append(patterns, strings.Join(shown, " ")+" *")
		}
	}
	if len(shown) == len(words) {
		patterns = append(patterns, strings.Join(shown, " "))
	}
	return patterns
}
