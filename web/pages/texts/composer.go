package texts

// The texts of the composer.
const (
	Attach          = "Attach files"
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
