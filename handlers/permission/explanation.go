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
	"pocketcoder/handlers/policy"
	"pocketcoder/sandbox/wire"
)

// Why explains a permission request: its content, the verdict of the policy, the decision, and the executions that
// followed.
type Why struct {
	Chat       string `json:"chat"`
	Permission string `json:"permission"`
	Request    WhyAsk `json:"ask"`
	// by the rules of the time of the decision or referral, and by the current files
	Verdict    WhyVerdict     `json:"verdict"`
	Rules      []WhyRule      `json:"rules"` // every rule that the policy checked, in order
	Referred   *WhyReferred   `json:"referred,omitempty"`
	Decision   *WhyDecision   `json:"decision,omitempty"`
	Expired    *WhyExpired    `json:"expired,omitempty"` // why an approval was not carried out
	Executions []WhyExecution `json:"executions"`        // refused attempts, too
	Events     []WhyEvent     `json:"events"`            // in the log's order
}

// WhyAsk is the content of the request.
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

type WhyVerdict struct {
	Action policy.Action `json:"action"`
	Rules  []policy.Rule `json:"rules"` // that decided
	Reason string        `json:"reason"`
}

// WhyRule is a rule that the policy checked.
type WhyRule struct {
	Rule    string `json:"rule"`
	ID      string `json:"id,omitempty"`
	Version uint64 `json:"version,omitempty"`
	Matched bool   `json:"matched"`
	Why     string `json:"why"`
}

// WhyReferred holds when and why the policy left the request to a person.
type WhyReferred struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
	events.RuleRef
}

// WhyDecision is the outcome of the request.
type WhyDecision struct {
	// authorized, denied, expired, or OpenCode's once, always and reject of an answer given there
	Decision string    `json:"decision"`
	Actor    string    `json:"actor"`        // user:<id>, policy, engine:<id>
	By       string    `json:"by,omitempty"` // the person's name
	At       time.Time `json:"at"`
	Device   string    `json:"device,omitempty"`
	Address  string    `json:"address,omitempty"`
	Command  string    `json:"command,omitempty"`
	Edited   string    `json:"edited,omitempty"`
	Cwd      string    `json:"cwd,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Grant    string    `json:"grant,omitempty"` // id of the request, forgotten by OpenCode, whose approval is used
	Expires  time.Time `json:"expires,omitzero"`
	Hosts    []string  `json:"hosts,omitempty"` // host:port of each host that the approved command may connect to
	events.RuleRef
}

// WhyExpired holds when and why an approval expired unused.
type WhyExpired struct {
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// WhyExecution is an execution that the decision started, or an attempt that was refused.
type WhyExecution struct {
	ID       string    `json:"id"`
	Command  string    `json:"command"`
	Original string    `json:"original,omitempty"`
	Cwd      string    `json:"cwd"`
	Status   string    `json:"status"` // executing, completed, failed, refused, cancelled, timeout, lost, a limit's name
	Reason   string    `json:"reason,omitempty"`
	ExitCode int       `json:"exit_code"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`

	Signals []WhySignal `json:"signals,omitempty"`
}

// WhySignal is a signal that was sent to an execution.
type WhySignal struct {
	Signal string    `json:"signal"` // SIGTERM, …
	Actor  string    `json:"actor"`
	At     time.Time `json:"at"`
}

// WhyEvent is an event about the request.
type WhyEvent struct {
	Seq  uint64    `json:"seq"`
	Type string    `json:"type"`
	Time time.Time `json:"time"`
}

// Explain computes the explanation of a permission request.
func Explain(ctx context.Context, g Gate, chat, id string) (Why, error) {
	r, err := g.review(ctx, chat, id)
	if err != nil {
		return Why{}, err
	}
	w := &explanation{request: r.Request, execs: map[string]int{}, Why: Why{
		Chat: chat, Permission: id, Decision: decision(r.Outcome), Executions: []WhyExecution{},
		Request: WhyAsk{
			Type: r.Type, Patterns: r.Content.Patterns, Metadata: r.Content.Metadata, Command: r.Input.Command, Agent: r.Agent,
			Session: r.Content.SessionID, Call: r.Content.Tool.CallID, Request: r.Hash, At: r.At,
		},
	}}
	if r.Type == events.KindBash && !r.ViaAPI {
		w.Request.Cwd = r.Input.Cwd
	}
	if r.Escalation.Seq != 0 {
		w.Referred = &WhyReferred{r.Escalation.Reason, r.Escalation.At, r.Escalation.RuleRef}
	}
	if err := w.gather(ctx, g); err != nil {
		return Why{}, err
	}
	if err := w.name(ctx, g.Permissions.Log); err != nil {
		return Why{}, err
	}
	v, checked := policy.Explain(r.Rules, r.Input)
	w.Verdict, w.Rules = WhyVerdict{v.Action, append([]policy.Rule{}, v.Rules...), v.Reason}, []WhyRule{}
	for _, l := range checked {
		w.Rules = append(w.Rules, WhyRule{l.Rule.String(), l.Rule.ID, l.Rule.Version, l.Matched, l.Why})
	}
	return w.Why, nil
}

// decision returns an outcome in the form of a Why, nil for a pending request.
func decision(outcome Outcome) *WhyDecision {
	switch d := outcome.Decided; {
	case outcome.Seq == 0:
		return nil
	case d == nil:
		return &WhyDecision{Decision: outcome.Status, Actor: outcome.By, At: outcome.At, Reason: outcome.Reason}
	default:
		return &WhyDecision{
			Decision: outcome.Status, Actor: outcome.By, At: outcome.At, Device: d.Client.Device, Address: d.Client.Address, Command: d.Command,
			Edited: d.Edited, Cwd: d.Cwd, Reason: d.Reason, Grant: d.ApprovalOf, Expires: d.Expires, Hosts: d.Hosts, RuleRef: d.RuleRef,
		}
	}
}

// explanation collects a Why from the events of a chat.
type explanation struct {
	Why
	request Request
	execs   map[string]int
}

// gather reads the events about the request, in the log's order. The state of the chat lists their sequences up to the
// start of the execution.
func (w *explanation) gather(ctx context.Context, g Gate) error {
	r, l := w.request, g.Permissions.Log
	var all []events.Event
	add := func(e events.Event) error {
		all = append(all, e)
		return nil
	}
	for _, seq := range r.Events {
		e, ok, err := l.Get(ctx, seq)
		if err != nil {
			return err
		}
		if ok {
			all = append(all, e)
		}
		if ok && e.Subject.Kind == (events.ExecRequested{}).Kind() {
			if err := w.gatherExecution(ctx, g, seq, add); err != nil {
				return err
			}
		}
	}
	if _, err := l.Fold(ctx, events.ChatSubject(w.Chat, events.ExecRefused{}.Kind()), r.Seq, add); err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b events.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	all = slices.CompactFunc(all, func(a, b events.Event) bool { return a.Seq == b.Seq })
	for _, e := range all {
		d, err := events.Decode(e)
		if err == nil && w.apply(e, d) {
			w.Events = append(w.Events, WhyEvent{e.Seq, e.Subject.Kind, e.Time})
		}
	}
	return nil
}

// gatherExecution calls add with the events of the chat's executions, from the first to the last event of the
// request's own execution.
func (w *explanation) gatherExecution(ctx context.Context, g Gate, beginning uint64,
	add func(events.Event) error) error {
	l, filter := g.Permissions.Log, events.ChatSubject(w.Chat, "exec.*")
	last, err := g.LastOfExecution(ctx, w.request.Execution)
	if err != nil {
		return err
	}
	if last == 0 { // it runs
		_, err = l.Fold(ctx, filter, beginning, add)
		return err
	}
	return l.FoldTo(ctx, filter, beginning, last, add)
}

// apply reports whether an event is about the request. It updates the executions with the event.
func (w *explanation) apply(e events.Event, d events.Data) bool {
	switch d := d.(type) {
	case events.PermissionRequested:
		return e.Seq == w.request.Seq
	case events.PermissionReferred:
		return d.Permission == w.Permission
	case events.PermissionInterrupted:
		return d.Permission == w.Permission
	case events.PermissionDecided:
		return d.Permission == w.Permission || d.ApprovalOf == w.Permission // another request has used this one's approval
	case events.PermissionExpired:
		if d.Permission == w.Permission && w.Decision != nil && w.Decision.Decision == events.Authorized {
			w.Expired = &WhyExpired{d.Reason, e.Time}
		}
		return d.Permission == w.Permission
	case events.OpenCode:
		return !w.request.ViaAPI && isAbout(d, w.Permission)
	}
	return w.applyExec(e, d)
}

// applyExec updates the executions with an event, and reports whether the event is about one of them. The event of a
// refused attempt names no decision, so applyExec matches it by its tool call.
func (w *explanation) applyExec(e events.Event, d events.Data) bool {
	switch d := d.(type) {
	case events.ExecRequested:
		if d.Permission != w.Permission {
			return false
		}
		w.execs[d.Exec] = len(w.Executions)
		w.Executions = append(w.Executions, WhyExecution{
			ID: d.Exec, Command: d.Command, Original: d.Original, Cwd: d.Cwd, Status: events.ExecutionRunning,
			Started: e.Time,
		})
	case events.ExecRefused:
		if w.request.ViaAPI || d.Call != w.Request.Call || d.Session != w.Request.Session {
			return false
		}
		w.Executions = append(w.Executions, WhyExecution{
			ID: d.Exec, Command: d.Command, Cwd: d.Cwd, Status: events.ExecutionRefused, Reason: d.Reason,
			ExitCode: wire.ExitRefused, Finished: e.Time,
		})
	case events.ExecFinished:
		if !w.ran(d.Exec) {
			return false
		}
		x := &w.Executions[w.execs[d.Exec]]
		x.ExitCode, x.Reason, x.Finished, x.Status = d.ExitCode, cmp.Or(d.Error, d.Reason), e.Time, d.Status
	case events.ExecConnected:
		return d.Permission == w.Permission
	case events.ExecStarted:
		return w.ran(d.Exec)
	case events.ExecSignalled:
		if !w.ran(d.Exec) {
			return false
		}
		x := &w.Executions[w.execs[d.Exec]]
		x.Signals = append(x.Signals, WhySignal{d.Signal, e.Actor, e.Time})
	case events.ExecChanged:
		return w.ran(d.Exec)
	default:
		return false
	}
	return true
}

// ran reports whether the decision started an execution.
func (w *explanation) ran(exec string) bool {
	_, ours := w.execs[exec]
	return ours
}

// isAbout reports whether an event of OpenCode makes or answers a request.
func isAbout(d events.OpenCode, id string) bool {
	switch d.Type {
	case events.PermissionAsked:
		p, err := opencode.Read[events.PermissionRequest](d)
		return err == nil && p.ID == id
	case events.PermissionReplied:
		p, err := opencode.Read[opencode.PermissionReplied](d)
		return err == nil && p.RequestID == id
	}
	return false
}

// name sets the name of the person who decided.
func (w *explanation) name(ctx context.Context, log *log.Log) error {
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
