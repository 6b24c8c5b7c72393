package policy

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"pocketcoder/handlers/policy/program"
)

// shellSyntax are the characters with which a command becomes more than its words.
const (
	shellSyntax = ";&|<>()$`\n\r"
	syntaxBytes = shellSyntax + `'"`
)

// bashPattern splits a command pattern into words, as the shell does with blanks and quotes. It keeps *.
func bashPattern(s string) (words []string, wrong *SyntaxError) {
	if !strings.ContainsAny(s, syntaxBytes) {
		return strings.Fields(s), nil
	}
	var word strings.Builder
	var quote rune
	started, opened, column := false, 0, 0
	end := func() {
		if started {
			words = append(words, word.String())
		}
		word.Reset()
		started = false
	}
	for _, c := range s {
		column++
		switch {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, opened, started = c, column, true
		case c == ' ' || c == '\t':
			end()
		case strings.ContainsRune(shellSyntax, c):
			return nil, &SyntaxError{column, fmt.Sprintf("%q is shell syntax; a rule is for one command", c)}
		default:
			word.WriteRune(c)
			started = true
		}
	}
	if quote != 0 {
		return nil, &SyntaxError{opened, "the quote is not closed"}
	}
	end()
	return words, nil
}

// The words of a command are compared with the pattern of a rule: narrowly for rules that allow, and widely for rules
// that deny or ask.

// matchesNarrowly compares a command with the pattern of a rule that allows, word by word. A final * matches any
// further words. At the end of a word it does not extend a name: ls* matches ls, not lsof. Elsewhere * matches within
// its word.
func matchesNarrowly(pattern, words []string) bool {
	for i, p := range pattern {
		if i == len(pattern)-1 && strings.HasSuffix(p, "*") {
			prefix := strings.TrimRight(p, "*")
			return prefix == "" || i < len(words) && (program.Glob(prefix, words[i]) || !nameContinues(prefix) &&
				program.Glob(p, words[i]))
		}
		if i >= len(words) || !program.Glob(p, words[i]) {
			return false
		}
	}
	return len(words) == len(pattern)
}

// matchesWidely compares a command with the pattern of a rule that denies or asks. It takes * as any characters, also
// inside a word. Options between the words, each with a value, do not prevent a match. The program is compared with its
// path and without.
func matchesWidely(pattern, words []string) bool {
	for _, pattern := range withBase(pattern) {
		text := strings.Join(pattern, " ")
		for _, words := range withBase(words) {
			if matchInOrder(pattern, words) || program.Glob(text, strings.Join(words, " ")) {
				return true
			}
		}
	}
	return false
}

// withBase returns the words, and the words with the base name of the program if the first word is a path.
func withBase(words []string) [][]string {
	if len(words) == 0 || !strings.Contains(words[0], "/") || strings.HasSuffix(words[0], "/") {
		return [][]string{words}
	}
	return [][]string{words, append([]string{path.Base(words[0])}, words[1:]...)}
}

// matchInOrder reports whether the words of a pattern follow one another in a command, with only options and their
// values between and after them. A * at the end of the pattern stands for all that follows.
func matchInOrder(pattern, words []string) bool {
	if len(pattern) == 0 {
		return false
	}
	rest := strings.HasSuffix(pattern[len(pattern)-1], "*")
	matched := make([]int, len(pattern)+1) // by the number of words of the pattern
	const word, option = 1, 2              // the kinds of the word before; 0 if so many words are not matched
	matched[0] = word
	for _, w := range words {
		next := make([]int, len(matched))
		for n, before := range matched {
			switch {
			case before == 0:
				continue
			case n > 0 && strings.HasPrefix(w, "-"):
				next[n] = option
			case n > 0 && before == option:
				next[n] = max(next[n], word)
			}
			if n < len(pattern) && program.Glob(pattern[n], w) {
				next[n+1] = max(next[n+1], word)
			}
		}
		matched = next
		if rest && (matched[len(pattern)] > 0 || pattern[len(pattern)-1] == "*" && matched[len(pattern)-1] > 0) {
			return true
		}
	}
	return matched[len(pattern)] > 0
}

// nameContinues reports whether a character after a text would make its last word a longer name.
func nameContinues(prefix string) bool {
	c := prefix[len(prefix)-1]
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= utf8.RuneSelf
}
