package events

// Notifications: what is sent to a person's devices because they are needed, or because something ended. They are facts
// about the chat, the record or the account they tell of. An endpoint's URL is a secret and stands in none of them.

// NotificationQueued says that a device is to be told something.
type NotificationQueued struct {
	Notification string `json:"notification"` // one for all devices that are told the same
	Device       string `json:"device"`       // record of the collection devices
	User         string `json:"user"`
	Notice
}

// Notice is what a person reads, and what it is about.
type Notice struct {
	Type       string `json:"type"` // permission, question, task_complete, task_error, mcp_request, or what a client chose
	Title      string `json:"title"`
	Message    string `json:"message"`
	Chat       string `json:"chat,omitempty"`
	Permission string `json:"permission,omitempty"` // the ask that waits
	Question   string `json:"question,omitempty"`   // the question that waits
	Server     string `json:"server,omitempty"`     // the record of mcp_servers that waits
	Whole      bool   `json:"whole,omitempty"`      // Message shows all that an approval would allow
}

// NotificationSent says that the device's push service took it.
type NotificationSent struct {
	Notification string `json:"notification"`
	Device       string `json:"device"`
	Service      string `json:"service"`  // fcm, unifiedpush, webpush
	Host         string `json:"host"`     // of the push service
	Attempts     int    `json:"attempts"` // from 1
}

// NotificationFailed says that the device is not told, and why.
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
