package settings

import (
	"cmp"
	"slices"

	"pocketcoder/handlers/record"
	"pocketcoder/web/records"
)

// fieldLabel returns the label of a field: that of its type, or the one in fieldLabels, or its name.
func fieldLabel(form records.Form, name string) string {
	all := slices.Concat(form.Fields, form.Fixed, []record.Field{{Name: name}})
	f := all[slices.IndexFunc(all, func(f record.Field) bool { return f.Name == name })]
	return cmp.Or(f.Label, fieldLabels[name], f.Title())
}

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
