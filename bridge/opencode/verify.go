package opencode

import (
	"context"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"pocketcoder/bridge/opencode/client"
	"pocketcoder/bridge/opencode/provider"
	"pocketcoder/events"
	"pocketcoder/handlers/model"
)

// verify reads OpenCode's effective configuration, which may include an administrator's /etc/opencode. It refuses a
// configuration that lets a tool run without asking, has another shell, or has other plugins than ours. It returns the
// models that OpenCode can use.
func (s *Supervisor) verify(ctx context.Context, c *client.Client) (client.Models, error) {
	if err := s.verifyConfig(ctx, c); err != nil {
		return client.Models{}, err
	}
	models, err := c.Models(ctx, s.Workspace)
	if err != nil && s.current().Catalogue != nil {
		err = fmt.Errorf("OpenCode may not understand the file of --model-catalogue; want entries as at https://models.dev/api.json: %w", err)
	}
	if err != nil {
		return client.Models{}, err
	}
	return models, s.verifyModel(ctx, c, models)
}

// projectID matches the ids that OpenCode makes. OpenCode also reads one from .git/opencode in the workspace, and
// joins it to the path of the git repository in which it keeps snapshots. That must not be a repository of the
// workspace, because git runs the programs that the repository's configuration names.
var projectID = regexp.MustCompile(`^([0-9a-f]+|global)$`)

// verifyConfig refuses a configuration that lets a tool run without asking, and a project id that OpenCode did not
// make.
func (s *Supervisor) verifyConfig(ctx context.Context, c *client.Client) error {
	config, err := c.Configuration(ctx, s.Workspace)
	if err != nil {
		return err
	}
	plugins := []any{"file://" + s.pluginFile()}
	switch {
	case config.Shell != s.shell():
		return fmt.Errorf("opencode's configuration names the shell %q, not ours", config.Shell)
	case !reflect.DeepEqual(config.Permission, askAll):
		return fmt.Errorf("opencode's configuration has the permissions %v, not %v", config.Permission, askAll)
	case !reflect.DeepEqual(config.Plugin, plugins):
		return fmt.Errorf("opencode's configuration has the plugins %v, not %v", config.Plugin, plugins)
	case config.MCP[events.OwnServer].URL != s.own.URL:
		return fmt.Errorf("opencode's configuration has the MCP server %s at %q, not ours", events.OwnServer, config.MCP[events.OwnServer].URL)
	}
	project, err := c.ProjectID(ctx, s.Workspace)
	if err != nil {
		return err
	}
	if !projectID.MatchString(project) {
		return fmt.Errorf("the file opencode in the git directory of the workspace holds %q, which is not a project of OpenCode; remove the file", project)
	}
	agents, err := c.Agents(ctx, s.Workspace)
	if err != nil {
		return err
	}
	for _, a := range agents {
		if permission := unguardedPermission(a.Permission); permission != "" {
			return fmt.Errorf("opencode's agent %q may use %q without asking", a.Name, permission)
		}
	}
	return nil
}

// verifyModel refuses a model that OpenCode cannot use. The error lists those that it can.
func (s *Supervisor) verifyModel(ctx context.Context, c *client.Client, models client.Models) error {
	p := s.current()
	if p.Model == "" {
		return nil
	}
	name, model, _ := strings.Cut(p.Model, "/")
	if !slices.Contains(models.Usable, p.Model) {
		return s.unusable(ctx, c, models)
	}
	others := slices.ContainsFunc(models.Usable, func(usable string) bool {
		return strings.HasPrefix(usable, name+"/") && usable != p.Model
	})
	if p.BaseURL != "" && others {
		return fmt.Errorf("--model-url with --model %s: OpenCode knows another provider named %s; give this one another name, such as %s/%s",
			p.Model, name, provider.Custom, model)
	}
	return nil
}

func (s *Supervisor) unusable(ctx context.Context, c *client.Client, models client.Models) error {
	all, err := c.Providers(ctx, s.Workspace)
	if err != nil {
		return err
	}
	provider, name, _ := strings.Cut(s.current().Model, "/")
	reason := fmt.Sprintf("there is no provider %s", provider)
	for _, p := range all {
		if p.ID != provider {
			continue
		}
		switch {
		case p.Connected || !slices.Contains(p.Models, name):
			reason = fmt.Sprintf("provider %s has no model %s; it has %s", provider, name, model.ListOfModels(p.Models))
		case len(p.Env) > 0:
			reason = fmt.Sprintf("provider %s has no key; set %s", provider, strings.Join(p.Env, " or "))
		default:
			reason = fmt.Sprintf("provider %s is not set up", provider)
		}
	}
	usable := "No model can be used yet: set the key of a provider, or name a server with --model-url, or try the demo model with --demo"
	if len(models.Usable) > 0 {
		usable = "Models that can be used: " + model.ListOfModels(models.Usable)
	}
	return fmt.Errorf("--model %s cannot be used: %s. %s", s.current().Model, reason, usable)
}

// unguardedPermission returns a permission that an agent's rules allow after the last rule that asks about everything.
// It returns "*" if no rule asks about everything.
func unguardedPermission(rules []client.AgentRule) string {
	found := "*"
	for _, rule := range rules {
		switch {
		case rule.Permission == "*" && rule.Pattern == "*" && rule.Action != "allow":
			found = ""
		case rule.Action != "allow" || rule.Permission == events.KindExternalDirectory &&
			strings.HasSuffix(rule.Pattern, "/tool-output/*"):
			// OpenCode adds this one to every agent: where it keeps tool output that was too long. Reading there asks too.
		case found == "":
			found = rule.Permission
		}
	}
	return found
}
