package permission

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/opencode"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/record"
)

// Why is all that is known of an ask: what was asked, what the policy saw in it, who decided, and what then ran.
type Why struct {
	Chat       string         `json:"chat"`
	Permission string         `json:"permission"`
	Ask        WhyAsk         `json:"ask"`
	Verdict    WhyVerdict     `json:"verdict"` // of the rules as they were when the ask was decided, or left to a person; on files as they are now
	Rules      []WhyRule      `json:"rules"`   // every rule looked at, in order
	Referred   *WhyReferred   `json:"referred,omitempty"`
	Decision   *WhyDecision   `json:"decision,omitempty"`
	Expired    *WhyExpired    `json:"expired,omitempty"` // why an approval was not carried out
	Executions []WhyExecution `json:"executions"`        // refused attempts, too
	Events     []WhyEvent     `json:"events"`            // in the log's order
}

// WhyAsk is what was asked.
type WhyAsk struct {
	Type     string          `json:"type"`
	Patterns []string        `json:"patterns"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // object
	Command  string          `json:"command,omitempty"`
	Cwd      string          `json:"cwd,omitempty"`
	Agent    string          `json:"agent,omitempty"`
	Session  string          `json:"session,omitempty"`
	Call     string          `json:"call,omitempty"`
	Request  string          `json:"request"` // SHA-256 of type, patterns and metadata
	At       time.Time       `json:"at"`
}

// WhyVerdict is what the rules say.
type WhyVerdict struct {
	Action policy.Action `json:"action"`
	Rules  []policy.Rule `json:"rules"` // that decided
	Reason string        `json:"reason"`
}

// WhyRule is a rule that was looked at.
type WhyRule struct {
	Rule    string `json:"rule"`
	ID      string `json:"id,omitempty"`
	Version uint64 `json:"version,omitempty"`
	Matched bool   `json:"matched"`
	Why     string `json:"why"`
}

// WhyReferred says when and why the policy left the ask to a person.
type WhyReferred struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	events.RuleRef
}

// WhyDecision is how the ask ended.
type WhyDecision struct {
	Decision string    `json:"decision"`     // authorized, denied, expired, or OpenCode's once, always and reject of an answer given there
	Actor    string    `json:"actor"`        // user:<id>, policy, engine:<id>
	By       string    `json:"by,omitempty"` // the person's name
	At       time.Time `json:"at"`
	Device   string    `json:"device,omitempty"`
	Address  string    `json:"address,omitempty"`
	Command  string    `json:"command,omitempty"`
	Edited   string    `json:"edited,omitempty"`
	Cwd      string    `json:"cwd,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Grant    string    `json:"grant,omitempty"` // the forgotten ask whose approval this is
	Expires  time.Time `json:"expires,omitzero"`
	Hosts    []string  `json:"hosts,omitempty"` // host:port that the approval of a command lets it reach
	events.RuleRef
}

// WhyExpired says when and why an approval was not carried out.
type WhyExpired struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// WhyEvent is an event about the ask.
type WhyEvent struct {
	Seq  uint64    `json:"seq"`
	Type string    `json:"type"`
	Time time.Time `json:"time"`
}

// Why gathers it from the log.
func (g Gate) Why(ctx context.Context, chat, permission string) (Why, error) {
	if err := handlers.CheckChat(chat); err != nil {
		return Why{}, err
	}
	a, err := g.Permissions.asked(ctx, chat, permission)
	if err != nil {
		return Why{}, err
	}
	if !a.found {
		return Why{}, handlers.Refuse(handlers.NotFound, "there is no permission ask %s in chat %s", permission, chat)
	}
	in, agent := g.input(ctx, chat, a.ask, a.intended, 0)
	if a.cwd != "" {
		in.Cwd = a.cwd
	}
	w := &why{ask: a, Why: Why{
		Chat: chat, Permission: permission, Executions: []WhyExecution{},
		Ask: WhyAsk{
			Type: a.ask.Permission, Patterns: a.ask.Patterns, Metadata: a.ask.Metadata, Command: in.Command, Agent: agent,
			Session: a.ask.SessionID, Call: a.ask.Tool.CallID, Request: a.ask.Request(), At: a.at,
		},
	}}
	if a.ask.Permission == "bash" && !a.intended {
		w.Ask.Cwd = in.Cwd
	}
	if err := w.gather(ctx, g.Permissions.Log); err != nil {
		return Why{}, err
	}
	if err := w.name(ctx, g.Permissions.Log); err != nil {
		return Why{}, err
	}
	scope := record.RuleScope{Chat: chat, Agent: agent, At: time.Now()}
	if w.looked.Seq != 0 {
		scope.Seq, scope.At = w.looked.Seq, w.looked.Time
	}
	rules, err := g.InForce(ctx, scope)
	if err != nil {
		return Why{}, err
	}
	v, looked := policy.Explain(rules, in)
	w.Verdict, w.Rules = WhyVerdict{v.Action, append([]policy.Rule{}, v.Rules...), v.Reason}, []WhyRule{}
	for _, l := range looked {
		w.Rules = append(w.Rules, WhyRule{l.Rule.String(), l.Rule.ID, l.Rule.Version, l.Matched, l.Why})
	}
	return w.Why, nil
}

// why is what is gathered of a chat's events.
type why struct {
	Why
	ask    asked
	looked events.Event // with which the policy looked: that it decided or left it to a person
	execs  map[string]int
}

// gather folds the events that may be about the ask, in the log's order.
func (w *why) gather(ctx context.Context, log *log.Log) error {
	var all []events.Event
	for _, kind := range []string{"permission.*", "opencode.permission.*", "exec.*"} {
		_, err := log.Fold(ctx, events.ChatSubject(w.Chat, kind), w.ask.seq-1, func(e events.Event) error { all = append(all, e); return nil })
		if err != nil {
			return err
		}
	}
	slices.SortFunc(all, func(a, b events.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	w.execs = map[string]int{}
	for _, e := range all {
		d, err := events.Decode(e)
		if err == nil && w.apply(e, d) {
			w.Events = append(w.Events, WhyEvent{e.Seq, e.Subject.Kind, e.Time})
		}
	}
	return nil
}

// apply notes what an event says about the ask, and whether it is about it at all.
func (w *why) apply(e events.Event, d events.Data) bool {
	switch d := d.(type) {
	case events.PermissionRequested:
		return d.Permission == w.Permission && e.Seq == w.ask.seq
	case events.PermissionReferred:
		if d.Permission != w.Permission {
			return false
		}
		w.Referred, w.looked = &WhyReferred{d.Reason, e.Time, d.RuleRef}, e
		return true
	case events.PermissionInterrupted:
		return d.Permission == w.Permission
	case events.PermissionDecided:
		return w.applyDecision(e, d)
	case events.PermissionExpired:
		switch {
		case d.Permission != w.Permission:
			return false
		case w.Decision == nil:
			w.Decision = &WhyDecision{Decision: "expired", Actor: e.Actor, At: e.Time, Reason: d.Reason}
		case w.Decision.Decision == string(events.Authorized):
			w.Expired = &WhyExpired{d.Reason, e.Time}
		}
		return true
	case events.OpenCode:
		return w.applyOpenCode(e, d)
	}
	return w.applyExec(e, d)
}

func (w *why) applyDecision(e events.Event, d events.PermissionDecided) bool {
	if d.Grant == w.Permission && w.Permission != "" {
		return true // another ask has used this one's approval up
	}
	if d.Permission != w.Permission || w.Decision != nil {
		return d.Permission == w.Permission
	}
	w.Decision = &WhyDecision{
		Decision: string(d.Decision), Actor: e.Actor, At: e.Time, Device: d.Client.Device, Address: d.Client.Address, Command: d.Command,
		Edited: d.Edited, Cwd: d.Cwd, Reason: d.Reason, Grant: d.Grant, Expires: d.Expires, Hosts: d.Hosts, RuleRef: d.RuleRef,
	}
	if e.Actor == events.ActorPolicy {
		w.looked = e
	}
	return true
}

func (w *why) applyOpenCode(e events.Event, d events.OpenCode) bool {
	if w.ask.intended {
		return false
	}
	switch d.Type {
	case events.PermissionAsked:
		p, err := opencode.Read[events.PermissionAsk](d)
		return err == nil && p.ID == w.Permission
	case events.PermissionReplied:
		p, err := opencode.Read[opencode.PermissionReplied](d)
		if err != nil || p.RequestID != w.Permission {
			return false
		}
		if w.Decision == nil {
			w.Decision = &WhyDecision{Decision: p.Reply, Actor: e.Actor, At: e.Time, Reason: "answered in OpenCode"}
		}
		return true
	}
	return false
}

// name finds out what the person who decided is called.
func (w *why) name(ctx context.Context, log *log.Log) error {
	if w.Decision == nil {
		return nil
	}
	user, ok := strings.CutPrefix(w.Decision.Actor, events.UserActor(""))
	if _, err := events.ParseID(user); !ok || err != nil {
		return nil
	}
	var name, email string
	_, err := log.Fold(ctx, events.UserSubject(user, "account.*"), 0, func(e events.Event) error {
		d, err := events.Decode(e)
		if err != nil {
			return nil
		}
		switch d := d.(type) {
		case events.AccountCreated:
			name, email = d.Name, d.Email
		case events.AccountUpdated:
			if d.Name != nil {
				name = *d.Name
			}
			if d.Email != nil {
				email = *d.Email
			}
		}
		return nil
	})
	w.Decision.By = cmp.Or(name, email, user)
	return err
}
