package texts

// The texts of the composer.
const (
	Attach          = "Attach files"
	RemoveFile      = "Remove"
	MessageTooLarge = "The message has %s with its files. The limit is %s, and a file takes a third more than on a disk. " +
		"Send fewer or smaller files."
	FileTooLarge    = "The files are larger than a message may be. Remove some of them."
	NotDecoded      = "This browser cannot convert HEIC pictures. Save it as JPEG and choose it again."
	CannotRead      = "%s cannot read it."
	ConfiguredModel = "the configured model"
	NoAgent         = "no agent: OpenCode alone"
	SelectModel     = "Use"
	Subagents       = "Subagents"
	NoTranscript    = "The subagent has not written anything yet."
	StopSubagent    = "Stop"
	Commands        = "Commands"
	MoreOutput      = "… The command prints more. The page shows the end of the output when the command has ended."
	UnknownModel    = "Write a model after the command: /model PROVIDER/MODEL."
	NoPrompt        = "There is no message to undo."
)

// The descriptions of the composer's commands.
const (
	CommandStop     = "stop the turn"
	CommandUndo     = "undo the last turn and its changes to files"
	CommandRedo     = "redo what was undone"
	CommandFork     = "fork this chat into a new one"
	CommandModel    = "use another model: /model PROVIDER/MODEL"
	CommandRename   = "rename the chat: /rename TITLE"
	CommandArchive  = "archive the chat"
	CommandChanges  = "show the changes to files"
	CommandRequests = "show everything that waits for you"
)
