package texts

// The texts of what an account has not seen yet.
const (
	New        = "new"
	NewSince   = "New since you were here"
	MarkAsRead = "Mark as read"
)
