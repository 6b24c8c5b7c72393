// Package texts holds all English texts of the pages.
package texts

// The texts of the pages.
const (
	Product = "PocketCoder"

	LogIn            = "Log in"
	LogOut           = "Log out"
	Email            = "Email"
	Password         = "Password"
	WrongCredentials = "The email or the password is wrong."
	TooManyLogins    = "Too many failed logins. Try again later."
	LoggedOut        = "You are logged out. Log in again."
	NoAccount        = "No account yet? An administrator adds one on the machine of the server:"
	AddAccount       = "pocketcoder user add EMAIL"
	FirstAccount     = "New server? Its first start prints a one-time link that creates the first account."
	APIPages         = "Documentation of the API"
	ForgotPassword   = "Password forgotten? An administrator sets a new one on the machine of the server:"
	ResetPassword    = "pocketcoder user passwd EMAIL"

	Problem = "That did not work"
	NoPage  = "This page does not exist, or you may not see it."
	Back    = "Back to the chats"

	Offline      = "Not connected: this page is out of date."
	NoScript     = "JavaScript is off. Reload the page to see what is new."
	TooManyPages = "Too many pages of this account are open. Close some of them."
	Unsent       = "The server did not answer. Perhaps this was sent already."
	NewBelow     = "new ↓"

	Chats         = "Chats"
	WhatToDo      = "What should be done?"
	Start         = "Start chat"
	Untitled      = "Untitled"
	NothingToSend = "Write a message first."
	Requests      = "Requests"

	Message      = "Message"
	Send         = "Send"
	Stop         = "Stop"
	Earlier      = "Earlier messages"
	Newest       = "Newest messages"
	Reasoning    = "Reasoning"
	Compacted    = "The conversation was shortened."
	Resumed      = "PocketCoder resumed the turn."
	Stopped      = "Stopped."
	Failed       = "The answer failed."
	Queued       = "Queued."
	Image        = "Image:"
	Patterns     = "patterns"
	NothingShown = "The form does not say which request it showed. Load the page again."
	File         = "file"
	NoLines      = "No line changes: the file is empty, or it already has this content."
	LeftOut      = "… %d bytes left out …"

	Run      = "Run a command"
	RunLines = "Run a command of %d lines"
	Reach    = "Connect to %s"
	Spend    = "Allow more spending"
	Keep     = "Keep %s?"
	Patch    = "Change %d files"
	Edit     = "Change %s (%s)"
	Use      = "Use %s"

	UseOfServer = "Use %s of the MCP server %s"

	ToolOfServer  = "%s (MCP server %s)"
	RunServer     = "Run the MCP server %s"
	ServerChanged = "It has changed since it was approved:"

	NoRequests = "Nothing waits for you."

	Waits          = "waits for you"
	Approved       = "approved by %s"
	ApprovedEdited = "approved with an edit by %s"
	Denied         = "denied by %s"
	Expired        = "expired"
	Kept           = "kept by %s"
	Deleted        = "deleted by %s"
	Rule           = "a rule"
	Answered       = "answered by %s: %s"
	NotAnswered    = "dismissed by %s"

	Details        = "Details"
	Where          = "where"
	OtherFiles     = "other files that it names"
	Asker          = "subagent"
	Why            = "why you are asked"
	Reason         = "reason"
	EditedInto     = "What runs instead:"
	EditedCall     = "edited by a person"
	Approve        = "Approve"
	Deny           = "Deny"
	DenyAndStop    = "Deny and stop"    // ends the turn
	DenyAndExplain = "Deny and explain" // the turn goes on with the reason
	KeepIt         = "Keep it"
	DeleteIt       = "Delete it"
	What           = "what it is"
	CreatedBy      = "created before this ended"
	PersonsShell   = "a person's shell"
	Item           = "in the quarantine" // under this id
	NotApplied     = "The decision was not carried out"
	LeaveForm      = "Cancel"
	ReasonForModel = "Reason, for the model"
	EditCommand    = "Edit"
	RunInstead     = "Command to run instead"
	ApproveEdited  = "Approve the edited command"

	Answer    = "Answer"
	Reject    = "Dismiss"
	OwnAnswer = "Your own answer"
	NoAnswer  = "Choose or write an answer first."
)

// Roles name the authors of messages.
var Roles = map[string]string{"user": "You", "assistant": "Assistant", "system": Product}

// States describe the states of a turn. A turn that completed needs no word.
var States = map[string]string{
	"queued": "queued", "running": "working", "waiting": "needs you", "failed": "failed", "aborted": "stopped", "lost": "lost",
}

// The texts of the setup and of the demo.
const (
	SetUp           = "Set up"
	SetUpAbout      = "Create the first account. It is the administrator."
	SetUpAddress    = "Phones and other computers reach this server at:"
	SetupCode       = "Code"
	SetupCodeHint   = "The server shows a one-time link when it starts for the first time. The code is the part of the link after #."
	SetupLinkVoid   = "The code is wrong, was used already or has expired. Restart the server to get a new link, or log in if the account exists."
	Name            = "Name (optional)"
	NewPassword     = "Password (at least 8 characters)"
	PasswordAgain   = "Password again"
	PasswordsDiffer = "The two passwords differ."
	CreateAccount   = "Create account"

	Welcome   = Product + " is a coding assistant that works on the files of your workspace and runs commands in a sandbox. It asks you before it does anything that no rule allows."
	StartDemo = "Start a demo chat"
	DemoHint  = "The assistant asks to run a command that writes a small text file. You approve or deny it."
	Demo      = "Run `echo Hello from PocketCoder > hello-from-pocketcoder.txt`"
)

const Request = "Request"

// The texts of the account's page.
const (
	Account            = "Account"
	Logins             = "Logins"
	ThisBrowser        = "this browser"
	Client             = "%s on %s"
	UnknownClient      = "Unknown client"
	LoginOpened        = "Logged in"
	LoginFrom          = "from"
	LoginUsed          = "Renewed"
	LoginExpires       = "expires"
	EndLogin           = "Log out"
	EndAllLogins       = "Log out everywhere"
	Phone              = "Phone"
	PhoneOpen          = "Open this address on your phone and log in:"
	PhoneCode          = "QR code of this address"
	OnlyThisMachine    = "The address that you opened works only on this machine. To open the app on a phone, put a reverse proxy with TLS in front of the server. Then start the server with --url and the address of the proxy."
	PhoneNotifications = "To get requests as notifications, run this command on the machine of the server. It shows what to open in the ntfy app:"
)

// The texts beside a conversation.
const (
	// with the attempt, and what the provider said
	ProviderFailed = "The model provider failed (attempt %d): %s"
	NothingNew     = ", nothing new for %s s"
	NextTry        = "Next try:"
	StopTurn       = "Stop the turn"

	// with /omit
	FileMayFail = "A file may be the cause. To leave it out, stop the turn and send %s."

	RefusedFile  = "The last message has no complete answer. A file may be the cause."
	RefusedFiles = "The last message has no complete answer. A file may be the cause. PocketCoder cannot tell which one, so it leaves out every file that the model has not answered yet."
	LeaveOut     = "Leave %s out and try again" // with names
	FileLeftOut  = "left out: %s"

	SendAgain = "Send again"
	Continue  = "Continue"
	// the message that Continue sends to the model
	ContinuePrompt = "Continue."
	ConnectModel   = "Only the demo model answers. Store the key of a provider."
	WaitingOne     = "1 message waits"
	WaitingMore    = "%d messages wait"
	HeldOne        = "Stopped. 1 message waits." // by a person
	HeldMore       = "Stopped. %d messages wait."
	NextStep       = "The assistant reads it after its current step."
	Todo           = "%d of %d tasks done"

	Menu      = "Chat menu"
	Title     = "Title"
	Rename    = "Rename"
	Archive   = "Archive"
	Unarchive = "Unarchive"
	Model     = "model"
	Agent     = "agent"
	Tokens    = "tokens"
	TokensOf  = "%s in, %s out"
	Cost      = "cost"

	Archived   = "Archived chats"
	NoArchived = "No chat is archived."
)

// The texts of undo and fork.
const (
	MessageMenu = "Message menu"
	ForkBefore  = "Fork a new chat before this message"
	UndoFrom    = "Undo this message and all after it"
	Undo        = "Undo the last turn"
	Undone      = "The last messages of this chat and their changes to files are undone. Your next message replaces them."
	Redo        = "Redo"

	UndoQuestion  = "Keep the files that were changed later?"
	UndoChanged   = "These files were changed after the turns of this chat, or cannot be compared with them:"
	UndoKeep      = "Keep these files as they are"
	UndoOverwrite = "Overwrite them"
	UndoKept      = "Kept as they are, because they were changed later:"
	UndoCopies    = "Some of them were changed while the undo or redo was interrupted. Their earlier versions are on the server in"

	UndoneMessages = "The last messages of this chat are undone. Your next message replaces them."
	Fork           = "Fork into a new chat"
)
