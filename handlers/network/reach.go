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
	waits      bool
	asks       bool   // the permission is yet to be asked for
	permission string // that was asked for it
	reason     string
}

// CheckAddress decides whether the command may connect to an address, host:port in any spelling, and returns the
// address to dial. If no rule decides, it waits for a person. It returns a Refused with a text for the person or model
// that runs the command, or ErrWaiting if no person has decided before ctx's deadline.
func (x *Execution) CheckAddress(ctx context.Context, address string) (policy.Address, error) {
	at, unreadable := policy.ParseAddress(address)
	if unreadable != nil {
		return at, x.conclude(ctx, strings.ToValidUTF8(address[:min(len(address), 256)], "\uFFFD"), 0,
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
	return x.conclude(ctx, at.Host, at.Port, connectDecision{reason: why.Error()})
}

// conclude records a refusal that nothing can change, and gives it.
func (x *Execution) conclude(ctx context.Context, host string, port uint16, c connectDecision) error {
	x.deciding.Lock()
	defer x.deciding.Unlock()
	if d, untold := x.tell(host, port, c); untold {
		e, err := events.New(x.chat, events.ActorPolicy, d)
		if err == nil {
			_, err = x.network.log().Append(ctx, e)
		}
		if err != nil {
			return err
		}
		x.remember(d)
	}
	return handlers.Refuse(handlers.Invalid, "%s", c.reason)
}

// tell gives the event of a decision, unless the same was said already: once for each address that the command is let
// to, and once for each it is kept from, until so much was said that only what it is let to is worth an event.
func (x *Execution) tell(host string, port uint16, c connectDecision) (d events.ExecConnected, untold bool) {
	d = events.ExecConnected{Exec: x.what.Exec, Host: host, Port: int(port), Allowed: c.allowed, Permission: c.permission,
		Reason: c.reason}
	key := recordedConnection{policy.Address{Host: host, Port: port}.String(), c.allowed}
	return d, !x.told[key] && (c.allowed || len(x.told) < 2*maxHosts)
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

func (x *Execution) remember(d events.ExecConnected) {
	if !d.Allowed {
		x.note(addressOf(d), d.Reason)
	}
	x.told[recordedConnection{policy.Address{Host: d.Host, Port: uint16(d.Port)}.String(), d.Allowed}] = true
}

// decide decides about a connection by the rules, the flag and the people, in this order, and records what was decided
// before anything is dialled, or asks. after is how far the log was read.
func (x *Execution) decide(ctx context.Context, at policy.Address) (c connectDecision, after uint64, err error) {
	x.deciding.Lock()
	defer x.deciding.Unlock()
	rules, err := x.network.Gate.InForce(ctx, x.scope())
	if err != nil {
		return c, 0, err
	}
	verdict := permission.EvaluateAddress(rules, at)
	f := x.network.Gate.Permissions.Chat(ctx, x.chat)
	_, err = f.CarryOut(ctx, x.network.log(), handlers.Command{Actor: events.ActorPolicy},
		func(s *permission.State) ([]events.Event, uint64, error) {
			after = f.Last()
			if err := s.Missing(x.chat); err != nil {
				return nil, 0, err
			}
			if x.over() {
				return nil, 0, handlers.Refuse(handlers.Conflict, "the command has ended")
			}
			if c = x.byRule(at, verdict); c.reason == "" {
				c = x.byPerson(s, at, time.Now())
			}
			d, untold := x.tell(at.Host, at.Port, c)
			switch {
			case c.asks:
				e, err := events.New(x.chat, events.ActorPolicy, x.request(c.permission, at))
				return []events.Event{e}, 0, err
			case c.waits || !untold:
				return nil, after, nil
			}
			e, err := events.New(x.chat, events.ActorPolicy, d)
			return []events.Event{e}, 0, err
		})
	if err != nil {
		return c, 0, err
	}
	if len(x.hosts) < maxHosts { // one that is too many is so each time
		x.hosts[at.String()] = true
	}
	if c.waits {
		x.asks[at] = c.permission
	} else if d, untold := x.tell(at.Host, at.Port, c); untold {
		x.remember(d)
	}
	return c, after, nil
}

// byRule decides what no person has to; without a reason it has not.
func (x *Execution) byRule(at policy.Address, v policy.Verdict) connectDecision {
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

// await waits for the end of an ask.
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

// networkMetadata is what an ask for a host says to clients.
type networkMetadata struct {
	Exec    string `json:"exec"`
	Host    string `json:"host"`
	Port    uint16 `json:"port"`
	Command string `json:"command"` // that wants to connect
}

func (x *Execution) request(permissionID string, at policy.Address) events.PermissionRequested {
	metadata, _ := json.Marshal(networkMetadata{x.what.Exec, at.Host, at.Port, x.what.Command}) // texts and a number
	return events.PermissionRequested{
		Permission: permissionID, Type: permission.TypeNetwork, Patterns: []string{at.String()}, Metadata: metadata,
		Message: "May this reach " + at.String() + "? " + cmp.Or(strings.Join(strings.Fields(x.what.Command), " "), "A person's shell"),
		Session: x.what.Session, MessageID: x.tool.MessageID, Call: x.what.Call,
	}
}

// addressOf returns the address of a connection for a person. An address that could not be parsed has no port.
func addressOf(d events.ExecConnected) string {
	if d.Port == 0 {
		return d.Host
	}
	return policy.Address{Host: d.Host, Port: uint16(d.Port)}.String()
}
