// Package dryrun tries rules on the permission requests that were made so far, and counts what they would have allowed.
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
	Asks     int       `json:"asks"` // all requests
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

// maxDryRunCommands limits the groups that a dry run returns.
const maxDryRunCommands = 100

// Trial tries rules on past requests.
type Trial struct {
	History   History
	Rules     []policy.Rule
	Directory func(chat, session string) string                         // returns the directory of a session
	Ask       func(a events.PermissionAsk, directory string) policy.Ask // returns a request as the policy evaluates it
}

// History calls each with the requests of a chat, or of all chats if chat is empty.
type History func(ctx context.Context, chat string, each func(events.PastRequest)) error

// scan is a running trial.
type scan struct {
	Trial
	verdicts map[[sha256.Size]byte]bool // by the request as the policy evaluates it

	all    *tally
	chat   *tally // of one chat
	chatID string // the id of that chat
}

// Chat tries the rules on the requests of a chat, or of all chats if chat is empty.
func (t Trial) Chat(ctx context.Context, chat string) (Result, error) {
	all, _, err := t.run(ctx, chat, "")
	return all, err
}

// Both tries the rules on all requests, and also counts those of one chat.
func (t Trial) Both(ctx context.Context, chat string) (all, one Result, err error) {
	return t.run(ctx, "", chat)
}

func (t Trial) run(ctx context.Context, chat, which string) (all, one Result, err error) {
	if chat != "" {
		if err := handlers.CheckChat(chat); err != nil {
			return all, one, err
		}
	}
	c := &scan{Trial: t, chatID: which, verdicts: map[[sha256.Size]byte]bool{}, all: newTally(), chat: newTally()}
	err = t.History(ctx, chat, c.count)
	return c.all.result(), c.chat.result(), err
}

// count evaluates the rules on a request.
func (t *scan) count(r events.PastRequest) {
	tallies := []*tally{t.all}
	if r.Chat == t.chatID {
		tallies = append(tallies, t.chat)
	}
	matches := t.matches(r.Chat, r.Ask, r.Cwd)
	for _, in := range tallies {
		if in.asks++; matches {
			in.add(r)
		}
	}
}

// matches reports whether the rules alone would have had their effect on a request. A request with an unknown session
// counts as one in the workspace.
func (t *scan) matches(chat string, a events.PermissionAsk, cwd string) bool {
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

func newTally() *tally { return &tally{groups: map[[2]string]*Command{}} }

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
