package policy

import (
	"fmt"
	"strings"
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
