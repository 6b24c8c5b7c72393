package console

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"pocketcoder/cmd/client"
	"pocketcoder/cmd/console/render"
	"pocketcoder/handlers/agent"
	"pocketcoder/handlers/policy/display"
)

// noAgent is the name with which a person chooses OpenCode's own agent.
const noAgent = "none"

// slashAgent lists the agents, or chooses one for the chat.
func (c *conversation) slashAgent(ctx context.Context, name string) error {
	all, err := client.Read[[]agent.Listed](ctx, c.System, "/api/agents")
	if err != nil {
		return err
	}
	if name == "" {
		return c.showAgents(ctx, all)
	}
	i := slices.IndexFunc(all, func(a agent.Listed) bool { return a.Name == name })
	id := ""
	switch {
	case i >= 0:
		id = all[i].ID
	case name != noAgent:
		var names []string
		for _, a := range all {
			names = append(names, a.Name)
		}
		return fmt.Errorf("there is no agent %q; available: %s", name, strings.Join(append(names, noAgent), ", "))
	}
	if c.exists {
		err := c.Update(ctx, "chats", c.Chat, map[string]any{"agent": id})
		if err != nil {
			return err
		}
	}
	c.agent = id // for the chat that the first message creates
	c.show.Note("", render.Dim, "(agent of the next messages: %s)", display.OneLine(name, 100))
	return nil
}

func (c *conversation) showAgents(ctx context.Context, all []agent.Listed) error {
	chosen := c.agent
	if c.exists {
		chat, err := c.FindChat(ctx, c.Chat)
		if err != nil {
			return err
		}
		chosen = chat.Agent
	}
	for _, a := range append(all, agent.Listed{Name: noAgent, Description: "OpenCode's own agent"}) {
		mark, st := " ", render.Plain
		if a.ID == chosen {
			mark, st = "*", render.Bold
		}
		c.show.Note("", st, "%s %-20s %s", mark, display.OneLine(a.Name, 100), display.OneLine(a.Description, 200))
	}
	return nil
}
