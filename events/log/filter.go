package log

import (
	"fmt"
	"strings"

	"pocketcoder/events"
)

// ParseFilter accepts a filter from outside: evt. followed by ids and NATS wildcards, * for one word and > for the rest, in at
// most 32 words.
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
		_, err := events.ParseID(w)
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

// indexed is the number of words of a subject by which followers are found: evt.chat.<chat>. So an event of a chat costs the
// followers of another chat nothing.
const indexed = 3

// anything is the index of filters that have a wildcard among those words.
const anything = ""

// index returns the first words of a subject or filter, or anything for a filter with a wildcard among them.
func index(words []string) string {
	if len(words) < indexed {
		return anything
	}
	for _, w := range words[:indexed] {
		if w == "*" || w == ">" {
			return anything
		}
	}
	return strings.Join(words[:indexed], ".")
}

// matches reports whether a filter matches a subject: * stands for one word, > for one or more at the end.
func matches(filter, subject []string) bool {
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
