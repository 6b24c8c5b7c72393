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
func (x *Execution) byPerson(s *permission.State, at policy.Address, now time.Time) passage {
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
	c := passage{permission: r.ID}
	switch how := r.Outcome; {
	case r.Pending():
		c.waits = true
	case how.Decided.Decision == events.Authorized:
		c.allowed, c.reason = true, "approved by "+how.By
	default:
		c.reason = strings.TrimSuffix("denied by "+how.By+": "+how.Decided.Reason, ": ")
	}
	return c
}

// byCommand allows a host that the request for the command showed, when a person approved that request. It holds for
// this execution.
func (x *Execution) byCommand(s *permission.State, at policy.Address, now time.Time) passage {
	how := s.Request(x.what.Permission).Outcome
	if d := how.Decided; d == nil || !slices.Contains(d.Hosts, at.String()) || s.Void(how, now) != "" {
		return passage{}
	}
	return passage{allowed: true, permission: x.what.Permission, reason: "approved with the command by " + how.By}
}

// counts reports whether a request waits for a person, or was decided by one in a way that counts for the command.
func (x *Execution) counts(s *permission.State, r permission.Request, waited bool, now time.Time) bool {
	how := r.Outcome
	switch d := how.Decided; {
	case r.Seq == 0:
		return false
	case r.Pending():
		return true
	case d == nil || !strings.HasPrefix(how.By, events.UserActor("")):
		return false // it expired, or a rule decided, which speaks for itself
	case d.Decision == events.Authorized:
		return (waited || !r.Connected) && s.Void(how, now) == "" && !s.AbortedAfter(x.what.Session, how.Seq)
	}
	return waited
}

// ask returns the passage of a connection that waits for a request of its own, unless too many of the chat's hosts are
// pending.
func ask(hosts map[string]permission.Request) passage {
	open := 0
	for _, r := range hosts {
		if r.Pending() {
			open++
		}
	}
	if open >= maxOpenAsks {
		return passage{reason: fmt.Sprintf("%d other hosts wait for a person's decision already", open)}
	}
	return passage{waits: true, asks: true, permission: events.NewID()}
}
