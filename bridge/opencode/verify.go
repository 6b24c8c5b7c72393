package opencode

import (
	"context"
	"fmt"
	"reflect"
	"strings"
)

// verify asks OpenCode for the configuration it has in effect, whatever it was made from (an administrator's
// /etc/opencode is merged too), and refuses one that leaves a tool unasked, another shell, or other plugins than ours.
func (s *Supervisor) verify(ctx context.Context, c *Client) error {
	var config struct {
		Shell      string
		Permission map[string]any
		Plugin     []any
	}
	if _, err := c.do(ctx, call{op: "get opencode's configuration", path: "/config", query: inDirectory(s.Workspace), out: &config}); err != nil {
		return err
	}
	plugins := []any{"file://" + s.pluginFile()}
	switch {
	case config.Shell != s.Shell:
		return fmt.Errorf("opencode's configuration names the shell %q, not ours", config.Shell)
	case !reflect.DeepEqual(config.Permission, asks):
		return fmt.Errorf("opencode's configuration has the permissions %v, not %v", config.Permission, asks)
	case !reflect.DeepEqual(config.Plugin, plugins):
		return fmt.Errorf("opencode's configuration has the plugins %v, not %v", config.Plugin, plugins)
	}
	var agents []agent
	if _, err := c.do(ctx, call{op: "list opencode's agents", path: "/agent", query: inDirectory(s.Workspace), out: &agents}); err != nil {
		return err
	}
	for _, a := range agents {
		if permission := a.unasked(); permission != "" {
			return fmt.Errorf("opencode's agent %q may use %q without asking", a.Name, permission)
		}
	}
	return nil
}

// agent is one of OpenCode's agents with its permission rules, of which the last that matches counts.
type agent struct {
	Name       string
	Permission []struct{ Permission, Pattern, Action string }
}

// unasked returns a permission that the agent's rules allow after the last that asks for everything; "*" when none does.
func (a agent) unasked() string {
	found := "*"
	for _, rule := range a.Permission {
		switch {
		case rule.Permission == "*" && rule.Pattern == "*" && rule.Action != "allow":
			found = ""
		case rule.Action != "allow" || rule.Permission == "external_directory" && strings.HasSuffix(rule.Pattern, "/tool-output/*"):
			// OpenCode adds this one to every agent: where it keeps tool output that was too long. Reading there asks too.
		case found == "":
			found = rule.Permission
		}
	}
	return found
}
