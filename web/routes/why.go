package routes

import (
	"context"
	"net/http"

	"pocketcoder/handlers/permission"
	"pocketcoder/handlers/policy"
	"pocketcoder/web/api"
)

// whyPermission explains a permission request to all who may view it.
func (s *Chats) whyPermission(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	found, err := s.API.Find(r.Context(), caller, "permissions", r.PathValue("id"))
	if err != nil {
		return err
	}
	why, err := permission.Explain(r.Context(), s.Gate, found.Text("chat"), found.Text("ai_engine_permission_id"))
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, why)
}

// Proposal is a rule that would allow a permission request.
type Proposal struct {
	Rules []policy.Rule `json:"rules"`
	// what the rules do not cover, though their patterns look as if they did
	Limits []string                 `json:"limits,omitempty"`
	Chat   permission.DryRunResult  `json:"chat"`          // over the chat's history
	All    *permission.DryRunResult `json:"all,omitempty"` // over that of all chats, for administrators
}

// AlwaysRequest describes a rule to make of a permission request.
type AlwaysRequest struct {
	Pattern string `json:"pattern,omitempty"` // the smallest sensible one when absent
	Scope   string `json:"scope,omitempty"`   // chat (when absent), agent or all
	For     string `json:"for,omitempty"`     // such as 1h; for ever when absent
	permission.ShownRequest
	// as proposed; if the rules would be others now, nothing is stored
	ShownRules []policy.Rule `json:"shown_rules,omitempty"`
}

// alwaysAnswer names the stored rules.
type alwaysAnswer struct {
	Rules []string `json:"rules"` // as in rule_id: tool_permissions/RECORD
}

func (s *Chats) proposeAlways(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	q := r.URL.Query()
	p, err := s.ProposeAlways(r, caller, r.PathValue("id"), AlwaysRequest{Pattern: q.Get("pattern"), Scope: q.Get("scope"),
		For: q.Get("for")})
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, p)
}

// ProposeAlways returns the rules that would allow what a permission request asks for, and what they would have
// allowed so far.
func (s *Chats) ProposeAlways(r *http.Request, caller api.Caller, id string, request AlwaysRequest) (p Proposal,
	err error) {
	c, err := s.always(r, caller, id, request)
	if err != nil {
		return p, err
	}
	give, err := s.API.AcquireQuerySlot(r.Context(), caller.Key()) // it reads the whole history
	if err != nil {
		return p, err
	}
	defer give()
	proposed, err := s.Gate.ProposeAlways(r.Context(), c)
	if err != nil {
		return p, err
	}
	p = Proposal{Rules: proposed.Rules, Limits: proposed.Limits, Chat: proposed.Chat}
	if caller.Is("admin") {
		p.All = &proposed.All
	}
	return p, nil
}

func (s *Chats) allowAlways(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body AlwaysRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	rules, err := s.AllowAlways(r, caller, r.PathValue("id"), body)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, alwaysAnswer{rules})
}

// AllowAlways stores rules that allow what a permission request asks for, approves the request if it is pending, and
// returns the ids of the rules.
func (s *Chats) AllowAlways(r *http.Request, caller api.Caller, id string, request AlwaysRequest) ([]string, error) {
	c, err := s.always(r, caller, id, request)
	if err != nil {
		return nil, err
	}
	rules, seq, err := s.Gate.AllowAlways(r.Context(), c)
	if err != nil {
		return nil, err
	}
	return rules, s.API.Model.Wait(r.Context(), seq)
}

// always returns the command for a permission request that the caller may decide. Only administrators make a rule for
// more than one chat.
func (s *Chats) always(r *http.Request, caller api.Caller, id string,
	request AlwaysRequest) (c permission.AllowAlways, err error) {
	permissions, _ := s.API.Collection("permissions")
	about, err := s.API.FindChangeable(r.Context(), caller, permissions, id, permissions.Update)
	if err != nil {
		return c, err
	}
	switch request.Scope {
	case "":
		request.Scope = permission.ScopeChat
	case permission.ScopeAgent, permission.ScopeAll:
		if !caller.Is("admin") {
			return c, api.Forbidden("Only administrators make rules for more than one chat.")
		}
	}
	return permission.AllowAlways{
		Command: caller.Command(), Chat: about.Text("chat"), Permission: about.Text("ai_engine_permission_id"),
		Pattern: request.Pattern, Scope: request.Scope, For: request.For, ShownRequest: request.ShownRequest, ShownRules: request.ShownRules, Client: caller.Client,
	}, nil
}

// replayRequest is a rule to try.
type replayRequest struct {
	Permission string        `json:"permission"`       // bash, edit, …
	Pattern    string        `json:"pattern"`          // as in a record of tool_permissions
	Action     policy.Action `json:"action,omitempty"` // allow (when absent), ask or deny
	Chat       string        `json:"chat,omitempty"`   // over whose history; all, for administrators, when absent
}

// replayPolicy tries a rule on the history of a chat, or of all chats.
func (s *Chats) replayPolicy(w http.ResponseWriter, r *http.Request, caller api.Caller) error {
	var body replayRequest
	if err := api.DecodeBody(r, &body); err != nil {
		return err
	}
	rule := policy.Rule{Permission: body.Permission, Pattern: body.Pattern, Action: body.Action}
	if err := s.mayReplay(r, caller, body.Chat); err != nil {
		return err
	}
	run, err := s.dryRun(r.Context(), caller, rule, body.Chat)
	if err != nil {
		return err
	}
	return api.WriteJSON(w, http.StatusOK, run)
}

func (s *Chats) mayReplay(r *http.Request, caller api.Caller, chat string) error {
	if chat != "" {
		return s.API.MayWrite(r, caller, chat)
	}
	if !caller.Is("admin") {
		return api.Forbidden("Only administrators look at the history of all chats.")
	}
	return nil
}

func (s *Chats) dryRun(ctx context.Context, caller api.Caller, rule policy.Rule,
	chat string) (permission.DryRunResult, error) {
	give, err := s.API.AcquireQuerySlot(ctx, caller.Key())
	if err != nil {
		return permission.DryRunResult{}, err
	}
	defer give()
	return s.Gate.DryRun(ctx, rule, chat)
}
