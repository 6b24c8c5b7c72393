package configuration

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
)

// Changed proposes a SKILL.md that a person changed on disk, with its name and description, once for each text.
// OpenCode gets the sealed text until an administrator approves the proposal.
func (p *Procedures) Changed(ctx context.Context, name, file string) error {
	all, err := record.All[procedure](ctx, p.Records, proposal.Procedures)
	if err != nil {
		return err
	}
	changed, err := readSkill(file)
	if err != nil {
		return err
	}
	for _, r := range all {
		if proposal.SkillName(r.Value.Name) != name {
			continue
		}
		if changed.Name == "" || changed.Name == name {
			changed.Name = r.Value.Name // a skill cannot have any name that a procedure can have
		}
		if changed.Description == "" {
			changed.Description = r.Value.Description
		}
		if changed.Name == r.Value.Name && skill(name, changed) == skill(name, r.Value) {
			return nil
		}
	}
	if changed.Name == "" {
		changed.Name = name
	}
	proposed, err := record.All[proposal.Stored](ctx, p.Records, proposal.Collection)
	if err != nil {
		return err
	}
	for _, r := range proposed {
		if proposal.IsProcedure(r.Value.Kind) && r.Value.Name == changed.Name &&
			r.Value.Content == changed.Content && r.Value.Description == changed.Description {
			return nil
		}
	}
	p.Logger.Warn("a skill was changed on disk; OpenCode gets the approved text, and the change is a proposal",
		"procedure", changed.Name, "see", "pocketcoder procedure list")
	set := record.Fields(map[string]any{"name": changed.Name, "description": changed.Description,
		"content": changed.Content, "authored_by": "human", "status": proposal.Draft})
	_, _, err = p.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: proposal.Collection, Set: set, New: true})
	return err
}

// readSkill reads a SKILL.md. Its name and description are empty if the front matter has none.
func readSkill(file string) (p procedure, err error) {
	file = strings.ReplaceAll(file, "\r\n", "\n")
	p.Content = strings.TrimSpace(proposal.Body(file)) + "\n"
	if p.Content == "\n" {
		return p, errors.New("it has no text")
	}
	front, found := strings.CutPrefix(file, fence)
	if !found {
		return p, nil
	}
	front, _, closed := strings.Cut(front, "\n"+fence)
	if !closed {
		return p, errors.New("its front matter has no end: a line ---")
	}
	var keys struct{ Name, Description string }
	if err := yaml.Unmarshal([]byte(front), &keys); err != nil {
		return p, fmt.Errorf("its front matter is not YAML with a name and a description: %w", err)
	}
	p.Name, p.Description = keys.Name, keys.Description
	return p, nil
}
