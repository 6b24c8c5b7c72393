package texts

// Texts about delegates.
const (
	ChatDelegates  = "Delegates"
	DelegatesRoot  = "The chat that they work for"
	DelegateGone   = "This delegate was deleted. If files or commits of its git worktree were kept, the chat that it worked for lists them."
	DelegateLeft   = "The delegates of that chat"
	StopDelegate   = "Stop this delegate"
	DelegateReport = "A report on the delegates of this chat."
	FromChat       = "Written by the assistant of another chat."
)
