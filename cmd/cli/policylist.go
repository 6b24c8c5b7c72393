package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/events"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/policy"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/project"
)

const policyListUsage = `pocketcoder policy list: the rules of the running system, and who created them.

  pocketcoder policy list
  pocketcoder policy list --all                                  the built-in rules too
  pocketcoder policy list --json

Create a rule with "pocketcoder policy allow", ask or deny, with "a" at a request in "pocketcoder chat", or in a client.
It applies to new requests. "pocketcoder policy allow -h" says which pending requests it decides.

Exit status: 0; 1 when there is no such rule or it failed, 2 for wrong usage.
`

type listedRule struct {
	ID      string   `json:"id"` // collection/record
	Rule    string   `json:"rule"`
	Action  string   `json:"action"` // allow, ask, deny; empty for a target
	State   string   `json:"state"`  // active, paused, expired, built in
	Chat    string   `json:"chat,omitempty"`
	Project string   `json:"project,omitempty"` // its name
	Agent   string   `json:"agent,omitempty"`   // its name
	Expires string   `json:"expires,omitempty"`
	Author  string   `json:"author,omitempty"` // email
	Note    string   `json:"note,omitempty"`
	Limits  []string `json:"limits,omitempty"` // what an ambiguous pattern does not cover
}

// ruleFields are the fields of the rule collections.
type ruleFields struct {
	ID               string
	Tool, Permission string
	Pattern, Value   string
	Action           policy.Action
	Active           bool
	Name             string
	Chat, Agent      string
	Project          string
	Expires          string `json:"expires_at"`
	Author, Note     string
}

// ruleCollections are the collections of rules.
var ruleCollections = []string{"tool_permissions", "whitelist_actions", "whitelist_targets"}

func runPolicyList(ctx context.Context, env Environment, args []string) error {
	fs := NewFlags(env, "policy list", policyListUsage)
	at := ServerFlags(fs, env)
	asJSON := fs.Bool("json", false, "print a JSON list")
	all := fs.Bool("all", false, "show the built-in rules too")
	if _, err := Parse(fs, args, 0); err != nil {
		return err
	}
	s, err := client.Connect(ctx, *at)
	if err != nil {
		return err
	}
	defer s.Close()
	stored, err := storedRules(ctx, s)
	if err != nil {
		return err
	}
	if *all {
		inForce, err := s.Rules(ctx)
		if err != nil {
			return err
		}
		for _, r := range inForce {
			if r.ID == "" { // not stored: built in, or a flag of the running system
				stored = append(stored, listedRule{Rule: r.String(), Action: actionOf(r), State: "built in"})
			}
		}
	}
	if *asJSON {
		return PrintJSON(env.Stdout, stored)
	}
	return printRules(env.Stdout, stored)
}

func storedRules(ctx context.Context, s *client.System) ([]listedRule, error) {
	names, err := s.Emails(ctx)
	if err != nil {
		return nil, err
	}
	agents, err := client.Read[[]agent.Listed](ctx, s, "/api/agents")
	if err != nil {
		return nil, err
	}
	for _, a := range agents {
		names[a.ID] = a.Name
	}
	projects, err := client.List[listedProject](ctx, s, project.Collection, client.Select{Sort: "created,id",
		Fields: "id,name,directory"})
	if err != nil {
		return nil, err
	}
	for _, p := range projects {
		names[p.ID] = p.Name
	}
	all := []listedRule{}
	for _, collection := range ruleCollections {
		rules, err := client.List[ruleFields](ctx, s, collection, client.Select{Sort: "created,id"})
		if err != nil {
			return nil, err
		}
		for _, f := range rules {
			all = append(all, listedRule{
				ID: collection + "/" + f.ID, Rule: f.text(collection), Action: f.action(collection), Limits: f.rule().Limits(),
				State: f.state(time.Now()), Chat: f.Chat, Agent: cmp.Or(names[f.Agent], f.Agent),
				Project: cmp.Or(names[f.Project], f.Project), Expires: f.Expires,
				Author: cmp.Or(names[f.Author], f.Author, "operator"), Note: f.Note,
			})
		}
	}
	return all, nil
}

// text returns the rule in the syntax of ParseRule. An action without a value matches all targets, and a target matches
// all actions of its kind.
func (f ruleFields) text(collection string) string {
	switch {
	case collection == "whitelist_targets":
		return "target " + f.Name + ": " + f.Pattern
	case collection == "whitelist_actions" && f.Value == "":
		return f.Permission + ": every target"
	}
	return f.rule().String()
}

// action returns what the rule does. A target only limits the actions of its kind.
func (f ruleFields) action(collection string) string {
	if collection == "whitelist_targets" {
		return ""
	}
	return actionOf(f.rule())
}

func actionOf(r policy.Rule) string { return string(cmp.Or(r.Action, policy.Allow)) }

func (f ruleFields) rule() policy.Rule {
	return policy.Rule{Permission: cmp.Or(f.Tool, f.Permission), Pattern: cmp.Or(f.Pattern, f.Value), Action: f.Action}
}

func (f ruleFields) state(now time.Time) string {
	at, err := time.Parse(events.TimeFormat, f.Expires)
	switch {
	case !f.Active:
		return "paused"
	case err == nil && !at.After(now):
		return "expired"
	}
	return "active"
}

func printRules(w io.Writer, all []listedRule) error {
	const empty = "No rule has been created. Show the built-in rules with \"pocketcoder policy list --all\"."
	err := render.Table(w, all, empty, "ACTION\tRULE\tSTATE\tFOR\tUNTIL\tAUTHOR\tID\tNOTE", func(r listedRule) []string {
		whom := "all chats"
		if r.Chat != "" {
			whom = "chat " + r.Chat
		} else if r.Agent != "" {
			whom = "agent " + r.Agent
		}
		if r.Project != "" {
			whom = strings.TrimPrefix(whom+" of project ", "all chats of ") + r.Project
		}
		until := "-"
		if r.Expires != "" {
			until = display.LocalTime(r.Expires)
		}
		rule := strings.TrimPrefix(r.Rule, r.Action+" ") // the action has a column of its own
		return []string{cmp.Or(r.Action, "-"), display.OneLine(rule, 60), r.State, display.OneLine(whom, 40), until,
			display.OneLine(r.Author, 40), r.ID, display.OneLine(r.Note, 60)}
	})
	for _, r := range all {
		for _, limit := range r.Limits {
			if err == nil {
				_, err = fmt.Fprintf(w, "\n%s: %s", display.OneLine(r.Rule, 60), display.OneLine(limit, 400))
			}
		}
	}
	if err == nil && slices.ContainsFunc(all, func(r listedRule) bool { return len(r.Limits) > 0 }) {
		_, err = fmt.Fprintln(w)
	}
	return err
}
