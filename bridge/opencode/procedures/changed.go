package procedures

import (
	"context"
	"strings"

	"pocketcoder/events"
	"pocketcoder/handlers"
	"pocketcoder/handlers/proposal"
	"pocketcoder/handlers/record"
)

// Changed proposes the text of a SKILL.md that a person changed on disk, once for each text. OpenCode gets the sealed
// text until an administrator approves the proposal.
func (p *Procedures) Changed(ctx context.Context, name, file string) error {
	all, err := record.All[procedure](ctx, p.Records, sealed)
	if err != nil {
		return err
	}
	changed := procedure{Name: name, Content: strings.TrimSpace(body(file)) + "\n"}
	for _, r := range all {
		if skillName(r.Value.Name) == name {
			changed.Name, changed.Description = r.Value.Name, r.Value.Description
			if skill(name, r.Value) == skill(name, procedure{Description: r.Value.Description, Content: file}) {
				return nil // its name or description alone is not proposed
			}
		}
	}
	proposed, err := record.All[proposal.Stored](ctx, p.Records, proposals)
	if err != nil || changed.Content == "\n" {
		return err
	}
	for _, r := range proposed {
		if r.Value.Name == changed.Name && r.Value.Content == changed.Content {
			return nil
		}
	}
	p.Logger.Warn("a skill was changed on disk; OpenCode gets the approved text, and the change is a proposal",
		"procedure", changed.Name, "see", "pocketcoder procedure list")
	set := record.Fields(map[string]any{"name": changed.Name, "description": changed.Description,
		"content": changed.Content, "authored_by": "human", "status": "draft"})
	_, _, err = p.Records.Save(ctx, record.Save{Command: handlers.Command{Actor: events.ActorSystem},
		Collection: proposals, Set: set, New: true})
	return err
}
