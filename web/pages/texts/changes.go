package texts

// The texts of the page of changes.
const (
	Changes       = "Changes"
	NoChanges     = "No files changed."
	ChangesNeed   = "OpenCode records changes only if the workspace is in a Git repository."
	ChangedFile   = "1 file"
	ChangedFiles  = "%d files"
	Counts        = "+%d −%d"
	NoPatch       = "OpenCode reports no lines for this change."
	PatchLeftOut  = "The page has no room for these lines."
	PatchMissing  = "These lines are missing. %s"
	MalformedDiff = "OpenCode's answer is malformed."
	OlderTurns    = "Changes of older turns are not shown."
	WrapLines     = "Wrap long lines"
	CommentHint   = "Press a line to quote it here, then write your comment"
)
