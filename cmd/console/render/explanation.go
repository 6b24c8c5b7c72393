package render

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/exec"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy/display"
)

// Why explains a decision: what was requested, what the policy saw, who decided, and what ran.
func (r *Renderer) Why(w permission.Why) {
	r.Note("", Bold, "%s was requested in chat %s at %s", w.Request.Type, w.Chat, formatMillis(w.Request.At))
	text := cmp.Or(w.Request.Command, strings.Join(w.Request.Patterns, "\n"))
	r.Line("    ", Plain, display.Exact(text))
	if w.Request.Cwd != "" {
		r.Note("", Dim, "  in %s", w.Request.Cwd)
	}
	if w.Request.Agent != "" {
		r.Note("", Dim, "  by the agent %s", w.Request.Agent)
	}
	r.Note("", Bold, "the policy says %s: %s", w.Verdict.Action, w.Verdict.Reason)
	r.whyRules(w.Rules)
	if w.Referred != nil {
		r.Note("", Bold, "left to a person at %s: %s", formatMillis(w.Referred.At), w.Referred.Reason)
	}
	r.whyDecision(w.Decision)
	if w.Expired != nil {
		r.Note("", Bold, "not carried out, at %s: %s", formatMillis(w.Expired.At), w.Expired.Reason)
	}
	for _, x := range w.Executions {
		r.whyExecution(x)
	}
	if d := w.Decision; len(w.Executions) == 0 && w.Request.Type == events.KindBash && d != nil &&
		d.Decision == events.Authorized {
		r.Note("", Plain, "no command has been started on it")
	}
	r.Note("", Bold, "events of chat %s", w.Chat)
	for _, e := range w.Events {
		r.Note("", Plain, "  #%d  %s  %s", e.Seq, formatMillis(e.Time), e.Type)
	}
}

// whyRules shows every rule: those that match and those that people keep on a line each, the others together.
func (r *Renderer) whyRules(rules []permission.WhyRule) {
	others, order := map[string][]string{}, []string{}
	for _, rule := range rules {
		switch {
		case rule.Matched:
			r.Note("", Plain, "  ✓ %s%s  %s", rule.Rule, recordReference(rule), rule.Why)
		case rule.ID != "":
			r.Note("", Dim, "  · %s%s  %s", rule.Rule, recordReference(rule), rule.Why)
		default:
			if others[rule.Why] == nil {
				order = append(order, rule.Why)
			}
			others[rule.Why] = append(others[rule.Why], rule.Rule)
		}
	}
	for _, why := range order {
		r.Note("", Dim, "  · %s: %s", why, strings.Join(others[why], ", "))
	}
}

// recordReference returns the record of a rule and the event that created or changed it.
func recordReference(rule permission.WhyRule) string {
	if rule.ID == "" {
		return ""
	}
	return fmt.Sprintf("  [%s, event #%d]", rule.ID, rule.Version)
}

func (r *Renderer) whyDecision(d *permission.WhyDecision) {
	if d == nil {
		r.Note("", Yellow, "It is not decided yet.")
		return
	}
	by := r.Actor(d.Actor)
	if d.By != "" && d.By != by {
		by += " (" + d.By + ")"
	}
	text := fmt.Sprintf("%s by %s at %s", d.Decision, by, formatMillis(d.At))
	if d.Device != "" {
		text += ", from " + d.Device
	}
	if d.Address != "" {
		text += " at " + d.Address
	}
	r.Note("", Bold, "%s", text)
	if d.Rule != "" {
		r.Note("", Plain, "  by the rule %s", d.Rule)
	}
	if d.Reason != "" {
		r.Note("", Plain, "  %s", d.Reason)
	}
	if d.Edited != "" {
		r.Note("", Plain, "  edited:")
		r.diff("", edits(d.Command, d.Edited))
	}
	if !d.Expires.IsZero() {
		r.Note("", Plain, "  until %s", formatMillis(d.Expires))
	}
}

func (r *Renderer) whyExecution(x permission.WhyExecution) {
	r.Note("", Bold, "$ %s", x.Command)
	if x.Original != "" {
		r.Note("", Dim, "  (the model gave: %s)", x.Original)
	}
	text := fmt.Sprintf("  %s, exit %d, in %s", x.Status, x.ExitCode, x.Cwd)
	if x.Reason != "" {
		text += ": " + x.Reason
	}
	for _, signal := range x.Signals {
		text += fmt.Sprintf(", %s sent %s", r.Actor(signal.Actor), exec.SignalName(signal.Signal))
	}
	if !x.Started.IsZero() && !x.Finished.IsZero() {
		text += ", " + x.Finished.Sub(x.Started).Round(time.Millisecond).String()
	}
	r.Note("", Plain, "%s", text)
}

// formatMillis formats a time to the millisecond in this machine's time zone.
func formatMillis(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }
