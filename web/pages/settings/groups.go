package settings

import (
	"slices"

	"pocketcoder/web/records"
)

// groups are the collections of the settings by their names, in order.
var groups = []struct {
	title string
	names []string
}{
	{"What is allowed", []string{"tool_permissions", "whitelist_actions", "whitelist_targets", "budgets"}},
	{"Models", []string{"llm_keys", "llm_providers", "model_selection"}},
	{"Agents", []string{"ai_agents", "agent_notes", "ai_prompts", "ai_models", "sops", "proposals", "mcp_servers"}},
	{"People and devices", []string{"users", "projects", "project_members", "devices", "ssh_keys", "notification_rules"}},
	{"Messengers", []string{"pairings", "channels", "webhooks", "webhook_targets", "webhook_failures", "conversations",
		"channel_messages"}},
	{"Work", []string{"schedules"}},
	{"Other records", nil}, // those with a title that no other group names
}

// group is a group of the settings.
type group struct {
	title string
	forms []records.Form
}

// grouped returns the groups with the forms of their collections.
func grouped(forms []records.Form) (all []group) {
	for _, g := range groups {
		one := group{title: g.title}
		for _, name := range g.names {
			i := slices.IndexFunc(forms, func(f records.Form) bool { return f.Name == name })
			one.forms = append(one.forms, forms[i])
			forms = slices.Delete(forms, i, i+1)
		}
		if g.names == nil {
			one.forms = slices.DeleteFunc(forms, func(f records.Form) bool { return f.Title == "" })
		}
		if len(one.forms) > 0 {
			all = append(all, one)
		}
	}
	return all
}
