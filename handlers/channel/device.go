package channel

import (
	"pocketcoder/handlers/record"
)

// The config collections of the devices that get notifications, and of the rules of an account on which it gets.
const (
	Devices           = "devices"
	notificationRules = "notification_rules"
)

// DeviceTypes are the types of the records of devices and of the rules on notifications.
var DeviceTypes = []record.Type{
	{Name: Devices, Command: "device", Title: "Devices", About: "phones and browsers that receive notifications",
		Access: record.Rules(record.Own, record.Own, record.Own, record.Own, record.Own),
		Unique: []string{"user", "push_token"}, Upsert: true,
		Fields: []record.Field{
			{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", Required: true},
			{Name: "name", Kind: record.Text, Label: "Name", Required: true},
			{Name: "push_token", Kind: record.Text, Label: "Address for notifications", Required: true, Detail: true},
			{Name: "push_service", Kind: record.Select, Label: "Notification service", Values: []string{"fcm", ServiceUnifiedPush, "webpush"}, Required: true},
			{Name: "is_active", Kind: record.Bool, Label: "Enabled", Switch: true},
		}},
	{Name: notificationRules, Command: "notification-rule", Title: "Notification rules", About: "what you are notified about",
		Access: record.Rules(record.Own, record.Own, record.Own, record.Own, record.Own),
		Unique: []string{"user"}, Upsert: true,
		Fields: []record.Field{
			{Name: "user", Kind: record.Relation, Label: "Account", Relation: "users", Required: true},
			{Name: "rules", Kind: record.JSON, Label: "Notify about", Parts: []record.Field{
				notified("permission", "permission requests"), notified("question", "questions"),
				notified("task_complete", "turns that are over"), notified("task_error", "turns that failed"),
				notified("mcp_request", "requested MCP servers"), notified("provider_key", "provider keys that fail"),
			}},
		}},
}

// notified is the part of the rules on a type of notifications. All types are enabled unless the rules disable them.
func notified(name, label string) record.Field {
	return record.Field{Name: name, Kind: record.Bool, Label: label, Absent: "true"}
}

// ServiceUnifiedPush is the push service of ntfy and of UnifiedPush distributors: the token is a URL.
const ServiceUnifiedPush = "unifiedpush"

// Device is a device as commands list it. It leaves out the push token, because the token is enough to read the
// notifications.
type Device struct {
	ID      string `json:"id"`
	User    string `json:"user"` // id of the account
	Name    string `json:"name"`
	Service string `json:"push_service"`
	Host    string `json:"host,omitempty"` // of the push service, where the token is a URL
	Active  bool   `json:"is_active"`
}
