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

// networkState is what is known of a chat's asks for hosts.
type networkState struct {
	permission.State
	asked map[string]string // by address: the newest ask of the policy's own
	used  map[string]bool   // asks whose approval has let a command through
}

func newNetworkState() *networkState {
	return &networkState{*permission.NewState(), map[string]string{}, map[string]bool{}}
}

func networkFilters(chat string) []string {
	return append(permission.Filters(chat), events.ChatSubject(chat, events.ExecConnected{}.Kind()))
}

func (s *networkState) Apply(e events.Event) {
	s.State.Apply(e)
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.PermissionRequested:
		if e.Actor == events.ActorPolicy && d.Type == permission.TypeNetwork && len(d.Patterns) == 1 && s.RequestEvent(d.Permission) == e.ID {
			s.asked[d.Patterns[0]] = d.Permission
		}
	case events.ExecConnected:
		s.used[d.Permission] = s.used[d.Permission] || d.Allowed
	}
}

// byPerson decides as a person has, or says for which ask the connection waits: one that waits already, or a new one. A decision
// holds for the commands that waited for it; an approval that came when none did any more, for the next one.
func (s *networkState) byPerson(x *Execution, at policy.Address, now time.Time) passage {
	if c := s.byCommand(x, at, now); c.allowed {
		return c
	}
	id := x.asks[at]
	if !s.counts(x, id, true, now) {
		if id = s.asked[at.String()]; !s.counts(x, id, false, now) {
			return s.ask()
		}
	}
	c := passage{permission: id}
	switch how, ended := s.Outcome(id); {
	case !ended:
		c.waits = true
	case how.Decided.Decision == events.Authorized:
		c.allowed, c.reason = true, "approved by "+how.By
	default:
		c.reason = strings.TrimSuffix("denied by "+how.By+": "+how.Decided.Reason, ": ")
	}
	return c
}

// byCommand allows a host that the request for the command showed, when a person approved that request. It holds for this execution.
func (s *networkState) byCommand(x *Execution, at policy.Address, now time.Time) passage {
	how, _ := s.Outcome(x.what.Permission)
	if d := how.Decided; d == nil || !slices.Contains(d.Hosts, at.String()) || s.Void(how, now) != "" {
		return passage{}
	}
	return passage{allowed: true, permission: x.what.Permission, reason: "approved with the command by " + how.By}
}

// counts says whether an ask waits for a person, or was decided by one in a way that counts for a command.
func (s *networkState) counts(x *Execution, id string, waited bool, now time.Time) bool {
	how, settled := s.Outcome(id)
	switch d := how.Decided; {
	case id == "":
		return false
	case !settled:
		return true
	case d == nil || !strings.HasPrefix(how.By, events.UserActor("")):
		return false // it expired, or a rule decided, which speaks for itself
	case d.Decision == events.Authorized:
		return (waited || !s.used[id]) && s.Void(how, now) == "" && !s.AbortedAfter(x.what.Session, how.Seq)
	}
	return waited
}

func (s *networkState) ask() passage {
	open := 0
	for _, id := range s.asked {
		if _, ended := s.Outcome(id); !ended {
			open++
		}
	}
	if open >= maxOpenAsks {
		return passage{reason: fmt.Sprintf("%d other hosts wait for a person's decision already", open)}
	}
	return passage{waits: true, asks: true, permission: events.NewID()}
}
