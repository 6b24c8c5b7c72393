package texts

// The texts of the search.
const (
	Search       = "Search"
	SearchLabel  = "Search all chats"
	SearchHint   = "Finds what was said, commands and the beginning of what they returned, file names, titles and tags. All words must be in a text."
	NothingFound = "Nothing was found."
	MoreHits     = "The %d newest messages are shown."
)

// HitKinds name what was found, if it is no message.
var HitKinds = map[string]string{"chat": "Chat", "request": "Decision"}
