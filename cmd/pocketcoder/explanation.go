package main

import (
	"fmt"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
)

// why shows it as a person reads it: what was asked, what the policy saw, who decided, what ran.
func (r *renderer) why(w handlers.Why) {
	r.note("", bold, "%s was requested in chat %s at %s", w.Ask.Type, w.Chat, exactly(w.Ask.At))
	text := w.Ask.Command
	if text == "" {
		text = strings.Join(w.Ask.Patterns, "\n")
	}
	r.line("    ", plain, visible(text))
	if w.Ask.Cwd != "" {
		r.note("", dim, "  in %s", w.Ask.Cwd)
	}
	if w.Ask.Agent != "" {
		r.note("", dim, "  by the agent %s", w.Ask.Agent)
	}
	r.note("", bold, "the policy says %s: %s", w.Verdict.Action, w.Verdict.Reason)
	r.whyRules(w.Rules)
	if w.Referred != nil {
		r.note("", bold, "left to a person at %s: %s", exactly(w.Referred.At), w.Referred.Reason)
	}
	r.whyDecision(w.Decision)
	if w.Expired != nil {
		r.note("", bold, "not carried out, at %s: %s", exactly(w.Expired.At), w.Expired.Reason)
	}
	for _, x := range w.Executions {
		r.whyExecution(x)
	}
	if d := w.Decision; len(w.Executions) == 0 && w.Ask.Type == "bash" && d != nil && d.Decision == string(events.Authorized) {
		r.note("", plain, "no command has been started on it")
	}
	r.note("", bold, "events of chat %s", w.Chat)
	for _, e := range w.Events {
		r.note("", plain, "  #%d  %s  %s", e.Seq, exactly(e.Time), e.Type)
	}
}

// whyRules shows every rule: those that match and those that people keep on a line each, the others together.
func (r *renderer) whyRules(rules []handlers.WhyRule) {
	others, order := map[string][]string{}, []string{}
	for _, rule := range rules {
		switch {
		case rule.Matched:
			r.note("", plain, "  ✓ %s%s  %s", rule.Rule, keptAs(rule), rule.Why)
		case rule.ID != "":
			r.note("", dim, "  · %s%s  %s", rule.Rule, keptAs(rule), rule.Why)
		default:
			if others[rule.Why] == nil {
				order = append(order, rule.Why)
			}
			others[rule.Why] = append(others[rule.Why], rule.Rule)
		}
	}
	for _, why := range order {
		r.note("", dim, "  · %s: %s", why, strings.Join(others[why], ", "))
	}
}

// keptAs names the record of a rule and the event that made it so.
func keptAs(rule handlers.WhyRule) string {
	if rule.ID == "" {
		return ""
	}
	return fmt.Sprintf("  [%s, event #%d]", rule.ID, rule.Version)
}

func (r *renderer) whyDecision(d *handlers.WhyDecision) {
	if d == nil {
		r.note("", yellow, "It is not decided yet.")
		return
	}
	by := r.actor(d.Actor)
	if d.By != "" && d.By != by {
		by += " (" + d.By + ")"
	}
	text := fmt.Sprintf("%s by %s at %s", d.Decision, by, exactly(d.At))
	if d.Device != "" {
		text += ", from " + d.Device
	}
	if d.Address != "" {
		text += " at " + d.Address
	}
	r.note("", bold, "%s", text)
	if d.Rule != "" {
		r.note("", plain, "  by the rule %s", d.Rule)
	}
	if d.Reason != "" {
		r.note("", plain, "  %s", d.Reason)
	}
	if d.Edited != "" {
		r.note("", plain, "  edited:")
		r.diff("", edits(d.Command, d.Edited))
	}
	if !d.Expires.IsZero() {
		r.note("", plain, "  until %s", exactly(d.Expires))
	}
}

func (r *renderer) whyExecution(x handlers.WhyExecution) {
	r.note("", bold, "$ %s", x.Command)
	if x.Original != "" {
		r.note("", dim, "  (the model gave: %s)", x.Original)
	}
	text := fmt.Sprintf("  %s, exit %d, in %s", x.Status, x.ExitCode, x.Cwd)
	if x.Reason != "" {
		text += ": " + x.Reason
	}
	for _, signal := range x.Signals {
		text += fmt.Sprintf(", %s sent %s", r.actor(signal.Actor), handlers.SignalName(signal.Signal))
	}
	if !x.Started.IsZero() && !x.Finished.IsZero() {
		text += ", " + x.Finished.Sub(x.Started).Round(time.Millisecond).String()
	}
	r.note("", plain, "%s", text)
}

// exactly shows a time to the millisecond in this machine's time zone.
func exactly(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05.000") }
