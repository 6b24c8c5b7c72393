package channel

import (
	"pocketcoder/events/secret"
	"pocketcoder/handlers/record"
)

// enabled is the default of a new record.
var enabled = map[string]any{"enabled": true}

// Types are the types of the records of channels and webhooks.
var Types = []record.Type{
	{Name: Collection, Command: "channel", Title: "Channels", About: "bots and mailboxes through which people talk to the assistant",
		Access: record.Rules(record.Accounts, record.Accounts, record.Admins, record.Admins, record.Admins),
		Unique: []string{"name"}, Complete: completeChannel, Deleted: deletePairings,
		Secret:   record.SecretStorage{Field: "token", Prefix: "channel", Source: secret.Channels, Changed: "token_changed"},
		Defaults: map[string]any{"enabled": true, "kind": Telegram},
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "kind", Kind: record.Select, Label: "Kind", Values: []string{Telegram, Email}, Required: true},
			{Name: "enabled", Kind: record.Bool, Label: "Enabled", Switch: true},
			{Name: "server", Kind: record.Text, Label: "URL of the server: Bot API, or IMAP for email"},
			{Name: "trigger", Kind: record.Text, Label: "Trigger word in groups"},
			{Name: "address", Kind: record.Text, Label: "Email address"},
			{Name: "smtp", Kind: record.Text, Label: "SMTP server, for email"},
			{Name: "authserv_id", Kind: record.Text, Label: "First word of the Authentication-Results headers, for email"},
			{Name: "token_changed", Kind: record.Date, Label: "Token changed at", ReadOnly: true},
			{Name: "token", Kind: record.Secret, Label: "Token of the bot, or password of the mailbox"},
		}},
	{Name: Webhooks, Command: "incoming-webhook", Title: "Webhooks", About: "URLs through which other systems write to the assistant",
		Access:   record.Rules(record.OwnOrAdmin, record.OwnOrAdmin, record.Own, record.OwnOrAdmin, record.OwnOrAdmin),
		Defaults: enabled, Complete: completeWebhook,
		Secret: record.SecretStorage{Field: "token", Prefix: webhookPrefix, Source: secret.Webhooks, Made: true,
			Changed: "token_changed", Renewed: true},
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", Required: true},
			{Name: "chat", Kind: record.Relation, Label: "Chat", Relation: "chats"},
			{Name: "prompt", Kind: record.Text, Label: "Prompt", Lines: true},
			{Name: "enabled", Kind: record.Bool, Label: "Enabled", Switch: true},
			{Name: "token_changed", Kind: record.Date, Label: "Token changed at", ReadOnly: true},
		}},
	{Name: Targets, Command: "webhook", Title: "Webhook targets", About: "URLs that get events",
		Access:   record.Rules(record.Admins, record.Admins, record.Admins, record.Admins, record.Admins),
		Defaults: enabled, Complete: completeTarget,
		Secret: record.SecretStorage{Field: "token", Prefix: "target", Source: secret.Targets, Made: true, Changed: "restart"},
		Fields: []record.Field{
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "url", Kind: record.Text, Label: "URL", Required: true},
			{Name: "types", Kind: record.Text, Label: "Types of events, with blanks between them", Required: true},
			{Name: "enabled", Kind: record.Bool, Label: "Enabled", Switch: true},
			{Name: "restart", Kind: record.Text, ReadOnly: true, Hidden: true},
		}},
	{Name: Pairings, Internal: true, Command: "pair", Title: "Pairing", About: "a code for your account, and the people in messengers who act for it",
		Access: record.Rules(record.OwnOrAdmin, record.OwnOrAdmin, record.Never, record.Never, record.OwnOrAdmin),
		Fields: []record.Field{
			{Name: "channel", Kind: record.Relation, Label: "Channel", Relation: Collection, ReadOnly: true},
			{Name: "name", Kind: record.Text, Label: "Name", ReadOnly: true},
			{Name: "address", Kind: record.Text, Label: "Sender", ReadOnly: true},
			{Name: "place", Kind: record.Text, Label: "Conversation", ReadOnly: true},
			{Name: "group", Kind: record.Bool, Label: "Group", ReadOnly: true},
			{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", ReadOnly: true},
			{Name: "expires_at", Kind: record.Date, Label: "Expires", ReadOnly: true},
		}},
	{Name: Conversations, Internal: true, Command: "conversation", Title: "Conversations", About: "in messengers, and their chats",
		Access: record.Rules(record.OwnInProjectOrAdmin, record.OwnInProjectOrAdmin, record.Never, record.Never, record.Never),
		Fields: []record.Field{
			{Name: "channel", Kind: record.Relation, Label: "Channel", Relation: Collection, ReadOnly: true},
			{Name: "place", Kind: record.Text, Label: "Conversation", ReadOnly: true},
			{Name: "chat", Kind: record.Relation, Label: "Chat", Relation: "chats", ReadOnly: true},
			{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", ReadOnly: true},
			{Name: "subject", Kind: record.Text, Label: "Subject", ReadOnly: true},
			{Name: "thread", Kind: record.Text, Label: "Thread", ReadOnly: true},
		}},
}
