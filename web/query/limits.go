package query

import (
	"errors"
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
	maxFirst       = 4000 // rows of a table that are tried for a page: reading them takes a few ms
	// patience is how long one question may take: no answer a person waits for needs longer, and what does is a filter
	// made to be slow.
	patience = 3 * time.Second
	// maxAnswer is how many bytes the records of one answer may have, what they expand to included.
	maxAnswer = 32 << 20
)

// TooLarge reports whether an error says that the records of an answer are too large or expand to too many. Fewer of
// them, or the records without what they expand to, may not be.
func TooLarge(err error) bool {
	var i schema.Invalid
	return errors.As(err, &i) && (i.Code == codeTooLarge || i.Code == codeTooMany)
}

const (
	codeTooLarge = "too_large"
	codeTooMany  = "too_many_records"
)

func tooLarge() schema.Invalid {
	return schema.NewInvalid("perPage", codeTooLarge,
		"the records have more than %d bytes: ask for fewer of them, or for fewer fields", maxAnswer)
}
