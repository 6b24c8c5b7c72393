package network

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
)

// connectDecision is the decision about a connection, or the request that the connection waits for.
type connectDecision struct {
	allowed    bool
	waits      bool   // for the decision of a permission request
	isNew      bool   // the permission request is yet to be appended
	permission string // id of the request
	reason     string
}

// CheckAddress decides whether the command may connect to an address, host:port in any spelling, and returns the
// address to dial. If no rule decides, it waits for a person. It returns a Refused with a text for the person or model
// that runs the command, or ErrWaiting if no person has decided before ctx's deadline.
func (x *Execution) CheckAddress(ctx context.Context, address string) (policy.Address, error) {
	at, unreadable := policy.ParseAddress(address)
	if unreadable != nil {
		return at, x.refuse(ctx, strings.ToValidUTF8(address[:min(len(address), 256)], "\uFFFD"), 0,
			connectDecision{reason: unreadable.Error()})
	}
	for {
		c, after, err := x.decide(ctx, at)
		if err == nil && c.waits {
			err = x.await(ctx, c.permission, after)
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			x.note(at.String(), "no person has decided yet; run the command again when the host is allowed")
			return at, ErrWaiting
		case err != nil:
			return at, err
		case c.allowed:
			return at, nil
		case !c.waits:
			return at, handlers.Refuse(handlers.Conflict, "%s", c.reason)
		}
	}
}

// Private reports whether an address may be private. No command reaches one.
func (x *Execution) Private(policy.Address) bool { return false }

// RecordBlocked records that an allowed host resolved to an address that is not allowed and was not dialled.
func (x *Execution) RecordBlocked(ctx context.Context, at policy.Address, why error) error {
	return x.refuse(ctx, at.Host, at.Port, connectDecision{reason: why.Error()})
}

// refuse records that a connection is refused, and returns the refusal.
func (x *Execution) refuse(ctx context.Context, host string, port uint16, c connectDecision) error {
	x.deciding.Lock()
	defer x.deciding.Unlock()
	if d, isNew := x.eventOf(host, port, c); isNew {
		e, err := events.New(x.chat, events.ActorPolicy, d)
		if err == nil {
			_, err = x.network.log().Append(ctx, e)
		}
		if err != nil {
			return err
		}
		x.markRecorded(d)
	}
	return handlers.Refuse(handlers.Invalid, "%s", c.reason)
}

// eventOf returns the event of a decision. isNew reports whether the event is to be appended: once for each allowed
// and once for each refused address. After 2*maxHosts events, only allowed addresses are recorded.
func (x *Execution) eventOf(host string, port uint16, c connectDecision) (d events.ExecConnected, isNew bool) {
	d = events.ExecConnected{Exec: x.requested.Exec, Host: host, Port: int(port), Allowed: c.allowed,
		Permission: c.permission, Reason: c.reason}
	key := recordedConnection{policy.Address{Host: host, Port: port}.String(), c.allowed}
	return d, !x.recorded[key] && (c.allowed || len(x.recorded) < 2*maxHosts)
}

// maxNotes limits the refusals that the model sees per execution.
const maxNotes = 8

// note records a refusal for the model, once per address.
func (x *Execution) note(address, reason string) {
	x.noting.Lock()
	defer x.noting.Unlock()
	prefix := address + " was refused: "
	if len(x.refusals) < maxNotes && !slices.ContainsFunc(x.refusals, func(s string) bool {
		return strings.HasPrefix(s, prefix)
	}) {
		x.refusals = append(x.refusals, prefix+reason)
	}
}

func (x *Execution) notes() []string {
	x.noting.Lock()
	defer x.noting.Unlock()
	return slices.Clone(x.refusals)
}

func (x *Execution) markRecorded(d events.ExecConnected) {
	if !d.Allowed {
		x.note(addressOf(d), d.Reason)
	}
	x.recorded[recordedConnection{policy.Address{Host: d.Host, Port: uint16(d.Port)}.String(), d.Allowed}] = true
}

// decide decides about a connection by the rules, the mode and a person's decision, in this order. It records the
// decision, or appends a permission request. after is the last sequence that was read.
func (x *Execution) decide(ctx context.Context, at policy.Address) (c connectDecision, after uint64, err error) {
	x.deciding.Lock()
	defer x.deciding.Unlock()
	rules, err := x.network.Gate.RuleSets(ctx, x.scope())
	if err != nil {
		return c, 0, err
	}
	verdict := permission.EvaluateAddress(rules, at)
	f := x.network.Gate.Permissions.Chat(ctx, x.chat)
	_, err = f.Execute(ctx, x.network.log(), handlers.Command{Actor: events.ActorPolicy},
		func(s *permission.State) ([]events.Event, uint64, error) {
			after = f.Last()
			if err := s.Missing(x.chat); err != nil {
				return nil, 0, err
			}
			if x.hasEnded() {
				return nil, 0, handlers.Refuse(handlers.Conflict, "the command has ended")
			}
			if c = x.decideByRule(at, verdict); c.reason == "" {
				c = x.decideByPerson(s, at, time.Now())
			}
			d, isNew := x.eventOf(at.Host, at.Port, c)
			switch {
			case c.isNew:
				e, err := events.New(x.chat, events.ActorPolicy, x.request(c.permission, at))
				return []events.Event{e}, 0, err
			case c.waits || !isNew:
				return nil, after, nil
			}
			e, err := events.New(x.chat, events.ActorPolicy, d)
			return []events.Event{e}, 0, err
		})
	if err != nil {
		return c, 0, err
	}
	if len(x.hosts) < maxHosts { // a host beyond the limit is refused each time
		x.hosts[at.String()] = true
	}
	if c.waits {
		x.requests[at] = c.permission
	} else if d, isNew := x.eventOf(at.Host, at.Port, c); isNew {
		x.markRecorded(d)
	}
	return c, after, nil
}

// decideByRule decides by the rules and the mode. A decision without a reason means that a person has to decide.
func (x *Execution) decideByRule(at policy.Address, v policy.Verdict) connectDecision {
	switch {
	case v.Action == policy.Deny:
		return connectDecision{reason: v.Reason}
	case len(x.hosts) >= maxHosts && !x.hosts[at.String()]:
		return connectDecision{reason: fmt.Sprintf("the command has tried %d hosts already, and may try no other", maxHosts)}
	case v.Action == policy.Allow:
		return connectDecision{allowed: true, reason: v.Reason}
	case x.network.Mode == permission.NetworkOpen && len(v.Rules) == 0 && at.Web():
		return connectDecision{allowed: true, reason: "commands may reach any public host: --network allow"}
	}
	return connectDecision{}
}

// await waits until a permission request is decided or expires.
func (x *Execution) await(ctx context.Context, permission string, after uint64) error {
	return x.network.Tail.Follow(ctx, after, events.ChatSubject(x.chat, "permission.*"), func(e events.Event) error {
		switch d, _ := events.Decode(e); d := d.(type) {
		case events.PermissionDecided:
			if d.Permission == permission {
				return events.ErrStop
			}
		case events.PermissionExpired:
			if d.Permission == permission {
				return events.ErrStop
			}
		}
		return nil
	}, func(uint64) error { return nil })
}

// networkMetadata is the metadata of a permission request for a host.
type networkMetadata struct {
	Exec    string `json:"exec"`
	Host    string `json:"host"`
	Port    uint16 `json:"port"`
	Command string `json:"command"` // that wants to connect
}

func (x *Execution) request(permissionID string, at policy.Address) events.PermissionRequested {
	metadata, _ := json.Marshal(networkMetadata{x.requested.Exec, at.Host, at.Port, x.requested.Command})
	return events.PermissionRequested{
		Permission: permissionID, Type: events.KindNetwork, Patterns: []string{at.String()}, Metadata: metadata,
		Message: "May this reach " + at.String() + "? " + cmp.Or(strings.Join(strings.Fields(x.requested.Command), " "), "A person's shell"),
		Session: x.requested.Session, MessageID: x.tool.MessageID, Call: x.requested.Call,
	}
}

// addressOf returns the address of a connection for a person. An address that could not be parsed has no port.
func addressOf(d events.ExecConnected) string {
	if d.Port == 0 {
		return d.Host
	}
	return policy.Address{Host: d.Host, Port: uint16(d.Port)}.String()
}

// maxOpenRequests limits the pending requests for hosts of one chat.
const maxOpenRequests = 8

// decideByPerson returns the decision of a person, or the request that the connection waits for. It returns a new
// request if none is pending. A decision applies to the commands that waited for it. An approval that came when no
// command waited applies to the next one.
func (x *Execution) decideByPerson(s *permission.State, at policy.Address, now time.Time) connectDecision {
	if c := x.decideByCommand(s, at, now); c.allowed {
		return c
	}
	r := s.Request(x.requests[at])
	if !x.applies(s, r, true, now) {
		hosts := s.HostRequests()
		if r = hosts[at.String()]; !x.applies(s, r, false, now) {
			return requestHost(hosts)
		}
	}
	c := connectDecision{permission: r.ID}
	switch outcome := r.Outcome; {
	case r.Pending():
		c.waits = true
	case outcome.Decided.Decision == events.Authorized:
		c.allowed, c.reason = true, "approved by "+outcome.By
	default:
		c.reason = strings.TrimSuffix("denied by "+outcome.By+": "+outcome.Decided.Reason, ": ")
	}
	return c
}

// decideByCommand allows a host that was named in the request for the command, if a person approved that request. The
// approval is valid for this execution only.
func (x *Execution) decideByCommand(s *permission.State, at policy.Address, now time.Time) connectDecision {
	outcome := s.Request(x.requested.Permission).Outcome
	if d := outcome.Decided; d == nil || !slices.Contains(d.Hosts, at.String()) || s.WhyInvalid(outcome, now) != "" {
		return connectDecision{}
	}
	return connectDecision{allowed: true, permission: x.requested.Permission,
		reason: "approved with the command by " + outcome.By}
}

// applies reports whether a request is pending, or whether a person's decision about it applies to the command. waited
// reports whether the command waited for the request.
func (x *Execution) applies(s *permission.State, r permission.Request, waited bool, now time.Time) bool {
	outcome := r.Outcome
	switch d := outcome.Decided; {
	case r.Seq == 0:
		return false
	case r.Pending():
		return true
	case d == nil || !strings.HasPrefix(outcome.By, events.UserActor("")):
		return false // it expired, or a rule decided it, which decideByRule evaluates again
	case d.Decision == events.Authorized:
		return (waited || !r.Connected) && s.WhyInvalid(outcome, now) == "" &&
			!s.AbortedAfter(x.requested.Session, outcome.Seq)
	}
	return waited
}

// requestHost returns the decision to wait for a new request, or a refusal if too many hosts of the chat are pending.
func requestHost(hosts map[string]permission.Request) connectDecision {
	open := 0
	for _, r := range hosts {
		if r.Pending() {
			open++
		}
	}
	if open >= maxOpenRequests {
		return connectDecision{reason: fmt.Sprintf("%d other hosts of the chat already wait for a person's decision", open)}
	}
	return connectDecision{waits: true, isNew: true, permission: events.NewID()}
}
