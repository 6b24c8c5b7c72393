// Package proposal lists the proposals of procedures, agents and prompts, returns what each would change, and makes the
// changes of approved proposals. A procedure is stored with the SHA-256 of its text, its approver and the time: it is
// sealed.
//
// Promises: a difference compares the proposal with what is in force under its name at that moment. The rights that an
// agent would gain are named one by one. An approval takes effect once, or the proposal is a draft again with the
// reason.
//
// It must not know how a proposal is decided, nor how OpenCode gets an approved procedure.
package proposal

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"pocketcoder/handlers"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/record"
)

type Stored struct {
	ID          string `json:"id"`
	Kind        string `json:"kind"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Content     string `json:"content"`
	Status      string `json:"status"`
	Approved    string `json:"approved_at,omitempty"`
	Effect      string `json:"effect,omitempty"`  // of an approval: "pending" or "done"
	Definition  string `json:"definition"`        // names what was shown, for the approval
	OnDisk      string `json:"on_disk,omitempty"` // of a sealed procedure: what is wrong with the file of its skill
	Change
}

// IsPending reports whether the proposal is approved and has not taken effect yet.
func (s Stored) IsPending() bool { return s.Effect == effectPending }

// Change is what an approval of a proposal would change.
type Change struct {
	Difference string   `json:"difference"` // to what is in force, as a unified diff
	Rights     []string `json:"rights"`     // of an agent: what it may do after the approval and may not do now
	Notes      []string `json:"notes"`      // on parts of the file of an agent that have no effect here
	Problem    string   `json:"problem"`    // why an approval would have no effect
}

// Sealed is the status of a procedure in force.
const Sealed = "sealed"

// Proposals lists proposals and the sealed procedures, and applies approved ones.
type Proposals struct {
	Records *record.Records
	Files   func() map[string]string // what is wrong with the files of skills, by skill; nil without OpenCode
}

// Procedures lists the sealed procedures in the order of their last changes.
func (h Proposals) Procedures(ctx context.Context) (list []Stored, err error) {
	all, err := record.All[Stored](ctx, h.Records, Procedures)
	files := map[string]string{}
	if h.Files != nil {
		files = h.Files()
	}
	for _, r := range all {
		s := Stored{ID: r.ID, Kind: Procedure, Name: r.Value.Name, Description: r.Value.Description,
			Content: r.Value.Content, Status: Sealed, OnDisk: files[SkillName(r.Value.Name)]}
		s.Rights, s.Notes = []string{}, []string{}
		list = append(list, s)
	}
	return list, err
}

// List lists the proposals in the order of their last changes.
func (h Proposals) List(ctx context.Context) ([]Stored, error) {
	all, err := record.All[Stored](ctx, h.Records, Collection)
	list := make([]Stored, len(all))
	for i, r := range all {
		if list[i], err = h.complete(ctx, r.ID, r.Value); err != nil {
			return nil, err
		}
	}
	return list, err
}

// complete adds to a proposal what its approval would change now.
func (h Proposals) complete(ctx context.Context, id string, p Stored) (Stored, error) {
	change, err := h.Change(ctx, p)
	change.Problem = cmp.Or(change.Problem, p.Problem)
	p.ID, p.Kind, p.Change = id, cmp.Or(p.Kind, Procedure), change
	return p, err
}

func (h Proposals) One(ctx context.Context, id string) (Stored, error) {
	p, found, err := record.One[Stored](ctx, h.Records, Collection, id)
	if err == nil && !found {
		err = handlers.Refuse(handlers.NotFound, "There is no proposal %s.", id)
	}
	if err != nil {
		return Stored{}, err
	}
	return h.complete(ctx, id, p)
}

// Change returns what an approval of a proposal would change now.
func (h Proposals) Change(ctx context.Context, p Stored) (c Change, err error) {
	if p.Kind == Agent {
		c, err = h.changeOfAgent(ctx, p)
	} else {
		var now described
		now, err = h.inForce(ctx, p)
		c.Difference = udiff.Unified("in force", "proposed", now.text(p), described{p.Description, p.Content}.text(p))
	}
	c.Rights, c.Notes = append([]string{}, c.Rights...), append([]string{}, c.Notes...)
	return c, err
}

func (h Proposals) changeOfAgent(ctx context.Context, p Stored) (c Change, err error) {
	if err = CheckAgent(p.Name, p.Content); err == nil {
		var i agent.Imported
		i, err = agent.Agents{Records: h.Records}.Import(ctx,
			agent.Import{Text: p.Content, Name: p.Name, Check: true})
		c = Change{Difference: i.Diff, Rights: i.Rights, Notes: i.Notes}
	}
	if refused := (handlers.Refused{}); errors.As(err, &refused) {
		return Change{Difference: udiff.Unified("in force", "proposed", "", p.Content), Problem: refused.Text}, nil
	}
	return c, err
}

type described struct{ Description, Content string }

// text returns the content, with the description before it if the proposal names one.
func (d described) text(p Stored) string {
	if p.Description == "" || d.Content == "" {
		return d.Content
	}
	return "description: " + d.Description + "\n\n" + d.Content
}

// inForce returns the procedure or the prompt with the name of a proposal. It is empty if there is none.
func (h Proposals) inForce(ctx context.Context, p Stored) (now described, err error) {
	if p.Kind == Prompt {
		_, now.Content, err = h.prompt(ctx, p.Name)
		return now, err
	}
	all, err := record.All[Stored](ctx, h.Records, Procedures)
	for _, r := range all {
		if r.Value.Name == p.Name {
			now = described{r.Value.Description, r.Value.Content}
		}
	}
	return now, err
}

// prompt returns the record and the text of the prompt with a name. id is empty if there is none.
func (h Proposals) prompt(ctx context.Context, name string) (id, body string, err error) {
	all, err := record.All[struct{ Name, Body string }](ctx, h.Records, agent.Prompts)
	for _, r := range all {
		if r.Value.Name == name {
			id, body = r.ID, r.Value.Body
		}
	}
	return id, body, err
}

// CheckAgent refuses the file of an agent that cannot be imported, or that is of an agent with another name.
func CheckAgent(name, text string) error {
	f, _, err := agent.Parse(text, name)
	if err == nil && f.Name != name {
		err = handlers.RefuseField(handlers.Invalid, "content", "The proposal is named %q, but its front matter names %q. Use the same name.", name, f.Name)
	}
	return err
}

// maxSkillName is the longest name of a skill in OpenCode.
const maxSkillName = 64

// SkillName returns the name of a procedure in the form that OpenCode accepts: small letters, digits and single
// hyphens.
func SkillName(name string) string {
	words := strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	text := strings.Join(words, "-")
	return strings.Trim(text[:min(len(text), maxSkillName)], "-")
}
