package policy

import (
	"pocketcoder/handlers/policy/bash"
	"pocketcoder/handlers/policy/display"
)

// detachRules returns the rule that allows an allowed command to run detached. Its pattern begins with the word detach.
func (e *evaluation) detachRules(c bash.LocatedCommand) (rules []Rule, cause string) {
	words := append([]string{bash.DetachWord}, c.Words...)
	for _, r := range e.rules {
		if r.allows("bash") && len(r.words) > 0 && r.words[0] == bash.DetachWord && matchesNarrowly(r.words, words) {
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
		rules = append(rules, Rule{Permission: "bash", Pattern: bash.DetachWord + " " + patterns[0], Action: Allow})
	}
	return rules
}
