package email

import (
	"testing"

	"github.com/emersion/go-imap/v2"
	"github.com/matryer/is"
)

// A server that lies may name any range of UIDs, or one without an end.
func TestTheLowestMailsOfASearchAreHandledFirst(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	is.Equal(firstOf(imap.UIDSet{{Start: 7, Stop: 8}, {Start: 3, Stop: 3}, {Start: 9, Stop: 0}, {Start: 0, Stop: 5}}),
		[]imap.UID{3, 7, 8})
	huge := firstOf(imap.UIDSet{{Start: 1, Stop: 1<<32 - 1}})
	is.Equal(len(huge), maxFound)
	is.Equal(firstOf(imap.UIDSet{{Start: 1<<32 - 1, Stop: 1<<32 - 1}}), []imap.UID{1<<32 - 1})
	is.Equal(len(firstOf(nil)), 0)
}
