package cli

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/handlers/policy/display"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
)

const procedureUsage = `
  pocketcoder procedure list                     list the sealed procedures, and the proposals
  pocketcoder procedure show ID                  print what the approval would change, and the definition; or a procedure
  pocketcoder procedure edit ID FILE             replace the text of a proposal
  pocketcoder procedure approve ID 1f2e3d4c      approve what show printed with this definition
  pocketcoder procedure deny ID                  deny a proposal

Assistants and people propose procedures, agents and prompts. OpenCode gets an approved procedure as a skill. An approved
agent or prompt is stored. approve refuses a proposal that has changed since show printed its definition.
`

// Procedures is the command procedure.
var Procedures = Group{Name: "procedure", Usage: procedureUsage, NoCreate: true,
	Own: func(r *Records, _ *flag.FlagSet) map[string]Verb {
		p := &procedureCommand{r}
		return map[string]Verb{"list": Takes(0, 0, p.list), "show": Takes(1, 1, p.show), "edit": Takes(2, 2, p.edit),
			"approve": Takes(1, 2, p.approve), "deny": Takes(1, 1, p.deny)}
	}}

type procedureCommand struct{ *Records }

// shortDefinition is how much of a definition must be given at least, in characters.
const shortDefinition = 8

// all lists the sealed procedures, and then the proposals.
func (p *procedureCommand) all(ctx context.Context) ([]proposal.Stored, error) {
	sealed, err := client.Read[[]proposal.Stored](ctx, p.System, "/api/procedures")
	if err != nil {
		return nil, err
	}
	proposed, err := client.Read[[]proposal.Stored](ctx, p.System, "/api/proposals")
	return append(sealed, proposed...), err
}

func (p *procedureCommand) one(ctx context.Context, id string) (proposal.Stored, error) {
	all, err := p.all(ctx)
	if err != nil {
		return proposal.Stored{}, err
	}
	i := slices.IndexFunc(all, func(s proposal.Stored) bool { return s.ID == id })
	if i < 0 {
		return proposal.Stored{}, fmt.Errorf("there is no proposal %q; list them with: pocketcoder procedure list", id)
	}
	return all[i], nil
}

func (p *procedureCommand) list(ctx context.Context, _ []string) error {
	all, err := p.all(ctx)
	if err != nil {
		return err
	}
	const empty = "no procedures and no proposals"
	return PrintList(p.Env, p.AsJSON, all, empty, "ID\tKIND\tNAME\tSTATUS", func(s proposal.Stored) []string {
		status := s.Status
		if s.IsPending() {
			status += ", not in effect yet"
		}
		if s.OnDisk != "" {
			status += ", " + display.VisibleLine(s.OnDisk)
		}
		return []string{s.ID, s.Kind, display.OneLine(s.Name, 60), status}
	})
}

func (p *procedureCommand) show(ctx context.Context, args []string) error {
	s, err := p.one(ctx, args[0])
	if err != nil {
		return err
	}
	if p.AsJSON {
		return PrintJSON(p.Env.Stdout, s)
	}
	line := func(name, text string) {
		fmt.Fprintf(p.Env.Stdout, "%-12s %s\n", name, display.VisibleLine(text))
	}
	line("kind", s.Kind)
	line("name", s.Name)
	line("description", s.Description)
	line("status", s.Status)
	line("definition", s.Definition)
	for _, right := range s.Rights {
		line("new right", right)
	}
	if s.Kind == proposal.Agent && len(s.Rights) == 0 {
		line("new right", "none")
	}
	for _, note := range s.Notes {
		line("note", note)
	}
	if s.Effect != "" {
		line("effect", s.Effect)
	}
	if s.Problem != "" {
		line("problem", s.Problem)
	}
	if s.Status == proposal.Sealed {
		line("on disk", cmp.Or(s.OnDisk, "as approved"))
		s.Difference = s.Content
	}
	_, err = fmt.Fprintf(p.Env.Stdout, "\n%s", display.Exact(s.Difference))
	return err
}

func (p *procedureCommand) edit(ctx context.Context, args []string) error {
	text, err := p.read(args[1])
	if err != nil {
		return err
	}
	return p.Update(ctx, proposal.Collection, args[0], map[string]any{"content": string(text)})
}

// read reads a file, or stdin for -.
func (p *procedureCommand) read(file string) ([]byte, error) {
	if file == "-" {
		return io.ReadAll(p.Env.Stdin)
	}
	return os.ReadFile(file)
}

// approve approves a proposal with the definition that was shown. Without one it shows the proposal.
func (p *procedureCommand) approve(ctx context.Context, args []string) error {
	s, err := p.one(ctx, args[0])
	if err != nil {
		return err
	}
	switch {
	case s.Definition == "": // it was stored before proposals had definitions
	case len(args) == 1:
		if err := p.show(ctx, args); err != nil {
			return err
		}
		return fmt.Errorf("nothing is approved yet; approve what is shown with: pocketcoder procedure approve %s %s", s.ID,
			s.Definition[:shortDefinition])
	case len(args[1]) < shortDefinition || !strings.HasPrefix(s.Definition, args[1]):
		return fmt.Errorf("the proposal %s does not have the definition %q; look at it again with: pocketcoder procedure show %[1]s",
			s.ID, args[1])
	}
	return p.Update(ctx, proposal.Collection, s.ID, map[string]any{"status": proposal.Approved,
		record.ShownDefinition: s.Definition})
}

func (p *procedureCommand) deny(ctx context.Context, args []string) error {
	return p.Update(ctx, proposal.Collection, args[0], map[string]any{"status": proposal.Denied})
}
