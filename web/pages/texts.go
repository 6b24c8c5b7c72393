package pages

// The texts of the pages.
const (
	textProduct = "PocketCoder"

	textLogIn            = "Log in"
	textLogOut           = "Log out"
	textEmail            = "Email"
	textPassword         = "Password"
	textWrongCredentials = "The email or the password is wrong."
	textTooManyLogins    = "Too many failed logins. Try again later."
	textLoggedOut        = "You are logged out. Log in again."
	textNoAccount        = "No account yet? The server shows a one-time link when it starts for the first time."
	textAPI              = "API"

	textProblem = "That did not work"
	textBack    = "Back to the chats"

	textChats         = "Chats"
	textNoChats       = "No chat yet. Write what should be done."
	textWhatToDo      = "What should be done?"
	textStart         = "Start chat"
	textUntitled      = "Untitled"
	textNothingToSend = "Write a message first."
	textRequests      = "Requests"
)

// stateTexts describe the states of a turn. A turn that completed needs no word.
var stateTexts = map[string]string{
	"queued": "queued", "running": "working", "waiting": "needs you", "failed": "failed", "aborted": "stopped", "lost": "interrupted",
}
