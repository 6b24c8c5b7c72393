package schedule

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
)

// Preview is what a schedule would do if it were saved: when it runs next, and which permission requests of the last
// days a person would have to decide again, with the rules as they are now. It stores nothing.
type Preview struct {
	Next     []time.Time `json:"next"`      // the next runs, in the time zone of the schedule
	TimeZone string      `json:"time_zone"` // IANA name
	History  History     `json:"history"`
}

// History counts the permission requests of the last days, by what the rules would do with them now.
type History struct {
	Days     int     `json:"days"`
	Scope    string  `json:"scope"` // whose requests: chat, agent or account
	Requests int     `json:"requests"`
	Allowed  int     `json:"allowed"`
	Asked    int     `json:"asked"` // a person would have to decide
	Denied   int     `json:"denied"`
	Groups   []Group `json:"groups"` // of those asked or denied, the most frequent first, at most 50
}

// Group is a group of requests for the same.
type Group struct {
	Type   string `json:"type"` // bash, edit, …
	Text   string `json:"text"` // the command, path or URL, or else the patterns
	Count  int    `json:"count"`
	Action string `json:"action"` // ask, deny
	Rule   string `json:"rule"`   // that decides; empty if no rule allows it
}

// The scopes of a history.
const (
	ofChat    = "chat"
	ofAgent   = "agent"
	ofAccount = "account"
)

const (
	previewRuns      = 5
	previewDays      = 30
	maxPreviewGroups = 50
)

// Previews makes previews. All fields must be set.
type Previews struct {
	Gate permission.Gate
	// ChatsOf returns the chats of an account, or of all accounts if user is empty; if agent is not empty, those of the
	// agent alone
	ChatsOf func(ctx context.Context, user, agent string) (map[string]bool, error)
}

// Of returns the preview of a schedule. It refuses one that could not be saved.
func (p Previews) Of(ctx context.Context, s Schedule) (v Preview, err error) {
	if err := s.check(); err != nil {
		return v, err
	}
	d, err := s.due()
	if err != nil {
		return v, err
	}
	now := time.Now()
	spec, err := d.parse(now, time.Local)
	if err != nil {
		return v, err
	}
	v.Next, v.TimeZone = spec.nextRuns(now, previewRuns), spec.Zone.String()
	v.History, err = p.history(ctx, s, now.AddDate(0, 0, -previewDays))
	return v, err
}

func (p Previews) history(ctx context.Context, s Schedule, since time.Time) (h History, err error) {
	h = History{Days: previewDays, Scope: ofChat, Groups: []Group{}}
	isOf := func(events.PastRequest) bool { return true }
	if s.Chat == "" {
		chats, err := p.chats(ctx, s, &h)
		if err != nil {
			return h, err
		}
		isOf = func(r events.PastRequest) bool { return chats[r.Chat] }
	}
	judge, err := p.Gate.PastVerdict(ctx, permission.PastChat{Chat: s.Chat, Project: s.Project, Agent: s.Agent,
		Ceiling: s.Ceiling})
	if err != nil {
		return h, err
	}
	groups := map[Group]int{}
	err = p.Gate.History(ctx, s.Chat, func(r events.PastRequest) bool {
		if r.At.Before(since) || ctx.Err() != nil {
			return false
		}
		if isOf(r) {
			h.count(groups, r, judge(r))
		}
		return true
	})
	for _, g := range slices.SortedFunc(maps.Keys(groups), func(a, b Group) int {
		return cmp.Or(cmp.Compare(groups[b], groups[a]), strings.Compare(a.Type+a.Text, b.Type+b.Text))
	}) {
		g.Count = groups[g]
		h.Groups = append(h.Groups, g)
	}
	h.Groups = h.Groups[:min(len(h.Groups), maxPreviewGroups)]
	return h, cmp.Or(err, ctx.Err())
}

// chats returns the chats whose requests count for a schedule that creates chats: those of its agent, or of its account
// if the agent has none.
func (p Previews) chats(ctx context.Context, s Schedule, h *History) (map[string]bool, error) {
	if s.Agent != "" {
		h.Scope = ofAgent
		if chats, err := p.ChatsOf(ctx, s.User, s.Agent); err != nil || len(chats) > 0 {
			return chats, err
		}
	}
	h.Scope = ofAccount
	return p.ChatsOf(ctx, s.User, "")
}

// count adds a request to those with the same verdict.
func (h *History) count(groups map[Group]int, r events.PastRequest, v policy.Verdict) {
	h.Requests++
	if v.Action == policy.Allow {
		h.Allowed++
		return
	}
	g := Group{Type: r.Request.Permission, Text: r.Request.Text(), Action: "ask"}
	if v.Action == policy.Deny {
		g.Action = "deny"
		h.Denied++
	} else {
		h.Asked++
	}
	var rules []string
	for _, rule := range v.Rules {
		rules = append(rules, rule.String())
	}
	g.Rule = strings.Join(rules, " + ")
	groups[g]++
}
