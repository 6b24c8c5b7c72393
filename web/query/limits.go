package query

import "time"

// What a client may ask for. Those marked with PocketBase are its own limits.
const (
	defaultPerPage = 30   // PocketBase
	maxPerPage     = 1000 // PocketBase
	maxText        = 3500 // bytes of a filter, as in PocketBase, of expand and of fields
	maxExpressions = 200  // comparisons in a filter, PocketBase
	maxNesting     = 32   // parentheses within parentheses
	maxPath        = 6    // relations in a path, PocketBase
	maxSort        = 8    // fields, PocketBase
	maxSortName    = 255  // bytes, PocketBase
	maxExpand      = 20   // paths
	maxFields      = 100
	maxPattern     = 256  // bytes of a text searched with ~: in the worst case SQLite compares all of it at every place of the other text
	maxJoins       = 20   // relations followed in a filter or a sort; SQLite joins at most 64 tables
	maxMany        = 4    // of these, how many may lead to several records: they multiply
	maxBack        = 1000 // records a back-relation expands to, PocketBase
	maxExpanded    = 10_000
	// patience is how long one question may take: no answer a person waits for needs longer, and what does is a filter made to be slow.
	patience = 3 * time.Second
	// maxAnswer is how many bytes the records of one answer may have, what they expand to included.
	maxAnswer = 32 << 20
)

func tooLong(parameter, text string) Invalid {
	return invalid(parameter, "too_long", "it is %d bytes long, at most %d", len(text), maxText)
}

func tooLarge() Invalid {
	return invalid("perPage", "too_large", "the records have more than %d bytes: ask for fewer of them, or for fewer fields", maxAnswer)
}
