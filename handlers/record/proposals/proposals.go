// Package proposals holds the rules for proposals as records: which fields a definition covers, and when an approved
// proposal may change.
//
// Promises: the functions are pure.
//
// It must not know how an approval changes records.
package proposals

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"pocketcoder/handlers"
)

// The config collections of proposals, and of the procedures in force.
const (
	Collection = "proposals"
	Procedures = "sops"
)

// The kinds of proposals. An empty kind is a procedure.
const (
	Procedure = "procedure"
	Agent     = "agent"  // Markdown with front matter, as package agentfile reads it
	Prompt    = "prompt" // the text of ai_prompts
)

// IsProcedure reports whether proposals of a kind propose a procedure.
func IsProcedure(kind string) bool { return kind == "" || kind == Procedure }

// The statuses of a proposal.
const (
	Draft    = "draft"
	Approved = "approved"
	Denied   = "denied"
)

// The effects of an approval. Pending means that the change is not made yet, and Done that it is made. Approvals of
// older versions have no effect.
const (
	Pending = "pending"
	Done    = "done"
)

// Shown are the fields that a person approves.
var Shown = []string{"kind", "name", "description", "content"}

type Proposal struct{ Kind, Name, Description, Content, Status, Effect string }

// Of returns the proposal with the fields that text returns.
func Of(text func(field string) string) Proposal {
	return Proposal{text("kind"), text("name"), text("description"), text("content"), text("status"), text("effect")}
}

// Definition returns the SHA-256 of what is approved.
func (p Proposal) Definition() string {
	shown := []string{p.Name, p.Description, p.Content}
	if !IsProcedure(p.Kind) {
		shown = append(shown, p.Kind)
	}
	body, _ := json.Marshal(shown) // texts
	return fmt.Sprintf("%x", sha256.Sum256(body))
}

// CheckChange refuses to change an approved proposal. An approval can be taken back while its effect is pending.
func (p Proposal) CheckChange(to Proposal) error {
	switch {
	case p.Status != Approved || p.Effect == Pending && to.Status != Approved:
		return nil
	case p.Effect == Pending:
		return handlers.RefuseField(handlers.Invalid, "status", "Must be draft: an approved proposal cannot change.")
	}
	return handlers.RefuseField(handlers.Invalid, "status",
		"Must be approved: the proposal has taken effect. Change or delete what it made.")
}
