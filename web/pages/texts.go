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

	textOffline  = "Not connected. Trying again…"
	textUnsent   = "Not sent: the server did not answer."
	textNewBelow = "new ↓"

	textChats         = "Chats"
	textWhatToDo      = "What should be done?"
	textStart         = "Start chat"
	textUntitled      = "Untitled"
	textNothingToSend = "Write a message first."
	textRequests      = "Requests"

	textMessage      = "Message"
	textSend         = "Send"
	textStop         = "Stop"
	textEarlier      = "Earlier messages"
	textNewest       = "Newest messages"
	textReasoning    = "Reasoning"
	textCompacted    = "The conversation so far was summarized."
	textResumed      = "PocketCoder resumed the turn."
	textStopped      = "Stopped."
	textFailed       = "The answer failed."
	textQueued       = "Queued."
	textImage        = "Image:"
	textPatterns     = "patterns"
	textNothingShown = "The form does not say which request it showed. Load the page again."
	textFile         = "file"
	textLeftOut      = "… %d bytes left out …"

	textRun      = "Run a command"
	textRunLines = "Run a command of %d lines"
	textReach    = "Reach %s"
	textSpend    = "Allow more spending"
	textPatch    = "Change %d files"
	textEdit     = "Change %s (+%d −%d)"
	textUse      = "Use %s"

	textNoRequests = "Nothing waits for you."

	textWaits          = "waits for you"
	textApproved       = "approved by %s"
	textApprovedEdited = "approved with an edit by %s"
	textDenied         = "denied by %s"
	textExpired        = "expired"
	textRule           = "a rule"
	textAnswered       = "answered by %s: %s"
	textNotAnswered    = "dismissed by %s"

	textDetails        = "Details"
	textWhere          = "where"
	textAsker          = "subagent"
	textWhy            = "why you are asked"
	textReason         = "reason"
	textEditedInto     = "What runs instead:"
	textApprove        = "Approve"
	textDeny           = "Deny"
	textDenyWithReason = "Deny with a reason"
	textReasonForModel = "Reason, for the model"
	textEditCommand    = "Edit"
	textRunInstead     = "Command to run instead"
	textApproveEdited  = "Approve the edited command"

	textAnswer    = "Answer"
	textReject    = "Dismiss"
	textOwnAnswer = "Your own answer"
	textNoAnswer  = "Choose or write an answer first."
)

// roleNames name the authors of messages.
var roleNames = map[string]string{"user": "You", "assistant": "Assistant", "system": textProduct}

// stateTexts describe the states of a turn. A turn that completed needs no word.
var stateTexts = map[string]string{
	"queued": "queued", "running": "working", "waiting": "needs you", "failed": "failed", "aborted": "stopped", "lost": "interrupted",
}

// The texts of the first minutes.
const (
	textSetUp           = "Set up"
	textSetUpAbout      = "Create the first account. It is the administrator."
	textSetupCode       = "Code"
	textSetupCodeHint   = "The server shows a one-time link when it starts for the first time. The code is the part of the link after #."
	textSetupLinkVoid   = "The code is wrong, was used already or has expired. Restart the server to get a new link, or log in if the account exists."
	textName            = "Name (optional)"
	textPasswordAgain   = "Password again"
	textPasswordsDiffer = "The two passwords differ."
	textCreateAccount   = "Create account"

	textWelcome   = textProduct + " is a coding assistant that works on the files of your workspace and runs commands in a sandbox. It asks you before it does anything that no rule allows."
	textStartDemo = "Start a demo chat"
	textDemoHint  = "The assistant asks to write a small text file. You approve or deny it."
	textDemo      = "Run `echo Hello from PocketCoder > hello-from-pocketcoder.txt`"
)

const textRequest = "Request"

// The texts of the account's page.
const (
	textAccount            = "Account"
	textLogins             = "Logins"
	textThisBrowser        = "this browser"
	textClient             = "%s on %s"
	textUnknownClient      = "Unknown client"
	textLoginFrom          = "From"
	textLoginUsed          = "Renewed"
	textLoginExpires       = "expires"
	textEndLogin           = "Log out"
	textEndAllLogins       = "Log out everywhere"
	textPhone              = "Phone"
	textPhoneOpen          = "Open this address on your phone and log in:"
	textPhoneCode          = "QR code of this address"
	textOnlyThisMachine    = "Only this machine reaches the address that you opened. To open the app on a phone, put a reverse proxy with TLS in front of the server and start it with --url and the address of the proxy."
	textPhoneNotifications = "To get requests as notifications, run this command on the machine of the server. It shows what to open in the ntfy app:"
)

// The texts beside a conversation.
const (
	textSendAgain   = "Send again"
	textWaitingOne  = "1 message waits"
	textWaitingMore = "%d messages wait"
	textNextStep    = "The assistant reads it after its current step."
	textNotSentYet  = "It is not sent yet."
	textTodo        = "%d of %d tasks done"

	textMenu      = "Chat menu"
	textTitle     = "Title"
	textRename    = "Rename"
	textArchive   = "Archive"
	textUnarchive = "Unarchive"
	textModel     = "model"
	textAgent     = "agent"
	textTokens    = "tokens"
	textTokensOf  = "%s in, %s out"
	textCost      = "cost"

	textArchived   = "Archived chats"
	textNoArchived = "No chat is archived."
)

// The texts of undo and fork.
const (
	textMessageMenu = "Message menu"
	textForkBefore  = "Fork a new chat before this message"
	textUndoFrom    = "Undo this message and all after it"
	textUndo        = "Undo the last turn"
	textUndone      = "The end of this chat is undone, with its changes to files. Your next message replaces it."
	textRedo        = "Redo"
	textFork        = "Fork into a new chat"
)

// The texts of the page of changes.
const (
	textChanges      = "Changes"
	textNoChanges    = "No files changed."
	textChangedFile  = "1 file"
	textChangedFiles = "%d files"
	textCounts       = "+%d −%d"
	textNoPatch      = "OpenCode shows no lines of this change."
	textOlderTurns   = "Changes of older turns are not shown."
)
