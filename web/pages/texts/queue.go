package texts

// The texts of the queue of a chat.
const (
	Queue       = "Queue"
	SendNow     = "Send now"
	EditMessage = "Edit"
	MoveUp      = "Move up"
	MoveDown    = "Move down"
)
