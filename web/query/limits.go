package query

import (
	"errors"
	"time"

	"pocketcoder/web/query/schema"
)

// Limits of a client's queries. Those marked with PocketBase have PocketBase's values.
const (
	defaultPerPage = 30   // PocketBase
	maxPerPage     = 1000 // PocketBase
	maxExpand      = 20   // paths
	maxFields      = 100
	maxBack        = 1000 // records that a back-relation expands to, PocketBase
	maxExpanded    = 10_000
	maxFirst       = 4000 // rows of a table that are searched first for a page; this takes a few ms
	// queryTimeout limits a query. Ordinary queries take milliseconds; the largest pages took over 3 s on two cores that
	// were busy with much else. A slower filter is likely an attack.
	queryTimeout = 10 * time.Second
	// maxAnswer limits the records of a response in bytes, with the records that they expand to.
	maxAnswer = 32 << 20
)

// TooLarge reports whether an error means that the records of a response are too large or expand to too many. A smaller
// page, or the same page without expand, may succeed.
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
		"the records have more than %d bytes: request fewer records, or fewer fields", maxAnswer)
}
