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
)

// promptText returns the prompt for the next input about the item.
func (a pendingItem) promptText() string {
	switch {
	case a.awaitsCommand:
		return "run instead (an empty line: back): "
	case a.proposal != nil:
		return "store this rule and allow? y, n, or chat, agent, all, a time such as 1h, another pattern: "
	case a.permission.Content.Permission == events.KindBudget:
		return "allow it? y, n, n REASON: "
	case a.permission.Keeps():
		return "keep it? y keeps it, n deletes it: "
	case a.permission.Content.Command() != "":
		return "allow it? y, n, n REASON, e (edit), a (always): "
	}
	return "allow it? y, n, n REASON, a (always): "
}

// answerPermission applies a person's input to a permission request.
func (c *conversation) answerPermission(ctx context.Context, a *pendingItem, words string) error {
	switch {
	case a.awaitsCommand:
		return c.edit(ctx, a, words)
	case a.proposal != nil:
		return c.answerProposal(ctx, a, words)
	}
	s, ok := parseDecision(words)
	switch {
	case a.permission.Keeps() && (s.edit || s.always || !ok || s.reason == words):
		c.show.Note("", render.Dim, "(y moves it back into the workspace; n deletes it)")
		return nil
	case !ok:
		c.show.Note("", render.Dim, "(y allows; n denies and stops the turn; n REASON denies and tells the model why; e COMMAND allows that command instead; "+
			"a proposes a rule that allows this kind from now on: a, a all, a 1h)")
		return nil
	case s.always && a.permission.Content.Permission == events.KindBudget:
		c.show.Note("", render.Dim, "(a rule cannot allow more than a budget: answer y or n, or change the budget with: pocketcoder budget set)")
		return nil
	case s.edit && a.permission.Content.Command() == "":
		c.show.Note("", render.Dim, "(only a command can be edited)")
		return nil
	case s.edit && s.edited == "":
		c.beginEdit(a)
		return nil
	case s.edit:
		return c.edit(ctx, a, s.edited)
	case s.always:
		return c.propose(ctx, a, permission.AllowAlways{Scope: s.scope, For: s.validFor})
	}
	return c.decide(ctx, *a, client.Decision{Status: s.decision, Reason: s.reason})
}

// decisionInput is a person's parsed input about a permission request.
type decisionInput struct {
	decision events.Decision
	reason   string

	edit   bool
	edited string // empty: the next line has it

	always          bool
	scope, validFor string
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
			return decisionInput{always: true, scope: scope, validFor: lasts}, true
		}
	}
	return decisionInput{decision: events.Denied, reason: words}, several
}

// parseScope reads the scope and the validity of a rule: "", "all", "agent 2h", "1h". ok is false for anything else.
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

// decide sends a decision about a request, bound to what was shown.
func (c *conversation) decide(ctx context.Context, a pendingItem, d client.Decision) error {
	d.Hash, d.Files = a.permission.Hash, a.permission.FilesHash
	if d.Status == events.Authorized {
		c.resumes(a)
	}
	err := c.Decide(ctx, a.permission.Content.ID, d)
	if err == nil && d.Status == events.Denied {
		c.turn.deny(a.permission.Content.Permission, d.Reason) // other events of the turn's end may come before the decision
	}
	return c.decided(a, err)
}

// resumes notes that approving an interrupted request resumes its turn, and that approving a budget request resumes the
// turn that it stopped, or releases held messages.
func (c *conversation) resumes(a pendingItem) {
	c.turn.approve(a.permission.Content.ID)
	c.working = c.working || a.permission.Interrupted || a.permission.Content.Permission == events.KindBudget
}

// beginEdit lets the next line be the command that runs instead. At a terminal the line holds the requested command to
// be edited.
func (c *conversation) beginEdit(a *pendingItem) {
	a.awaitsCommand = true
	if c.terminal == nil {
		return
	}
	line, ok := terminal.Editable(a.permission.Content.Command())
	if !ok {
		c.show.Note("", render.Dim, "(this line cannot show all characters of the command: type the whole command)")
	}
	c.suggestion = line
}

// edit approves a request with another command. If the command is unchanged, it approves the request without an edit.
func (c *conversation) edit(ctx context.Context, a *pendingItem, command string) error {
	switch a.awaitsCommand = false; command {
	case "":
		return nil
	case strings.TrimSpace(a.permission.Content.Command()):
		return c.decide(ctx, *a, client.Decision{Status: events.Authorized})
	}
	return c.decide(ctx, *a, client.Decision{Status: events.Authorized, Edited: command})
}

// propose shows a rule that would allow requests of this kind from now on, and the earlier requests that it would have
// allowed.
func (c *conversation) propose(ctx context.Context, a *pendingItem, w permission.AllowAlways) error {
	w.ShownRequest.Request, w.ShownRequest.Files, w.ShownRules = a.permission.Hash, a.permission.FilesHash, nil
	w.Scope = cmp.Or(w.Scope, permission.ScopeChat)
	p, err := c.ProposeAlways(ctx, a.permission.Content.ID, w)
	if r := (handlers.Refused{}); errors.As(err, &r) {
		c.show.Note("", render.Dim, "(%s)", r.Text)
		return nil
	}
	if err != nil {
		return fmt.Errorf("propose a rule: %w", err)
	}
	w.ShownRules = p.Rules
	a.proposal, a.shown, c.covered = &w, p, false
	c.show.Proposal(w, p)
	return nil
}

// answerProposal stores the proposed rule, discards it, or proposes another.
func (c *conversation) answerProposal(ctx context.Context, a *pendingItem, words string) error {
	w := *a.proposal
	switch strings.ToLower(words) {
	case "":
		return nil
	case "y", "yes":
		c.resumes(*a)
		return c.decided(*a, c.AllowAlways(ctx, a.permission.Content.ID, w))
	case "n", "no":
		a.proposal = nil
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
