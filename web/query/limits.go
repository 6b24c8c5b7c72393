package query

import (
	"time"

	"pocketcoder/web/query/schema"
)

// What a client may ask for. Those marked with PocketBase are its own limits.
const (
	defaultPerPage = 30   // PocketBase
	maxPerPage     = 1000 // PocketBase
	maxExpand      = 20   // paths
	maxFields      = 100
	maxBack        = 1000 // records a back-relation expands to, PocketBase
	maxExpanded    = 10_000
	// patience is how long one question may take: no answer a person waits for needs longer, and what does is a filter made to be slow.
	patience = 3 * time.Second
	// maxAnswer is how many bytes the records of one answer may have, what they expand to included.
	maxAnswer = 32 << 20
)

func tooLarge() schema.Invalid {
	return schema.NewInvalid("perPage", "too_large", "the records have more than %d bytes: ask for fewer of them, or for fewer fields", maxAnswer)
}
