package events

// Notifications: what is sent to a person's devices because they are needed, or because something ended. They are facts
// about the chat, the record or the account they tell of. An endpoint's URL is a secret and stands in none of them.

// NotificationQueued means that a device is to receive a notification.
type NotificationQueued struct {
	Notification string `json:"notification"` // the same for all devices that receive it
	Device       string `json:"device"`       // record of the collection devices
	User         string `json:"user"`
	Notice
}

// Notice is the content of a notification: its text, and the chat, request or record that it is about.
type Notice struct {
	// permission, question, task_complete, task_error, mcp_request, provider_key, test, or what a client chose
	Type       string `json:"type"`
	Title      string `json:"title"`
	Message    string `json:"message"`
	Chat       string `json:"chat,omitempty"`
	Permission string `json:"permission,omitempty"` // the pending request
	Question   string `json:"question,omitempty"`   // the pending question
	Server     string `json:"server,omitempty"`     // the pending record of mcp_servers
	Whole      bool   `json:"whole,omitempty"`      // Message shows all that an approval would allow
	// hashes of the permission request: see PermissionRequest.ContentHash and HashFiles. Buttons decide only this one
	Request string `json:"request,omitempty"`
	Files   string `json:"files,omitempty"`
}

// NotificationSent means that the push service of the device has accepted the notification.
type NotificationSent struct {
	Notification string `json:"notification"`
	Device       string `json:"device"`
	Service      string `json:"service"`  // fcm, unifiedpush, webpush
	Host         string `json:"host"`     // of the push service
	Attempts     int    `json:"attempts"` // from 1
}

// NotificationFailed means that a notification did not reach the device, and is not tried again.
type NotificationFailed struct {
	Notification string `json:"notification"`
	Device       string `json:"device"`
	Service      string `json:"service,omitempty"`
	Host         string `json:"host,omitempty"`
	Attempts     int    `json:"attempts"`
	Reason       string `json:"reason"`
	Gone         bool   `json:"gone,omitempty"` // the push service does not know the device any more: it was deactivated
}

func (NotificationQueued) Kind() string { return "notification.queued" }
func (NotificationSent) Kind() string   { return "notification.sent" }
func (NotificationFailed) Kind() string { return "notification.failed" }
