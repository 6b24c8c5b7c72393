package texts

// The texts of the search.
const (
	Search       = "Search"
	SearchLabel  = "Search all chats"
	SearchHint   = "Finds messages, commands and the beginning of their output, file names, titles and tags. All words must occur in one text."
	NothingFound = "Nothing was found."
	MoreHits     = "The page shows the %d newest messages."
)

// HitKinds name the kinds of results other than messages.
var HitKinds = map[string]string{"chat": "Chat", "request": "Decision"}
