package events

import (
	"fmt"
	"strings"
)

// ParseFilter accepts a filter from outside: evt. followed by ids and NATS wildcards, * for one word and > for the
// rest, in at most 32 words.
func ParseFilter(filter string) (string, error) {
	fail := func(why string) (string, error) {
		return "", fmt.Errorf("parse filter %.200q: %s", filter, why)
	}
	words := strings.SplitN(filter, ".", maxWords+1)
	if len(words) < 2 || words[0] != "evt" {
		return fail("want evt.<words>, such as evt.chat.*.opencode.permission.>")
	}
	if len(words) > maxWords {
		return fail("it has too many words")
	}
	for i, w := range words {
		_, err := ParseID(w)
		switch {
		case w == "*", w == ">" && i == len(words)-1:
		case w == ">":
			return fail("> stands for the rest, so nothing can follow it")
		case err != nil:
			return fail("each word is *, > or 1 to 64 letters, digits, _ or -")
		}
	}
	return filter, nil
}

// maxWords is the most words a filter can have; the subjects in use have up to eight.
const maxWords = 32

// MatchesFilter reports whether the words of a filter match those of a subject: * stands for one word, > for one or
// more at the end.
func MatchesFilter(filter, subject []string) bool {
	for i, w := range filter {
		switch {
		case i == len(subject):
			return false
		case w == ">":
			return true
		case w != "*" && w != subject[i]:
			return false
		}
	}
	return len(filter) == len(subject)
}
