package timeline

import (
	"context"

	"github.com/pocketbase/dbx"
)

// Agent is an agent that a chat can use.
type Agent struct {
	ID   string // record of ai_agents
	Name string
}

// Agents reads the agents that a chat can use, by name.
func Agents(ctx context.Context, db dbx.Builder) (all []Agent, err error) {
	err = list(ctx, db, &all, "agents", `SELECT record AS id, fields->>'$.name' AS name FROM config
		WHERE collection='ai_agents' AND NOT removed ORDER BY name, record`, nil)
	return all, err
}
