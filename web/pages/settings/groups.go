package settings

// collection is a collection of the settings.
type collection struct{ Name, Title, About string }

// groups are the collections of the settings, in order.
var groups = []struct {
	Title       string
	collections []collection
}{
	{"What is allowed", []collection{
		{"tool_permissions", "Rules", "decide permission requests without you"},
		{"whitelist_actions", "Allowed actions", "kinds of requests that are allowed for all chats"},
		{"whitelist_targets", "Allowed targets", "files that are allowed for all chats"},
		{"budgets", "Budgets", "limit the cost of a chat or of a day"},
	}},
	{"Models", []collection{
		{"llm_keys", "Provider keys", "are stored as secrets and never shown"},
		{"llm_providers", "Providers", "that OpenCode knows"},
		{"model_selection", "Selected models", "of chats and accounts"},
	}},
	{"Agents", []collection{
		{"ai_agents", "Agents", "with their prompts and models"},
		{"agent_notes", "Notes of agents", "what agents remember, with its versions"},
		{"ai_prompts", "Prompts", "texts for agents"},
		{"ai_models", "Models of agents", "names and identifiers"},
		{"sops", "Procedures", "that OpenCode gets as skills"},
		{"proposals", "Proposals", "of procedures, agents and prompts, to read and approve"},
		{"mcp_servers", "MCP servers", "that administrators and agents added"},
	}},
	{"People and devices", []collection{
		{"users", "Accounts", "of people and agents"},
		{"devices", "Devices", "that receive notifications"},
		{"ssh_keys", "SSH keys", "that give people access to the sandbox"},
		{"notification_rules", "Notification rules", "what you are notified about"},
	}},
	{"Messengers", []collection{
		{"pairings", "Pairing", "a code for your account, and the people in messengers who act for it"},
		{"channels", "Channels", "bots and mailboxes through which people talk to the assistant"},
		{"webhooks", "Webhooks", "through which other systems write to the assistant"},
		{"webhook_targets", "Webhook targets", "URLs that get events"},
		{"webhook_failures", "Failures of webhooks", "events that a target did not accept"},
		{"conversations", "Conversations", "and the chats that they write to"},
		{"channel_messages", "Sent messages", "that were sent, wait or failed"},
	}},
	{"Work", []collection{
		{"schedules", "Schedules", "prompts that start at a time: next runs, last runs, run now"},
	}},
}
