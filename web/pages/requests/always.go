package requests

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"pocketcoder/events"
	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/projections/timeline"
	"pocketcoder/web/api"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/routes"
)

// alwaysView is a rule that a person tries before it is stored.
type alwaysView struct {
	requestView
	asked    ruleFields
	proposal routes.Proposal
	problem  string // why the rule cannot be stored, "" if it can
}

// ruleFields are what a person writes and chooses for a rule.
type ruleFields struct{ Pattern, Scope, For string }

func ruleFieldsOf(form url.Values) ruleFields {
	return ruleFields{form.Get("pattern"), form.Get("scope"), form.Get("for")}
}

func (f ruleFields) request() routes.AlwaysRequest {
	return routes.AlwaysRequest{Pattern: f.Pattern, Scope: f.Scope, For: f.For}
}

// shownRule is the rule that the page of a request shows: its fields, what they make, and the request.
type shownRule struct {
	Fields  ruleFields
	Rules   []policy.Rule
	Request string
	Files   string // their hash
}

// showAlways shows the rule that the query describes, and what it would have allowed so far. It stores nothing.
func (q Requests) showAlways(r *http.Request, caller api.Caller) (templ.Component, error) {
	request, err := q.request(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v := alwaysView{requestView: request, asked: ruleFieldsOf(r.URL.Query())}
	v.asked.Scope = cmp.Or(v.asked.Scope, permission.ScopeChat)
	v.proposal, err = q.Chats.ProposeAlways(r, caller, v.entry.ID, v.asked.request())
	if problem := api.ProblemOf(err); err != nil && problem.Status != http.StatusBadRequest {
		return nil, err
	} else if err != nil {
		v.problem = site.ProblemText(problem)
	}
	return alwaysPage(caller, v), nil
}

// saveAlways stores the rules that the page showed, approves the request if it is pending, and leads to its chat, which
// names the rules. If a person changed a field afterwards, it stores nothing and leads to the page that shows what was
// changed.
func (q Requests) saveAlways(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	var shown shownRule
	err := json.Unmarshal([]byte(r.PostFormValue("shown")), &shown)
	if err != nil || shown.Request == "" || len(shown.Rules) == 0 { // the API takes none for a caller who checks nothing
		return "", api.BadField("shown", "validation_required", nothingShown)
	}
	id, fields := r.PathValue("id"), ruleFieldsOf(r.PostForm)
	if fields != shown.Fields {
		changed := url.Values{"pattern": {fields.Pattern}, "scope": {fields.Scope}, "for": {fields.For}}
		return string(alwaysPath(id)) + "?" + changed.Encode(), nil
	}
	request := fields.request()
	request.ShownRequest = permission.ShownRequest{Request: shown.Request, Files: shown.Files}
	request.ShownRules = shown.Rules
	rules, err := q.Chats.AllowAlways(r, caller, id, request)
	if err != nil {
		return "", err
	}
	about, err := q.API.Find(r.Context(), caller, "permissions", id)
	if err != nil {
		return "", err
	}
	return site.ChatPath(about.Text("chat")) + "?" + url.Values{"saved": rules}.Encode(), nil
}

// allowHost stores a rule that lets commands of the chat of a request connect to a host. It decides nothing, and leads
// to the chat, which names the rule.
func (q Requests) allowHost(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	about, err := q.API.Find(r.Context(), caller, "permissions", r.PathValue("id"))
	if err != nil {
		return "", err
	}
	chat := about.Text("chat")
	rule, err := q.Records.Create(r.Context(), caller, "tool_permissions", map[string]any{"chat": chat,
		"tool": events.KindNetwork, "pattern": site.Field(r, "host"), "action": "allow"})
	if err != nil {
		return "", err
	}
	return site.ChatPath(chat) + "?" + url.Values{"saved": {rule}}.Encode(), nil
}

// fields are those of the form: what a person asked for, with the proposed pattern if they gave none. Several proposed
// rules have none in common.
func (v alwaysView) fields() ruleFields {
	f := v.asked
	if f.Pattern == "" && len(v.proposal.Rules) == 1 {
		f.Pattern = v.proposal.Rules[0].Pattern
	}
	return f
}

// shown is what the button of the form sends back.
func (v alwaysView) shown() string {
	return string(api.MustJSON(shownRule{v.fields(), v.proposal.Rules, v.entry.Request.Request,
		v.entry.Request.FilesHash}))
}

// offerText is the text of the link to the rule that would allow a request.
func offerText(r *timeline.Request) string {
	if r.Permission.Permission == events.KindNetwork {
		return "Always allow this host…"
	}
	return "Always…"
}

func hostPath(id string) templ.SafeURL { return templ.SafeURL(singleRequestPath(id) + "/host") }

func alwaysPath(id string) templ.SafeURL { return templ.SafeURL(singleRequestPath(id) + "/always") }

// scopes are those that an account may choose.
func scopes(caller api.Caller) []site.Option {
	all := []site.Option{{Value: permission.ScopeChat, Text: "this chat"}}
	if caller.Is("admin") {
		all = append(all, site.Option{Value: permission.ScopeAgent, Text: "the agent that asks, in all chats"},
			site.Option{Value: permission.ScopeAll, Text: "all chats"})
	}
	return all
}

var durations = []site.Option{{Value: "1h", Text: "1 hour"}, {Value: "24h", Text: "1 day"},
	{Value: "720h", Text: "30 days"}, {Text: "until you revoke it"}}

// resultText sums up a dry run.
func resultText(text string, r permission.DryRunResult) string {
	return fmt.Sprintf(text, r.Allowed, r.Requests)
}

// decided says how often something was requested, and how the requests were decided.
func decided(c permission.DryRunCommand) string {
	var outcomes []string
	for _, outcome := range slices.Sorted(maps.Keys(c.Decided)) {
		outcomes = append(outcomes, fmt.Sprintf("%d %s", c.Decided[outcome], outcome))
	}
	if c.Count == 1 {
		return fmt.Sprintf("asked once: %s", strings.TrimPrefix(outcomes[0], "1 "))
	}
	return fmt.Sprintf("asked %d times: %s", c.Count, strings.Join(outcomes, ", "))
}

// refused reports whether a person or a rule denied a request that the new rule would have allowed.
func refused(c permission.DryRunCommand) bool {
	return c.Decided[string(events.RequestDenied)]+c.Decided[string(events.RequestRefused)] > 0
}

// widest is the dry run over all that the account may see.
func (v alwaysView) widest() permission.DryRunResult {
	if v.proposal.All != nil && v.asked.Scope != permission.ScopeChat {
		return *v.proposal.All
	}
	return v.proposal.Chat
}

func ruleText(r policy.Rule) string { return r.String() }
