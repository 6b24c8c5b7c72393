package filter

import "pocketcoder/web/query/schema"

// Limits of a filter. Those marked with PocketBase have PocketBase's values.
const (
	MaxText        = 3500 // bytes of a filter (as in PocketBase), of expand and of fields
	maxExpressions = 200  // comparisons in a filter, PocketBase
	maxNesting     = 32   // parentheses within parentheses
	MaxPath        = 6    // relations in a path, PocketBase
	maxSort        = 8    // fields, PocketBase
	maxSortName    = 255  // bytes, PocketBase
	// bytes of a text searched with ~: in the worst case SQLite compares all of it at every position of the other text
	maxPattern = 256
	maxJoins   = 20 // relations followed in a filter or a sort; SQLite joins at most 64 tables
	maxMany    = 4  // of these, how many may lead to several records; their numbers multiply
)

// TooLong refuses a parameter that has more than MaxText bytes.
func TooLong(parameter, text string) schema.Invalid {
	return schema.NewInvalid(parameter, "too_long", "it is %d bytes long, at most %d", len(text), MaxText)
}
