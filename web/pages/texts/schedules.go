package texts

// MissedRuns and OverlappingRuns say what the values of the fields missed and overlap do.
var (
	MissedRuns      = map[string]string{"skip": "start none", "once": "start one run for all of them"}
	OverlappingRuns = map[string]string{"skip": "skip the next run", "queue": "start the next run anyway"}
)

// The texts of the pages of schedules.
const (
	Schedules        = "Schedules"
	NewSchedule      = "New schedule"
	NoSchedules      = "There are no schedules."
	ScheduleName     = "Name"
	SchedulePrompt   = "Prompt that each run submits"
	ScheduleCron     = "Cron expression"
	CronHint         = "0 9 * * 1-5 (Mon to Fri at 9:00)"
	ScheduleEvery    = "or interval"
	EveryHint        = "15m, 24h, 7d"
	ScheduleAt       = "or once at"
	AtHint           = "2026-12-24 09:00"
	ScheduleZone     = "Time zone, if not the server's"
	ZoneHint         = "Europe/Berlin"
	ScheduleChat     = "Chat"
	ScheduleItsChat  = "The chat in which it runs"
	NewChatEachTime  = "a new chat for each run"
	ScheduleAgent    = "Agent of new chats"
	OpenCodesAgent   = "OpenCode's own agent"
	ScheduleModel    = "Model of new chats"
	DefaultModel     = "the default model"
	ScheduleMissed   = "After missed runs"
	MissedDefault    = "start none; for a single run, start it late"
	ScheduleOverlap  = "If the last run is not over"
	ScheduleMaxCost  = "Stop a run at cost, in US$"
	NoLimitHint      = "empty for no limit"
	ShowPreview      = "Preview"
	Preview          = "Preview of the schedule"
	NextRuns         = "Next runs"
	DryRun           = "Dry run with past requests"
	NoNextRuns       = "The schedule has no further runs."
	Paused           = "paused"
	PastRequests     = "The account made %d permission requests in the last %d days. Today's rules would allow %d of them, ask about %d and deny %d."
	NoPastRequests   = "The account made no permission requests in the last %d days."
	ScheduleTimes    = "%d× %s"
	Runs             = "Runs"
	NoRuns           = "The schedule has not run yet."
	RunNow           = "Run now"
	SchedulePause    = "Pause"
	ScheduleResume   = "Resume"
	ScheduleCost     = "cost %s"
	ScheduleDueEvery = "every %s"
	ScheduleDueAt    = "at %s UTC"
)
