package permission

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

// DryRunResult counts the requests that rules would have allowed together with the active rules of each chat, with the
// current files. For rules that deny or ask, it counts the requests that they would have denied or asked about.
type DryRunResult struct {
	_ struct{} `form:"Result"`

	Requests int             `json:"asks"` // the last requests, at most MaxDryRunRequests
	Allowed  int             `json:"allowed"`
	Commands []DryRunCommand `json:"commands"` // the allowed ones, the most frequent first, at most 100
}

// DryRunCommand is a group of requests for the same, which would have been allowed.
type DryRunCommand struct {
	_ struct{} `form:"Command"`

	Type    string         `json:"type"` // bash, edit, …
	Text    string         `json:"text"` // the command, path or URL, or else the patterns
	Count   int            `json:"count"`
	Last    time.Time      `json:"last"`
	Decided map[string]int `json:"decided"` // number of requests by events.RequestOutcome
}

// MaxDryRunRequests limits the requests on which rules are tried, because a person waits for the result. An idle
// machine tries about 80,000 requests in a second.
const MaxDryRunRequests = 10_000

// maxDryRunCommands limits the groups that a dry run returns.
const maxDryRunCommands = 100

// DryRun tries rules on past requests, and counts what they would have allowed. A request counts as allowed exactly if
// the rules together with the active rules of its chat allow it, and the rules contribute to that. So the count shows
// what really runs once the rules are stored.
type DryRun struct {
	History   RequestHistory
	Rules     []policy.Rule
	Active    func(ctx context.Context, chat string) (ActiveRules, error) // returns the active rules of a chat
	Directory func(chat, session string) string                           // returns the directory of a session
	// returns a request as the policy evaluates it
	Input func(a events.PermissionRequest, directory string) policy.Input

	active   map[string]ActiveRules     // by chat
	verdicts map[[sha256.Size]byte]bool // by the chat, and the request as the policy evaluates it
}

// ActiveRules evaluates a request with the active rules of a chat and with more rules. more may be empty.
type ActiveRules func(more []policy.Rule, in policy.Input) policy.Verdict

// RequestHistory calls each with the requests of a chat, or of all chats if chat is empty, the last one first, until
// each returns false.
type RequestHistory func(ctx context.Context, chat string, each func(events.PastRequest) bool) error

// Run tries the rules on the last requests of a chat, or of all chats if chat is empty.
func (t *DryRun) Run(ctx context.Context, chat string) (DryRunResult, error) {
	if chat != "" {
		if err := handlers.CheckChat(chat); err != nil {
			return DryRunResult{}, err
		}
	}
	if t.verdicts == nil {
		t.active, t.verdicts = map[string]ActiveRules{}, map[[sha256.Size]byte]bool{}
	}
	run := dryRunTally{groups: map[[2]string]*DryRunCommand{}}
	var failed error
	err := t.History(ctx, chat, func(r events.PastRequest) bool {
		active, err := t.activeIn(ctx, r.Chat)
		if failed = err; err != nil {
			return false
		}
		if run.requests++; t.matches(active, r.Chat, r.Request, r.Cwd) {
			run.add(r)
		}
		return run.requests < MaxDryRunRequests
	})
	return run.result(), cmp.Or(failed, err)
}

// activeIn returns the active rules of a chat.
func (t *DryRun) activeIn(ctx context.Context, chat string) (ActiveRules, error) {
	active := t.active[chat]
	if active == nil {
		var err error
		if active, err = t.Active(ctx, chat); err != nil {
			return nil, err
		}
		t.active[chat] = active
	}
	return active, nil
}

// matches reports whether the rules would have had their effect on a request. A request with an unknown session
// counts as one in the workspace.
func (t *DryRun) matches(active ActiveRules, chat string, a events.PermissionRequest, cwd string) bool {
	directory, is := t.Directory(chat, a.SessionID), a.About()
	like := sha256.Sum256([]byte(strings.Join(append([]string{chat, a.Permission, directory, cwd, is.Command, is.Filepath,
		is.URL}, a.Patterns...), "\x00")))
	matches, known := t.verdicts[like]
	if !known {
		in := t.Input(a, directory)
		if cwd != "" {
			in.Cwd = cwd
		}
		matches = t.contributes(active, in)
		t.verdicts[like] = matches
	}
	return matches
}

// contributes reports whether a request has the effect of the rules once they are active too, and not without them. A
// request on which the rules alone have their effect counts even if an active rule has the same effect.
func (t *DryRun) contributes(active ActiveRules, in policy.Input) bool {
	return t.hasEffect(active(t.Rules, in)) &&
		(t.hasEffect(policy.Evaluate(t.Rules, in)) || !t.hasEffect(active(nil, in)))
}

// hasEffect reports whether a verdict is the action of the rules.
func (t *DryRun) hasEffect(v policy.Verdict) bool {
	wanted := cmp.Or(t.Rules[0].Action, policy.Allow)
	return v.Action == wanted && (wanted == policy.Allow || len(v.Rules) > 0)
}

type dryRunTally struct {
	requests, allowed int
	groups            map[[2]string]*DryRunCommand // by type and text
}

// add counts a request among those for the same.
func (t *dryRunTally) add(r events.PastRequest) {
	t.allowed++
	key := [2]string{r.Request.Permission, r.Request.Text()}
	g := t.groups[key]
	if g == nil {
		g = &DryRunCommand{Type: key[0], Text: key[1], Decided: map[string]int{}}
		t.groups[key] = g
	}
	g.Count++
	g.Decided[string(r.Outcome)]++
	if r.At.After(g.Last) {
		g.Last = r.At
	}
}

func (t *dryRunTally) result() DryRunResult {
	groups := slices.SortedFunc(maps.Values(t.groups), func(a, b *DryRunCommand) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), b.Last.Compare(a.Last), cmp.Compare(a.Type, b.Type),
			cmp.Compare(a.Text, b.Text))
	})
	run := DryRunResult{Requests: t.requests, Allowed: t.allowed, Commands: []DryRunCommand{}}
	for _, group := range groups[:min(len(groups), maxDryRunCommands)] {
		run.Commands = append(run.Commands, *group)
	}
	return run
}
