package policy

import "strings"

// detach is the word in front of a command that runs on by itself, while whoever asked for it does not wait.
const detach = "detach"

// Detached gives what stands behind "detach " at the very beginning of a command. Anywhere else, and however it is quoted
// otherwise, the word is the name of a program that there is not.
func Detached(command string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(command, detach+" ")
	return rest, ok && strings.TrimSpace(rest) != ""
}

// readCommand reads a command's text. Of one that is detached it reads what runs; rules that deny or ask see each of its
// commands both with the word and without.
func readCommand(text string) script {
	rest, detached := Detached(text)
	if !detached {
		return readScript(text)
	}
	s := readScript(rest)
	s.detached = true
	for _, words := range s.all[:len(s.all):len(s.all)] {
		s.all = append(s.all, append([]string{detach}, words...))
	}
	return s
}

// detaching gives the rule that allows a command, which is allowed already, to run on by itself: one that begins with the word.
func (e *evaluation) detaching(c command) (rules []Rule, cause string) {
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
