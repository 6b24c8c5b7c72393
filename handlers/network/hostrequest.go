package network

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy/hostport"
)

// maxOpenRequests limits the pending requests for hosts of one chat.
const maxOpenRequests = 8

// decideByPerson returns the decision of a person, or the request that the connection waits for. It returns a new
// request if none is pending. A decision applies to the commands that waited for it. An approval that came when no
// command waited applies to the next one.
func (x *Execution) decideByPerson(s *permission.State, at hostport.Address, now time.Time) connectDecision {
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
func (x *Execution) decideByCommand(s *permission.State, at hostport.Address, now time.Time) connectDecision {
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
