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
	CommandsAbout   = "Write one of these instead of a message, into the field at the end of a chat."
	MoreOutput      = "… The command prints more. The page shows the end of the output when the command has ended."
	UnknownModel    = "Write a model after the command: /model PROVIDER/MODEL."
	UnknownAgent    = "There is no such agent. Write one of these after the command: %s."
	NoPrompt        = "There is no message to undo."
)
