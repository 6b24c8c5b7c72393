package policy

// detaching gives the rule that allows a command, which is allowed already, to run on by itself: one that begins with the word.
func (e *evaluation) detaching(c placedCommand) (rules []Rule, cause string) {
	words := append([]string{detach}, c.words...)
	for _, r := range e.rules {
		if r.allows("bash") && len(r.words) > 0 && r.words[0] == detach && matchWords(r.words, words) {
			return []Rule{r.Rule}, ""
		}
	}
	return nil, "no rule allows " + quoted(c.String()) + " to run on by itself: that takes one for “" + detach + " …” too"
}

// suggestDetached adds to the rules that would allow the commands those that let them run on by themselves.
func suggestDetached(rules []Rule, plain []command) []Rule {
	for _, c := range plain {
		patterns := suggestions(c.words, nil)
		if len(patterns) == 0 {
			return nil
		}
		rules = append(rules, Rule{Permission: "bash", Pattern: detach + " " + patterns[0], Action: Allow})
	}
	return rules
}
