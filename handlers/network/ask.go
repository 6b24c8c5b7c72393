package network

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
)

// maxOpenAsks is how many hosts of a chat may wait for a person at a time.
const maxOpenAsks = 8

// byPerson decides as a person has, or says for which ask the connection waits: one that waits already, or a new one.
// A decision holds for the commands that waited for it; an approval that came when none did any more, for the next
// one.
func (x *Execution) byPerson(s *permission.State, at policy.Address, now time.Time) connectDecision {
	if c := x.byCommand(s, at, now); c.allowed {
		return c
	}
	r := s.Request(x.asks[at])
	if !x.counts(s, r, true, now) {
		hosts := s.HostRequests()
		if r = hosts[at.String()]; !x.counts(s, r, false, now) {
			return ask(hosts)
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

// byCommand allows a host that the request for the command showed, when a person approved that request. It holds for
// this execution.
func (x *Execution) byCommand(s *permission.State, at policy.Address, now time.Time) connectDecision {
	outcome := s.Request(x.what.Permission).Outcome
	if d := outcome.Decided; d == nil || !slices.Contains(d.Hosts, at.String()) || s.WhyInvalid(outcome, now) != "" {
		return connectDecision{}
	}
	return connectDecision{allowed: true, permission: x.what.Permission,
		reason: "approved with the command by " + outcome.By}
}

// counts reports whether a request waits for a person, or was decided by one in a way that counts for the command.
func (x *Execution) counts(s *permission.State, r permission.Request, waited bool, now time.Time) bool {
	outcome := r.Outcome
	switch d := outcome.Decided; {
	case r.Seq == 0:
		return false
	case r.Pending():
		return true
	case d == nil || !strings.HasPrefix(outcome.By, events.UserActor("")):
		return false // it expired, or a rule decided, which speaks for itself
	case d.Decision == events.Authorized:
		return (waited || !r.Connected) && s.WhyInvalid(outcome, now) == "" && !s.AbortedAfter(x.what.Session, outcome.Seq)
	}
	return waited
}

// ask returns the passage of a connection that waits for a request of its own, unless too many of the chat's hosts are
// pending.
func ask(hosts map[string]permission.Request) connectDecision {
	open := 0
	for _, r := range hosts {
		if r.Pending() {
			open++
		}
	}
	if open >= maxOpenAsks {
		return connectDecision{reason: fmt.Sprintf("%d other hosts wait for a person's decision already", open)}
	}
	return connectDecision{waits: true, asks: true, permission: events.NewID()}
}
