package proposal

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/account"
	"pocketcoder/handlers/record"
)

// The config collections of proposals, and of the procedures in force.
const (
	Collection = "proposals"
	Procedures = "sops"
)

// The kinds of proposals. An empty kind is a procedure.
const (
	Procedure = "procedure"
	Agent     = "agent"  // Markdown with front matter, as package agent reads it
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

// The effects of an approval. Approvals of older versions have no effect.
const (
	effectPending = "pending" // the change is not made yet
	effectDone    = "done"    // the change is made
)

// shown are the fields that a person approves.
var shown = []string{"kind", "name", "description", "content"}

// Types are the types of the records of proposals, and of the procedures in force.
var Types = []record.Type{
	{Name: Collection, Command: "procedure", Title: "Proposals", About: "procedures, agents and prompts that wait for approval",
		Access:     record.Rules(record.Accounts, record.Accounts, record.Accounts, record.Admins, record.Admins),
		Assistants: record.Verbs{Create: true}, Complete: complete, Tool: "propose",
		ToolAbout: "Propose a procedure, an agent or a prompt to the person. It takes effect when a person has approved it.",
		Fields: []record.Field{
			{Name: "kind", Kind: record.Select, Assistant: "what is proposed: procedure, agent or prompt", Label: "Kind", Values: []string{Procedure, Agent, Prompt}},
			{Name: "name", Kind: record.Text, Assistant: "short name, such as release-notes; that of an agent or a prompt that exists proposes a change of it", Label: "Name", Required: true},
			{Name: "description", Kind: record.Text, Label: "Description", Lines: true},
			{Name: "content", Kind: record.Text, Assistant: "the whole text, in Markdown; of an agent with front matter, as in OpenCode's own agent files", Label: "Text", Required: true, Lines: true},
			{Name: "authored_by", Kind: record.Select, Label: "Written by", Values: []string{"human", "poco"}, Required: true},
			{Name: "status", Kind: record.Select, Label: "Status", Values: []string{Draft, Approved, Denied}, Required: true},
			{Name: "approved_at", Kind: record.Date, Label: "Approved at"},
			{Name: "definition", Kind: record.Text, Label: "Definition", ReadOnly: true},
			{Name: "in_force", Kind: record.Text, Label: "Text in force", ReadOnly: true, Derived: true},
			{Name: "problem", Kind: record.Text, Label: "Problem", ReadOnly: true},
			{Name: "effect", Kind: record.Select, Label: "Effect of the approval", Values: []string{effectPending, effectDone}, ReadOnly: true},
			{Name: record.ShownDefinition, Kind: record.Text, Argument: true, Shown: true, About: shownProposal},
		}},
	{Name: Procedures, Command: "procedure", Title: "Procedures", About: "texts that OpenCode gets as skills",
		Access: record.Rules(record.Accounts, record.Accounts, record.Admins, record.Admins, record.Admins), Unique: []string{"name"},
		Complete: completeProcedure,
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "description", Kind: record.Text, Label: "Description", Required: true, Lines: true},
			{Name: "content", Kind: record.Text, Label: "Text", Required: true, Lines: true},
			{Name: "signature", Kind: record.Text, Label: "SHA-256 of the text", Computed: true, Required: true},
			{Name: "approved_at", Kind: record.Date, Label: "Approved at"},
			{Name: "proposal", Kind: record.Relation, Label: "Proposal", Relation: Collection},
			{Name: "sealed_at", Kind: record.Date, Label: "Sealed at"},
			{Name: "sealed_by", Kind: record.Text, Label: "Sealed by"},
			{Name: "version", Kind: record.Text, Label: "Version"},
		}},
}

const shownProposal = "The definition that was shown. The change is refused if the proposal has another one. An approval " +
	"of an agent or a prompt is refused without it. An approval of a procedure without it is not bound to what was " +
	"shown: it approves the current text."

// complete lets only administrators decide, about the definition that was shown. The author of an agent's proposal is
// poco.
func complete(c record.Change) error {
	if c.Role == account.Agent {
		c.Put("authored_by", "poco")
	}
	if !c.Admin() {
		delete(c.Set, "approved_at")
		if c.Changes("status") && c.Text("status") != Draft {
			return record.Invalid("status", "Must be draft: an administrator approves.")
		}
	}
	if c.ByAccount() {
		c.Put("problem", "")
	}
	old, now := fieldsOf(c.Old), fieldsOf(c.Now())
	if err := old.checkChange(now); err != nil && (c.ByAccount() && c.Changes("status") || c.Changes(shown...)) {
		return err
	}
	definition := c.Set.Text(record.ShownDefinition)
	delete(c.Set, record.ShownDefinition)
	isPending := old.Effect == effectPending && !c.Changes("status")
	if c.ByAccount() && isPending && c.Changes(slices.Collect(maps.Keys(c.Set))...) {
		return handlers.Refuse(handlers.Conflict,
			"This proposal is approved and takes effect soon. Take the approval back first.")
	}
	approves := c.Changes("status") && now.Status == Approved
	// Clients that know only procedures send no definition. They cannot show what an agent or a prompt would change.
	mustShow := definition != "" || approves && !IsProcedure(now.Kind)
	if err := c.CheckShown("proposal", definition); err != nil && mustShow {
		return err
	}
	if approves {
		c.Put("approved_at", cmp.Or(c.Set.Text("approved_at"), events.FormatTime(time.Now())))
		c.Put("effect", effectPending)
	} else if c.Changes("status") && old.Effect != "" {
		c.Put("effect", "")
	}
	c.Put("definition", now.definition())
	return nil
}

// completeProcedure stores the hash of the content, so that a reader can check that the content is the approved one. It
// also stores which account changed it.
func completeProcedure(c record.Change) error {
	delete(c.Set, "signature")
	if _, given := c.Set["content"]; given {
		c.Put("signature", fmt.Sprintf("%x", sha256.Sum256([]byte(c.Set.Text("content")))))
		if c.ByAccount() {
			c.Stamp("sealed_by")
			c.Put("sealed_at", events.FormatTime(time.Now()))
		}
	}
	return nil
}

// decided are the fields of a proposal that decisions depend on.
type decided struct{ Kind, Name, Description, Content, Status, Effect string }

func fieldsOf(v record.Values) decided {
	return decided{v.Text("kind"), v.Text("name"), v.Text("description"), v.Text("content"), v.Text("status"),
		v.Text("effect")}
}

// definition returns the SHA-256 of what is approved.
func (p decided) definition() string {
	all := []string{p.Name, p.Description, p.Content}
	if !IsProcedure(p.Kind) {
		all = append(all, p.Kind)
	}
	body, _ := json.Marshal(all) // texts
	return fmt.Sprintf("%x", sha256.Sum256(body))
}

// checkChange refuses to change an approved proposal. An approval can be taken back while its effect is pending.
func (p decided) checkChange(to decided) error {
	switch {
	case p.Status != Approved || p.Effect == effectPending && to.Status != Approved:
		return nil
	case p.Effect == effectPending:
		return record.Invalid("status", "Must be draft: an approved proposal cannot change.")
	}
	return record.Invalid("status", "Must be approved: the proposal has taken effect. Change or delete what it made.")
}
