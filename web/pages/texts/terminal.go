package texts

// The texts of the terminal: the commands of a chat.
const (
	Terminal          = "Terminal"
	NoExecutions      = "No command has run in this chat."
	EarlierExecutions = "Earlier commands"
	NewestExecutions  = "Newest commands"
	OwnShell          = "shell of a person"
	ShellOutput       = "What the shell printed"
	NotRecorded       = "Its output is not recorded."
	NoOutput          = "No output."
	NoBlob            = "The output could not be read."
	BytesMore         = "… %d bytes more: pocketcoder sandbox logs %s"
	InBackground      = "in the background"
	RunningCommand    = "running"
	EndedBySignal     = "exit code %d (%s)"
	Port              = "Port"
	ShowPort          = "Show"
	OpenPort          = "Open port %s"
	PortHint          = "A web server that a background command or a shell runs on 127.0.0.1"
)

// Ends describe why a command did not end by itself.
var Ends = map[string]string{
	"refused":     "refused",
	"cancelled":   "cancelled",
	"lost":        "lost: nothing is known about its end",
	"timeout":     "stopped: it took longer than allowed",
	"memory":      "stopped: more memory than allowed",
	"processes":   "stopped: more processes than allowed",
	"file-size":   "stopped: a file larger than allowed",
	"cpu-time":    "stopped: more CPU time than allowed",
	"open-files":  "stopped: more open files than allowed",
	"output-size": "stopped: more output than allowed",

	"protected-name": "stopped: it created or changed protected files again and again",
}

// The texts of a person's own shell.
const (
	Shell           = "Shell"
	OpenShell       = "Open a shell"
	OpenPrivate     = "Open a private shell"
	PrivateHint     = "The log does not record what a private shell prints."
	RecordedHint    = "What the shell prints is recorded."
	TypeIntoShell   = "Type into the shell"
	StopTyping      = "Stop typing"
	StopTypingHint  = "Shift and Escape stop typing, too."
	ShellConnecting = "Opening the shell…"
	ShellEnded      = "The shell has ended."
	ShellLost       = "The connection broke, and the shell has ended with it."
	NewShell        = "Open a new one"
	ShellKeys       = "Keys"
	NoScriptShell   = "A shell in the browser needs JavaScript. Or use a terminal: pocketcoder sandbox shell %s"
)
