package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/cmd/console/terminal"
	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/projections"
)

// promptText asks for what the ask waits for.
func (a ask) promptText() string {
	switch {
	case a.editing:
		return "run instead (an empty line: back): "
	case a.always != nil:
		return "store this rule and allow? y, n, or chat, agent, all, a time such as 1h, another pattern: "
	case a.permission.Ask.Permission == permission.TypeBudget:
		return "allow it? y, n, n REASON: "
	case a.permission.Ask.Command() != "":
		return "allow it? y, n, n REASON, e (edit), a (always): "
	}
	return "allow it? y, n, n REASON, a (always): "
}

// answerPermission takes a person's words about an ask.
func (c *conversation) answerPermission(ctx context.Context, a *ask, words string) error {
	switch {
	case a.editing:
		return c.edit(ctx, a, words)
	case a.always != nil:
		return c.answerProposal(ctx, a, words)
	}
	s, ok := parseDecision(words)
	switch {
	case !ok:
		c.show.Note("", render.Dim, "(y allows; n denies and stops the turn; n REASON denies and tells the model why; e COMMAND allows that command instead; "+
			"a proposes a rule that allows this kind from now on: a, a all, a 1h)")
		return nil
	case s.always && a.permission.Ask.Permission == permission.TypeBudget:
		c.show.Note("", render.Dim, "(a rule cannot allow more than a budget: answer y or n, or change the budget with: pocketcoder budget set)")
		return nil
	case s.edit && a.permission.Ask.Command() == "":
		c.show.Note("", render.Dim, "(only a command can be edited)")
		return nil
	case s.edit && s.edited == "":
		c.beginEdit(a)
		return nil
	case s.edit:
		return c.edit(ctx, a, s.edited)
	case s.always:
		return c.propose(ctx, a, permission.AllowAlways{Scope: s.scope, For: s.lasts})
	}
	return c.decide(ctx, *a, permission.Decide{Decision: s.decision, Reason: s.reason})
}

// decisionInput is a person's parsed input about a permission request.
type decisionInput struct {
	decision events.Decision
	reason   string

	edit   bool
	edited string // empty: it comes on the next line

	always       bool
	scope, lasts string
}

// parseDecision reads "y", "n", "n REASON", "e", "e COMMAND", "a" with a scope and a time, or just a reason of several
// words, which denies.
func parseDecision(words string) (s decisionInput, ok bool) {
	first, rest, several := strings.Cut(words, " ")
	rest = strings.TrimSpace(rest)
	switch first = strings.ToLower(first); strings.TrimRight(first, ",:;.!") {
	case "y", "yes":
		return decisionInput{decision: events.Authorized}, !several // "y but …" is no plain yes
	case "n", "no":
		return decisionInput{decision: events.Denied, reason: rest}, true
	case "e":
		return decisionInput{edit: true, edited: rest}, first == "e"
	case "a":
		if scope, lasts, ok := parseScope(rest); ok {
			return decisionInput{always: true, scope: scope, lasts: lasts}, true
		}
	}
	return decisionInput{decision: events.Denied, reason: words}, several
}

// parseScope reads for whom a rule shall be and how long: "", "all", "agent 2h", "1h". ok is false for anything else.
func parseScope(words string) (scope, lasts string, ok bool) {
	for _, word := range strings.Fields(words) {
		d, err := time.ParseDuration(word)
		switch {
		case err == nil && d > 0 && lasts == "":
			lasts = word
		case scope == "" && (word == permission.ScopeChat || word == permission.ScopeAgent || word == permission.ScopeAll):
			scope = word
		default:
			return "", "", false
		}
	}
	return scope, lasts, true
}

// decide gives a decision about an ask; which one it is about is filled in.
func (c *conversation) decide(ctx context.Context, a ask, d permission.Decide) error {
	d.Command, d.Chat, d.Permission = client.NewCommand(), c.Chat, a.permission.Ask.ID
	d.ShownRequest.Request = a.permission.Hash
	if d.Decision == events.Authorized {
		c.resumes(a)
	}
	return c.give(ctx, a, "permission.decide", d)
}

// resumes takes into account that approving an interrupted ask resumes its turn, and what a budget holds up goes on.
func (c *conversation) resumes(a ask) {
	c.turn.Grant(a.permission.Ask.ID)
	c.working = c.working || a.permission.Interrupted || c.turn.Whose() == projections.TurnAssistant
}

// beginEdit lets the next line be the command that runs instead. At a terminal the asked command is there to be edited.
func (c *conversation) beginEdit(a *ask) {
	a.editing = true
	if c.terminal == nil {
		return
	}
	line, ok := terminal.Editable(a.permission.Ask.Command())
	if !ok {
		c.show.Note("", render.Dim, "(this line cannot show all characters of the command: type the whole command)")
	}
	c.suggestion = line
}

// edit allows a command in place of the one that was asked for. The asked command itself is approved as it is.
func (c *conversation) edit(ctx context.Context, a *ask, command string) error {
	switch a.editing = false; command {
	case "":
		return nil
	case strings.TrimSpace(a.permission.Ask.Command()):
		return c.decide(ctx, *a, permission.Decide{Decision: events.Authorized})
	}
	return c.decide(ctx, *a, permission.Decide{Decision: events.Authorized, Edited: command})
}

// propose shows the rule that would answer asks of this kind from now on, and what it would have allowed so far.
func (c *conversation) propose(ctx context.Context, a *ask, w permission.AllowAlways) error {
	w.Command, w.Chat, w.Permission = client.NewCommand(), c.Chat, a.permission.Ask.ID
	w.ShownRequest.Request, w.ShownRules = a.permission.Hash, nil
	w.Scope = cmp.Or(w.Scope, permission.ScopeChat)
	p, err := client.Call[permission.Proposal](ctx, c.System, "permission.propose", w)
	if r := (handlers.Refused{}); errors.As(err, &r) {
		c.show.Note("", render.Dim, "(%s)", r.Text)
		return nil
	}
	if err != nil {
		return fmt.Errorf("propose a rule: %w", err)
	}
	w.ShownRules = p.Rules
	a.always, a.shown, c.covered = &w, p, false
	c.show.Proposal(w, p)
	return nil
}

// answerProposal stores the proposed rule, lets it be, or proposes another.
func (c *conversation) answerProposal(ctx context.Context, a *ask, words string) error {
	w := *a.always
	switch strings.ToLower(words) {
	case "":
		return nil
	case "y", "yes":
		c.resumes(*a)
		return c.give(ctx, *a, "permission.always", w)
	case "n", "no":
		a.always = nil
		return nil
	}
	scope, lasts, ok := parseScope(words)
	switch {
	case !ok:
		w.Pattern = words
	case scope != "":
		w.Scope = scope
	}
	if lasts != "" {
		w.For = lasts
	}
	return c.propose(ctx, a, w)
}
