package texts

// The texts of the replay of a chat, and of its export.
const (
	ExportedAt = "%s, chat %s as it was after event #%d, %s UTC"

	Replay     = "Replay"
	ReplayLink = "Replay and export"
	ToChat     = "To the chat"
	Export     = "Export"
	ExportHTML = "The conversation as a web page (.html)"
	ExportJSON = "All events as JSON lines (.jsonl)"
	ExportCast = "All commands as an asciinema recording (.cast)"
	CastOf     = "This command as an asciinema recording (.cast)"

	Scrubber    = "Event"
	Go          = "Go"
	Play        = "Play"
	Pause       = "Pause"
	Speed       = "Speed"
	Times       = "%d×"
	FirstEvent  = "First event"
	LastEvent   = "Last event"
	EarlierMark = "Previous mark"
	EarlierStep = "Previous event"
	LaterStep   = "Next event"
	LaterMark   = "Next mark"
	EventOf     = "event %d of %d"
	Number      = "#%d"
	ReplayKeys  = "Keys: Space plays and pauses. ← and → go to the previous and next event, with Shift to the previous and next mark. Home and End go to the first and last event."
	Marks       = "Requests, decisions and commands in the order of the events"

	When       = "when"
	By         = "by"
	Cause      = "cause"
	TheCommand = "command"
	TheRequest = "asks for"
	AllowedBy  = "allowed by"
	RuleOf     = "rule"
	Decision   = "decision"
	Outcome    = "outcome"
	Left       = "processes left"

	Quarantined = "moved out of the workspace"
	Signalled   = "signal"
	Host        = "host"
	Text        = "text"
	Tool        = "tool"
	Erased      = "An operator erased this event."
	Malformed   = "This event cannot be read."
	AsStored    = "As it is stored"
	Ended       = "%s after %s"
	ExitCode    = "exit code %d"

	AnsweredAfter = "answered after %s"
)

// The names of marks, decisions and actors.
var (
	MarkNames = map[string]string{"request": "Requests", "decision": "Decisions", "execution": "Commands"}
	Decisions = map[string]string{"authorized": "approved", "denied": "denied"}
	Actors    = map[string]string{"policy": Rule, "sandbox": "the sandbox", "system": Product,
		"anonymous": "a client that is not logged in", "engine": "OpenCode"}
)
