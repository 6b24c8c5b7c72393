package requests

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/a-h/templ"

	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/permission/dryrun"
	"pocketcoder/handlers/record"
	"pocketcoder/web/api"
	"pocketcoder/web/chats"
	"pocketcoder/web/pages/site"
	"pocketcoder/web/pages/texts"
)

// alwaysView is a rule that a person tries before it is stored.
type alwaysView struct {
	requestView
	request  chats.AlwaysRequest
	proposal chats.Proposal
	problem  string // why the rule cannot be stored, "" if it can
}

// showAlways shows the rule that the query describes, and what it would have allowed so far. It stores nothing.
func (q Requests) showAlways(r *http.Request, caller api.Caller) (templ.Component, error) {
	request, err := q.request(r.Context(), caller, r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	v := alwaysView{requestView: request}
	values := r.URL.Query()
	v.request = chats.AlwaysRequest{Pattern: values.Get("pattern"), Scope: values.Get("scope"), For: values.Get("for")}
	if v.request.Scope == "" {
		v.request.Scope = permission.ScopeChat
	}
	v.proposal, err = q.Chats.ProposeAlways(r, caller, v.entry.ID, v.request)
	if problem := api.ProblemOf(err); err != nil && problem.Status != http.StatusBadRequest {
		return nil, err
	} else if err != nil {
		v.problem = site.ProblemText(problem)
	}
	return alwaysPage(caller, v), nil
}

// saveAlways stores the rules that the form showed, and approves the request if it is pending.
func (q Requests) saveAlways(_ http.ResponseWriter, r *http.Request, caller api.Caller) (string, error) {
	shown := r.PostFormValue("shown_request")
	if shown == "" { // the API takes it for a caller who checks nothing
		return "", api.BadField("shown_request", "validation_required", texts.NothingShown)
	}
	request := chats.AlwaysRequest{
		Pattern: r.PostFormValue("pattern"), Scope: r.PostFormValue("scope"), For: r.PostFormValue("for"), ShownRequest: permission.ShownRequest{Request: shown},
	}
	if err := json.Unmarshal([]byte(r.PostFormValue("shown_rules")), &request.ShownRules); err != nil ||
		len(request.ShownRules) == 0 {
		return "", api.BadField("shown_rules", "validation_required", texts.NothingShown)
	}
	id := r.PathValue("id")
	_, err := q.Chats.AllowAlways(r, caller, id, request)
	return singleRequestPath(id), err
}

// pattern is the pattern that a person edits: the one they gave, or the proposed one. Several proposed rules have none
// in common.
func (v alwaysView) pattern() string {
	if v.request.Pattern == "" && len(v.proposal.Rules) == 1 {
		return v.proposal.Rules[0].Pattern
	}
	return v.request.Pattern
}

// shownRules is the proposed rules as a form sends them back.
func (v alwaysView) shownRules() string { return string(api.MustJSON(v.proposal.Rules)) }

func alwaysPath(id string) templ.SafeURL { return templ.SafeURL(singleRequestPath(id) + "/always") }

// option is a choice of a form.
type option struct{ value, text string }

// scopes are those that an account may choose.
func scopes(caller api.Caller) []option {
	all := []option{{permission.ScopeChat, texts.ThisChat}}
	if caller.Is("admin") {
		all = append(all, option{permission.ScopeAgent, texts.ThisAgent}, option{permission.ScopeAll, texts.AllChats})
	}
	return all
}

var durations = []option{{"1h", texts.OneHour}, {"24h", texts.OneDay}, {"720h", texts.ThirtyDays}, {"", texts.ForEver}}

// resultText sums up a dry run.
func resultText(text string, r dryrun.Result) string { return fmt.Sprintf(text, r.Allowed, r.Asks) }

// decided says how often something was requested, and how the requests were decided.
func decided(c dryrun.Command) string {
	var outcomes []string
	for _, outcome := range slices.Sorted(maps.Keys(c.Decided)) {
		outcomes = append(outcomes, fmt.Sprintf("%d %s", c.Decided[outcome], outcome))
	}
	if c.Count == 1 {
		return fmt.Sprintf(texts.OnceAsked, strings.TrimPrefix(outcomes[0], "1 "))
	}
	return fmt.Sprintf(texts.TimesAsked, c.Count, strings.Join(outcomes, ", "))
}

// refused reports whether a person or a rule denied a request that the new rule would have allowed.
func refused(c dryrun.Command) bool { return c.Decided["denied"]+c.Decided["denied by a rule"] > 0 }

// widest is the dry run over all that the account may see.
func (v alwaysView) widest() dryrun.Result {
	if v.proposal.All != nil && v.request.Scope != permission.ScopeChat {
		return *v.proposal.All
	}
	return v.proposal.Chat
}

func ruleText(r record.Rule) string { return r.String() }
