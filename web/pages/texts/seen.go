package texts

// The texts about unread answers.
const (
	New        = "new"
	NewSince   = "New since you were here"
	MarkAsRead = "Mark as read"
)

// The texts of what happened while a person was away. A text with %d is for several.
const (
	Away           = "While you were away"
	TurnEnded      = "1 turn ended"
	TurnsEnded     = "%d turns ended"
	TurnFailed     = "1 turn failed"
	TurnsFailed    = "%d turns failed"
	TurnStopped    = "1 turn stopped"
	TurnsStopped   = "%d turns stopped"
	OneRequest     = "1 request "
	SomeRequests   = "%d requests "
	Rules          = "rules"
	CommandRan     = "1 command ran"
	CommandsRan    = "%d commands ran"
	CommandFailed  = "1 command failed"
	CommandsFailed = "%d commands failed"
	FileChanged    = "1 file changed"
	FilesChanged   = "%d files changed"
	OneAnswer      = "1 new message"
	SomeAnswers    = "%d new messages"
)

// The texts of tags.
const (
	Tags     = "Tags"
	TagsHint = "work, later"
	SaveTags = "Save tags"
	AllTags  = "all"
	NoTagged = "No chat has this tag."
)
