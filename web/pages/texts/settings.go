package texts

// The texts of the settings.
const (
	Settings         = "Settings"
	NewRecord        = "New"
	Save             = "Save"
	Delete           = "Delete"
	ImportAgent      = "Import an agent"
	AgentFile        = "Markdown with front matter, in OpenCode's format"
	CheckImport      = "Show the changes"
	NothingToImport  = "The agent is already as in the file."
	AllAgents        = "Agents"
	ExportAgent      = "Export as Markdown"
	ReallyDelete     = "Delete for good"
	ProviderKeys     = "Provider keys"
	KeyProvider      = "Provider"
	AnotherProvider  = "another provider"
	KeyProviderID    = "Id of the provider in OpenCode"
	KeyVariable      = "Environment variable of the key"
	Key              = "Key"
	KeepKey          = "stored; leave empty to keep it"
	SaveAndTest      = "Save and test"
	SeveralVariables = "A provider that needs several variables"
	KeyStored        = "The key is stored"
	KeyUse           = "OpenCode uses the key once no turn runs. If the demo model still answers, choose a model in the " +
		"menu ⋯ of a chat, or start PocketCoder again."
	KeyUnused = "Chats use only the keys that administrators store."

	NewToken           = "New token"
	NewTokenAbout      = "Copy the token now. It is not shown again."
	RenewToken         = "Make a new token"
	RenewTokenAbout    = "The token before is then not valid any more."
	Yes                = "yes"
	No                 = "no"
	NoRecords          = "Nothing is stored here yet."
	FirstRecords       = "The page shows only the first %d records."
	NotANumber         = "must be a number, not %q"
	NotJSON            = "must be JSON"
	ProposalDifference = "What the approval changes:"
	ProposalProblem    = "Not in effect:"
	ProposalPending    = "The proposal is approved, and takes effect when the engine runs."
	RightsGained       = "Rights that the agent gains:"
	NoRightsGained     = "The agent gains no rights."
	NoteVersions       = "Versions"
	CurrentVersion     = "current"
	DeletedVersion     = "deleted"
	VersionOfFile      = "a file of the agent"
	RestoreVersion     = "Restore"
	ServerDifference   = "Changed since the approval:"
	ServerTools        = "Tools: %d (version %s)"
	ServerNotOffered   = "Not offered to the model:"
	LastCall           = "Last call:"
	ChatOfCall         = "in this chat"
	CallRunning        = "is running,"
	CallCompleted      = "completed in %d ms,"
	CallFailed         = "failed after %d ms,"
	Connections        = "Connections of the last seven days:"
	HostAllowed        = "allowed %s"
	HostRefused        = "refused %s"
	ReadOnlyRecords    = "Only the system writes these records."
)

// Collection names a collection of the settings.
type Collection struct{ Name, Title, About string }

// SettingsPages are the pages at the top of groups, by the titles of the groups.
var SettingsPages = map[string]struct{ Path, Title, About string }{
	"Messengers": {"/messengers", "Pairing", "a code for your account, and the people in messengers who act for it"},
	"Work":       {"/schedules", "Schedules", "prompts that start at a time: next runs, last runs, run now"},
}

// EveryChat is the scope of a rule that is for no single chat or agent.
const EveryChat = "every chat"

// SettingsGroups are the collections of the settings, in order.
var SettingsGroups = []struct {
	Title       string
	Collections []Collection
}{
	{"What is allowed", []Collection{
		{"tool_permissions", "Rules", "decide permission requests without you"},
		{"whitelist_actions", "Allowed actions", "kinds of requests that are allowed for all chats"},
		{"whitelist_targets", "Allowed targets", "files that are allowed for all chats"},
		{"budgets", "Budgets", "limit the cost of a chat or of a day"},
	}},
	{"Models", []Collection{
		{"llm_keys", ProviderKeys, "are stored as secrets and never shown"},
		{"llm_providers", "Providers", "that OpenCode knows"},
		{"model_selection", "Selected models", "of chats and accounts"},
	}},
	{"Agents", []Collection{
		{"ai_agents", "Agents", "with their prompts and models"},
		{"agent_notes", "Notes of agents", "what agents remember, with its versions"},
		{"ai_prompts", "Prompts", "texts for agents"},
		{"ai_models", "Models of agents", "names and identifiers"},
		{"sops", "Procedures", "that OpenCode gets as skills"},
		{"proposals", "Proposals", "of procedures, agents and prompts, to read and approve"},
		{"mcp_servers", "MCP servers", "that administrators and agents added"},
	}},
	{"People and devices", []Collection{
		{"users", "Accounts", "of people and agents"},
		{"devices", "Devices", "that receive notifications"},
		{"ssh_keys", "SSH keys", "that give people access to the sandbox"},
		{"notification_rules", "Notification rules", "what you are notified about"},
	}},
	{"Messengers", []Collection{
		{"channels", "Channels", "bots and mailboxes through which people talk to the assistant"},
		{"webhooks", "Webhooks", "through which other systems write to the assistant"},
		{"webhook_targets", "Webhook targets", "URLs that get events"},
		{"webhook_failures", "Failures of webhooks", "events that a target did not accept"},
		{"pairings", "Records of pairings", "every field of them"},
		{"conversations", "Conversations", "and the chats that they write to"},
		{"channel_messages", "Sent messages", "that were sent, wait or failed"},
	}},
	{"Work", []Collection{
		{"schedules", "Records of schedules", "every field of them"},
	}},
}

// KeyVerdicts say what the test of a key found. All name the provider, and all but two what it said.
var KeyVerdicts = map[string]string{
	"accepted":    "%s accepts the key.",
	"refused":     "%s refuses the key (%s). Store another key.",
	"unclear":     "%s did not say whether the key is valid (%s).",
	"unreachable": "%s could not be reached: %s.",
	"untested":    "PocketCoder cannot test keys of %s. Send a message to see whether the key works.",
}
