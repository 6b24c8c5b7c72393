// Package dryrun tries rules on the permission requests that were made so far, and counts what they would have allowed.
//
// It reads the log and stores nothing. It must not know which rules are in force.
package dryrun

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/events/log"
	"pocketcoder/events/opencode"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
)

// Result is what rules, by themselves, would have allowed of what was asked so far: on files as they are now. Of rules that
// deny or ask it is what they would have denied or asked.
type Result struct {
	Asks     int       `json:"asks"` // in all
	Allowed  int       `json:"allowed"`
	Commands []Command `json:"commands"` // those allowed, the most frequent first, at most 100
}

// Command is one thing that would have been allowed, however often it was asked for.
type Command struct {
	Type    string         `json:"type"` // bash, edit, …
	Text    string         `json:"text"` // the command, the path or the address, or else the patterns
	Count   int            `json:"count"`
	Last    time.Time      `json:"last"`
	Decided map[string]int `json:"decided"` // how often it was what: one of the words below
}

// What became of an ask.
const (
	endedWaiting    = "waiting"
	endedAuthorized = "authorized" // by a person
	endedDenied     = "denied"
	endedAllowed    = "authorized by a rule"
	endedRefused    = "denied by a rule"
	endedExpired    = "expired"
	endedElsewhere  = "answered in OpenCode"
)

// maxDryRunCommands is how many things a dry run shows.
const maxDryRunCommands = 100

// Trial tries rules on the requests that were made so far.
type Trial struct {
	Log       *log.Log
	Rules     []policy.Rule
	Directory func(chat, session string) string                         // where a session works
	Ask       func(a events.PermissionAsk, directory string) policy.Ask // a request as the policy looks at it
}

// scan is a trial that reads the log.
type scan struct {
	Trial
	outcomes map[askKey]*outcome
	verdicts map[string]bool // of asks that look the same to the policy

	all   *tally
	chat  *tally // of one chat among all
	which string // that chat
}

type askKey struct{ chat, permission string }

// outcome is what became of an ask, and where it is counted.
type outcome struct {
	how, cwd string
	counted  bool
	groups   []*Command // none when the rules do not match
}

// Chat tries the rules on everything that was requested in a chat, or in all chats when chat is empty.
func (t Trial) Chat(ctx context.Context, chat string) (Result, error) {
	all, _, err := t.run(ctx, cmp.Or(chat, "*"), "")
	return all, err
}

// Both tries the rules on everything that was requested, and counts one of the chats by itself, too.
func (t Trial) Both(ctx context.Context, chat string) (all, one Result, err error) {
	return t.run(ctx, "*", chat)
}

// run first reads what became of the requests, which tells where a command was to run, and then the requests, so that it keeps none. Two
// readers with a filter each are several times as fast as one with both, and as Fold (measured, nats-server 2.15).
func (t Trial) run(ctx context.Context, chat, which string) (all, one Result, err error) {
	if chat != "*" {
		if err := handlers.CheckChat(chat); err != nil {
			return all, one, err
		}
	}
	c := &scan{Trial: t, which: which, outcomes: map[askKey]*outcome{}, verdicts: map[string]bool{}, all: newTally(), chat: newTally()}
	requested := map[askKey]events.Event{}
	err = c.read(ctx, events.ChatSubject(chat, "permission.*"), func(e events.Event) { c.applyOwn(e, requested) })
	if err != nil {
		return all, one, err
	}
	for _, e := range requested {
		c.count(e)
	}
	err = c.read(ctx, events.ChatSubject(chat, "opencode.permission.*"), c.applyOpenCode)
	return c.all.result(), c.chat.result(), err
}

// read calls apply with every event that is there by now.
func (t *scan) read(ctx context.Context, filter string, apply func(events.Event)) error {
	return t.Log.Read(ctx, 0, []string{filter}, func(b log.Batch) error {
		for _, e := range b.Events {
			apply(e)
		}
		if b.Behind == 0 {
			return events.ErrStop
		}
		return ctx.Err()
	})
}

func (t *scan) outcome(chat, permission string) *outcome {
	key := askKey{chat, permission}
	o := t.outcomes[key]
	if o == nil {
		o = &outcome{how: endedWaiting}
		t.outcomes[key] = o
	}
	return o
}

func (t *scan) applyOwn(e events.Event, requested map[askKey]events.Event) {
	d, err := events.Decode(e)
	if err != nil {
		return
	}
	switch d := d.(type) {
	case events.PermissionRequested:
		if key := (askKey{e.Subject.ID, d.Permission}); requested[key].Seq == 0 {
			requested[key] = e
		}
	case events.PermissionReferred:
		t.outcome(e.Subject.ID, d.Permission).cwd = d.Cwd
	case events.PermissionDecided:
		o := t.outcome(e.Subject.ID, d.Permission)
		o.end(decidedHow(e.Actor, d.Decision))
		o.cwd = d.Cwd
	case events.PermissionExpired:
		t.outcome(e.Subject.ID, d.Permission).end(endedExpired)
	}
}

func decidedHow(actor string, d events.Decision) string {
	switch byRule := actor == events.ActorPolicy; {
	case byRule && d == events.Authorized:
		return endedAllowed
	case byRule:
		return endedRefused
	case d == events.Authorized:
		return endedAuthorized
	}
	return endedDenied
}

func (t *scan) applyOpenCode(e events.Event) {
	if typ, _ := e.Subject.OpenCodeType(); typ == events.PermissionAsked {
		t.count(e)
		return
	}
	reply, err := opencode.Read[opencode.PermissionReplied](events.OpenCode{Properties: e.Data})
	if err == nil && reply.RequestID != "" {
		t.outcome(e.Subject.ID, reply.RequestID).end(endedElsewhere)
	}
}

// end takes the first word about what became of an ask.
func (o *outcome) end(how string) {
	if o.how != endedWaiting {
		return
	}
	for _, g := range o.groups {
		if g.Decided[o.how]--; g.Decided[o.how] == 0 {
			delete(g.Decided, o.how)
		}
		g.Decided[how]++
	}
	o.how = how
}

// count evaluates the rules on an ask, the first of its id.
func (t *scan) count(e events.Event) {
	a, _, err := events.PermissionAskOf(e)
	if err != nil {
		return
	}
	o := t.outcome(e.Subject.ID, a.ID)
	if o.counted {
		return
	}
	o.counted = true
	tallies := []*tally{t.all}
	if e.Subject.ID == t.which {
		tallies = append(tallies, t.chat)
	}
	matches := t.matches(e.Subject.ID, a, o.cwd)
	for _, in := range tallies {
		if in.asks++; matches {
			o.groups = append(o.groups, in.add(a, e.Time, o.how))
		}
	}
}

// matches says whether the rules, alone, do with an ask what they say. What nothing is known of any more is taken for the
// workspace's.
func (t *scan) matches(chat string, a events.PermissionAsk, cwd string) bool {
	directory, is := t.Directory(chat, a.SessionID), a.About()
	like := strings.Join(append([]string{a.Permission, directory, cwd, is.Command, is.Filepath, is.URL}, a.Patterns...), "\x00")
	allowed, known := t.verdicts[like]
	if !known {
		in := t.Ask(a, directory)
		if cwd != "" {
			in.Cwd = cwd
		}
		v, wanted := policy.Evaluate(t.Rules, in), cmp.Or(t.Rules[0].Action, policy.Allow)
		allowed = v.Action == wanted && (wanted == policy.Allow || len(v.Rules) > 0)
		t.verdicts[like] = allowed
	}
	return allowed
}

type tally struct {
	asks, allowed int
	groups        map[[2]string]*Command // by type and text
}

func newTally() *tally { return &tally{groups: map[[2]string]*Command{}} }

// add counts an ask among those for the same.
func (t *tally) add(a events.PermissionAsk, at time.Time, how string) *Command {
	t.allowed++
	key := [2]string{a.Permission, a.Text()}
	g := t.groups[key]
	if g == nil {
		g = &Command{Type: key[0], Text: key[1], Decided: map[string]int{}}
		t.groups[key] = g
	}
	g.Count++
	g.Decided[how]++
	if at.After(g.Last) {
		g.Last = at
	}
	return g
}

func (t *tally) result() Result {
	groups := slices.SortedFunc(maps.Values(t.groups), func(a, b *Command) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Text, b.Text))
	})
	run := Result{Asks: t.asks, Allowed: t.allowed, Commands: []Command{}}
	for _, group := range groups[:min(len(groups), maxDryRunCommands)] {
		run.Commands = append(run.Commands, *group)
	}
	return run
}
