package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/projections"
)

const whyUsage = `pocketcoder policy why [REQUEST|CHAT]: explain why a request was allowed, denied or asked, and what then ran.

  pocketcoder policy why                    the last request of the most recently active chat
  pocketcoder policy why h2k0x9c3v7m1q5z    the last request of this chat
  pocketcoder policy why 8f3kq0z2m4c6x1a    this request: chat, replay and requests show the id
  pocketcoder policy why per_f1c2…          the same by OpenCode's id, as "pocketcoder replay CHAT --json" shows it
  pocketcoder policy why --json             for scripts

It shows the request, every rule that was examined, who decided when and from which device, which command ran and how it
ended, and the events with their sequences: "pocketcoder replay CHAT --at SEQUENCE" shows the chat as it stood then.

Exit status: 0; 1 when there is no such request or it failed, 2 for wrong usage.
`

func runWhy(ctx context.Context, env environment, args []string) error {
	fs := newFlags(env, "policy why", whyUsage)
	data := dataFlag(fs, env)
	asJSON := fs.Bool("json", false, "print JSON")
	rest, err := parse(fs, args, 1)
	if err != nil {
		return err
	}
	id := ""
	if len(rest) == 1 {
		if id, err = events.ParseID(rest[0]); err != nil {
			return wrongUsage(env, "why: %v", err)
		}
	}
	s, err := connect(ctx, dataDir(*data))
	if err != nil {
		return err
	}
	defer s.close()
	if id, err = s.requestToExplain(ctx, id); err != nil {
		return err
	}
	why, err := s.why(ctx, id)
	if err != nil {
		return err
	}
	if *asJSON {
		return printJSON(env.stdout, why)
	}
	show := newRenderer(newScreen(env))
	show.email = s.emailOf(ctx)
	show.why(why)
	return show.err
}

// requestToExplain is the request that an id names: its own, or its chat's. Without an id it is the last one of the most
// recently active chat.
func (s *system) requestToExplain(ctx context.Context, id string) (string, error) {
	if id == "" {
		var chats []projections.Chat
		if err := s.query(ctx, "chats", map[string]any{"limit": 1, "offset": 0}, &chats); err != nil {
			return "", err
		}
		if len(chats) == 0 {
			return "", errors.New("there is no chat yet, so there is no request to explain")
		}
		return s.lastRequest(ctx, chats[0].ID)
	}
	last, err := s.log.Last(ctx)
	if err != nil {
		return "", err
	}
	if s.query(ctx, "chat", map[string]any{"chat": id, "after": last}, &projections.Chat{}) == nil {
		return s.lastRequest(ctx, id)
	}
	return id, nil
}

// why asks the running system about an ask, by OpenCode's id or that of its record.
func (s *system) why(ctx context.Context, id string) (why handlers.Why, err error) {
	last, err := s.log.Last(ctx)
	if err != nil {
		return why, err
	}
	var found projections.Permission
	if err := s.query(ctx, "permission", map[string]any{"permission": id, "after": last}, &found); err != nil {
		return why, err
	}
	return give[handlers.Why](ctx, s, "permission.why", handlers.AskWhy{Chat: found.Chat, Permission: found.EnginePermission})
}

// give gives a command that answers with a result.
func give[R any](ctx context.Context, s *system, name string, command any) (result R, err error) {
	a, err := handlers.Give(ctx, s.nc, name, command)
	if err != nil {
		return result, err
	}
	if err := json.Unmarshal(a.Result, &result); err != nil {
		return result, fmt.Errorf("read the answer to %s: %w", name, err)
	}
	return result, nil
}

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
