// Package dryrun tries rules on the last permission requests, and counts what they would have allowed.
//
// It reads a history of requests from the caller, and stores nothing. It must not know which rules are in
// force.
package dryrun

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/policy"
)

// Result counts the requests that rules alone would have allowed, with the current files. For rules that deny or ask,
// it counts the requests that they would have denied or asked about.
type Result struct {
	Asks     int       `json:"asks"` // the last requests, at most MaxRequests
	Allowed  int       `json:"allowed"`
	Commands []Command `json:"commands"` // the allowed ones, the most frequent first, at most 100
}

// Command is a group of requests for the same, which would have been allowed.
type Command struct {
	Type    string         `json:"type"` // bash, edit, …
	Text    string         `json:"text"` // the command, path or URL, or else the patterns
	Count   int            `json:"count"`
	Last    time.Time      `json:"last"`
	Decided map[string]int `json:"decided"` // number of requests by events.RequestOutcome
}

// MaxRequests limits the requests on which rules are tried, because a person waits for the result. An idle machine
// tries about 80,000 requests in a second.
const MaxRequests = 10_000

// maxDryRunCommands limits the groups that a dry run returns.
const maxDryRunCommands = 100

// Trial tries rules on past requests.
type Trial struct {
	History   History
	Rules     []policy.Rule
	Directory func(chat, session string) string                         // returns the directory of a session
	Ask       func(a events.PermissionAsk, directory string) policy.Ask // returns a request as the policy evaluates it

	verdicts map[[sha256.Size]byte]bool // by the request as the policy evaluates it
}

// History calls each with the requests of a chat, or of all chats if chat is empty, the last one first, until each
// returns false.
type History func(ctx context.Context, chat string, each func(events.PastRequest) bool) error

// Run tries the rules on the last requests of a chat, or of all chats if chat is empty.
func (t *Trial) Run(ctx context.Context, chat string) (Result, error) {
	if chat != "" {
		if err := handlers.CheckChat(chat); err != nil {
			return Result{}, err
		}
	}
	if t.verdicts == nil {
		t.verdicts = map[[sha256.Size]byte]bool{}
	}
	run := tally{groups: map[[2]string]*Command{}}
	err := t.History(ctx, chat, func(r events.PastRequest) bool {
		if run.asks++; t.matches(r.Chat, r.Ask, r.Cwd) {
			run.add(r)
		}
		return run.asks < MaxRequests
	})
	return run.result(), err
}

// matches reports whether the rules alone would have had their effect on a request. A request with an unknown session
// counts as one in the workspace.
func (t *Trial) matches(chat string, a events.PermissionAsk, cwd string) bool {
	directory, is := t.Directory(chat, a.SessionID), a.About()
	like := sha256.Sum256([]byte(strings.Join(append([]string{a.Permission, directory, cwd, is.Command, is.Filepath,
		is.URL}, a.Patterns...), "\x00")))
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

// add counts a request among those for the same.
func (t *tally) add(r events.PastRequest) {
	t.allowed++
	key := [2]string{r.Ask.Permission, r.Ask.Text()}
	g := t.groups[key]
	if g == nil {
		g = &Command{Type: key[0], Text: key[1], Decided: map[string]int{}}
		t.groups[key] = g
	}
	g.Count++
	g.Decided[string(r.Outcome)]++
	if r.At.After(g.Last) {
		g.Last = r.At
	}
}

func (t *tally) result() Result {
	groups := slices.SortedFunc(maps.Values(t.groups), func(a, b *Command) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.Text, b.Text))
	})
	run := Result{Asks: t.asks, Allowed: t.allowed, Commands: []Command{}}
	for _, group := range groups[:min(len(groups), maxDryRunCommands)] {
		run.Commands = append(run.Commands, *group)
	}
	return run
}
