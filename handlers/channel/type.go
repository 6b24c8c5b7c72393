package channel

import "pocketcoder/handlers/record"

// enabled is the default of a new record.
var enabled = map[string]any{"enabled": true}

// Types are the types of the records of channels and webhooks.
var Types = []record.Type{
	{Name: Collection, Unique: []string{"name"}, Defaults: enabled},
	{Name: Webhooks, Defaults: enabled},
	{Name: Targets, Defaults: enabled},
	{Name: Pairings},
	{Name: Conversations},
}
