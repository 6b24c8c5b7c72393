package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy/display"
)

// shownCommands is how many of the commands that a rule would have allowed are shown with a proposal.
const shownCommands = 8

// Proposal shows the rules that would be made from a request, and what they would have allowed.
func (r *Renderer) Proposal(w permission.AllowAlways, p permission.Proposal) {
	for _, rule := range p.Rules {
		r.Note("", Bold, "  from now on%s: %s", ruleScope(w), rule)
	}
	for _, limit := range p.Limits {
		r.Note("", Plain, "  %s", limit)
	}
	r.Note("", Plain, "  it would have allowed %d of the last %d requests in this chat, %d of the last %d in all chats",
		p.Chat.Allowed,
		p.Chat.Requests, p.All.Allowed, p.All.Requests)
	r.Commands(p.All, shownCommands)
}

// ruleScope returns the scope and the validity of a rule.
func ruleScope(w permission.AllowAlways) string {
	text := map[string]string{permission.ScopeChat: ", in this chat", permission.ScopeAgent: ", for this agent",
		permission.ScopeAll: ", everywhere"}[w.Scope]
	if w.For != "" {
		text += " for " + w.For
	}
	return text
}

// Commands shows at most limit of the commands that a rule would have allowed, the most frequent first.
func (r *Renderer) Commands(d permission.DryRunResult, most int) {
	for i, c := range d.Commands {
		if i == most {
			r.Note("", Dim, "    … and %d more", len(d.Commands)-i)
			return
		}
		r.Note("", Plain, "    %4d× %s  (%s; last %s)", c.Count, display.OneLine(c.Text, 80), decidedText(c.Decided),
			c.Last.Local().Format(time.DateOnly))
	}
}

// decidedText returns how the requests for a command ended: "authorized 3, denied 1".
func decidedText(decided map[string]int) string {
	var text []string
	for _, how := range slices.Sorted(maps.Keys(decided)) {
		text = append(text, fmt.Sprintf("%s %d", how, decided[how]))
	}
	return strings.Join(text, ", ")
}
