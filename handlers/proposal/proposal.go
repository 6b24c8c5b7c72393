// Package proposal lists the proposals of procedures, with what each would change.
//
// Promises: a difference compares a proposal with the procedure of its name that is in force at that moment.
//
// It must not know how a proposal is decided, nor how an approved one takes effect.
package proposal

import (
	"context"

	"github.com/aymanbagabas/go-udiff"

	"pocketcoder/handlers"
	"pocketcoder/handlers/record"
)

// Proposal is a stored proposal.
type Proposal struct {
	ID          string `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	Content     string `json:"content"`
	Status      string `json:"status"`
	Definition  string `json:"definition"` // names what was shown, for the approval
	Difference  string `json:"difference"` // to the procedure in force, as a unified diff
}

// Commands are the commands that can be sent over NATS.
func Commands(records *record.Records) handlers.Commands {
	return handlers.Commands{
		"proposal.list": handlers.QueryOf(func(ctx context.Context, _ struct{}) ([]Proposal, error) {
			return List(ctx, records)
		}),
	}
}

// List lists the proposals in the order of their last changes.
func List(ctx context.Context, records *record.Records) ([]Proposal, error) {
	sealed, err := record.All[struct{ Name, Content string }](ctx, records, "sops")
	if err != nil {
		return nil, err
	}
	inForce := map[string]string{}
	for _, p := range sealed {
		inForce[p.Value.Name] = p.Value.Content
	}
	all, err := record.All[Proposal](ctx, records, "proposals")
	list := make([]Proposal, len(all))
	for i, r := range all {
		list[i] = r.Value
		list[i].ID, list[i].Difference = r.ID, Difference(inForce[r.Value.Name], r.Value.Content)
	}
	return list, err
}

// Difference returns the difference between the procedure in force, which is empty if there is none, and a proposal.
func Difference(inForce, proposed string) string {
	return udiff.Unified("in force", "proposed", inForce, proposed)
}
