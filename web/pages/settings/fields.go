package settings

import (
	"cmp"

	"pocketcoder/handlers/record"
)

// fieldLabel returns the label of a field with its unit: its own, or the one in fieldLabels, or its name.
func fieldLabel(f record.Field) string {
	label := cmp.Or(f.Label, fieldLabels[f.Name], f.Title())
	if f.Unit != "" {
		label += ", in " + f.Unit
	}
	return label
}

// choiceText describes a value of a select.
func choiceText(f record.Field, value string) string { return cmp.Or(f.Choices[value], value) }

// fieldLabels are the labels of fields of read models.
var fieldLabels = map[string]string{
	"name":            "Name",
	"title":           "Title",
	"description":     "Description",
	"note":            "Note",
	"disabled":        "Disabled",
	"user":            "Account",
	"chat":            "Chat",
	"reason":          "Reason",
	"email":           "Email",
	"role":            "Role",
	"password":        "New password",
	"passwordConfirm": "New password again",
	"oldPassword":     "Current password",
	"emailVisibility": "Others see the email",
	"verified":        "Email verified",
	"avatar":          "Picture",
	"channel":         "Channel",
	"place":           "Conversation",
	"type":            "Type",
	"text":            "Text",
	"about":           "About",
	"state":           "State",
	"attempts":        "Attempts",
	"event":           "Event",
	"target":          "Target",
	"position":        "Position",
	"created":         "Created",
	"updated":         "Changed",
}
