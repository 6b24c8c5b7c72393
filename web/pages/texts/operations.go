package texts

// The texts of the page of operations.
const (
	Operations    = "Operations"
	OnlyAdmins    = "Only administrators see this page."
	Parts         = "Parts of the system"
	Log           = "Log"
	Rate          = "%d events in the last minute, %d in the last hour. The read models include event %d of %d."
	Stream        = "stream"
	MessageCount  = "messages"
	Bytes         = "size"
	LastSequence  = "last"
	ConsumerName  = "consumer"
	Behind        = "behind"
	Unconfirmed   = "unacknowledged"
	Unreadable    = "Events that could not be read or applied"
	NoUnreadable  = "None."
	Workers       = "Workers"
	NoWorkers     = "No worker responds, so no command can run."
	WorkerRunning = "running commands: %d, isolation: %s, version: %s"
	SpentDays     = "Cost per day, last %d days"
	SpentModels   = "Cost per model"
	SpentPeople   = "Cost per person"
	NothingSpent  = "Nothing was spent."
	NoPerson      = "no account"
	CostTokens    = "%s, %s tokens"
)
