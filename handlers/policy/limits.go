package policy

import (
	"fmt"
	"slices"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/policy/program"
)

// Limits returns sentences that name what a rule does not cover, although its pattern may look as if it did. It returns
// nil for a pattern that is not ambiguous.
func (r Rule) Limits() []string {
	c := compile(r)
	if c.wrong != nil || c.coversAll() {
		return nil
	}
	allow := r.action() == Allow
	switch {
	case r.Permission == events.KindBash && allow:
		return c.allowedCommandLimits()
	case r.Permission == events.KindBash:
		return c.forbiddenCommandLimits()
	case about(r.Permission) == events.AboutPath && allow &&
		strings.Contains(strings.ReplaceAll(r.Pattern, "**", ""), "*"):
		return []string{"It covers one folder only, because * does not match /. Write ** for any folders."}
	case r.Permission == events.KindNetwork && c.host.below:
		return []string{fmt.Sprintf("It covers the names below %s, and not %s itself.", c.host.host, c.host.host)}
	case r.Permission == events.KindWebfetch && allow && c.url.path == "":
		return []string{fmt.Sprintf("It covers only this page. For the whole host, write %s/*.", r.Pattern)}
	}
	return nil
}

func (c *compiledRule) allowedCommandLimits() (limits []string) {
	words := c.words
	name, last := words[0], words[len(words)-1]
	_, scriptCause := program.Call{Words: words, Named: wordSet(words)}.Script()
	switch cause := program.AskCause(name); {
	case strings.Contains(strings.TrimRight(name, "*"), "*"):
	case cause != "" && !strings.Contains(name, "*"):
		limits = append(limits, "A person decides about these commands all the same: "+cause+".")
	case program.Interprets(name) && scriptCause != "":
		limits = append(limits, "A person decides about these commands all the same: "+scriptCause+".")
	case program.TakesSubCommand(strings.TrimRight(name, "*")) && name != "make" &&
		(len(words) == 1 || strings.HasPrefix(words[1], "*")):
		limits = append(limits, fmt.Sprintf("It covers only the sub-commands of %s that are known to be harmless. "+
			"Name another one in the pattern.", display.Quote(strings.TrimRight(name, "*"))))
	}
	prefix := strings.TrimRight(last, "*")
	isSubCommand := len(words) == 2 && program.TakesSubCommand(name) && name != "make" // no longer name exists
	if isSubCommand || prefix == last || prefix == "" || !nameContinues(prefix) {
		return limits
	}
	longer := append(slices.Clone(words[:len(words)-1]), prefix+"-all")
	if matchCommand(words, longer) {
		return limits
	}
	short := append(slices.Clone(words[:len(words)-1]), prefix)
	limit := fmt.Sprintf("It covers %s with any further words. It does not cover a longer name, such as %s.",
		display.Quote(strings.Join(short, " ")), display.Quote(strings.Join(longer, " ")))
	if len(words) > 1 {
		limit += fmt.Sprintf(" To allow such names, write %s.", display.Quote(strings.Join(short, " ")+"-*"))
	}
	return append(limits, limit)
}

// forbiddenCommandLimits returns the limits of a rule that denies commands or asks about them.
func (c *compiledRule) forbiddenCommandLimits() []string {
	for _, word := range c.words {
		if strings.HasPrefix(word, "-") && strings.Trim(word, "-*") != "" {
			return []string{fmt.Sprintf("It does not cover another spelling of the option %s.", display.Quote(word))}
		}
	}
	return nil
}

func wordSet(words []string) map[string]bool {
	named := map[string]bool{}
	for _, word := range words {
		named[word], named[strings.TrimRight(word, "*")] = true, true
	}
	return named
}
